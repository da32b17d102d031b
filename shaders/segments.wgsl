// From scanned heads to segments: `segment` of each sorted key, `starts` of each distinct key, and their counts.
#include "shared/common.wgsl"
#include "shared/dedup.wgsl"

@group(0) @binding(0) var<uniform> info: DedupInfo;
@group(0) @binding(1) var<storage, read_write> step: Step;
@group(0) @binding(2) var<storage, read> keys: array<u32>;
@group(0) @binding(3) var<storage, read_write> segment: array<u32>; // in: exclusive scan of heads; out: segment
@group(0) @binding(4) var<storage, read_write> starts: array<u32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let i = flat_group(group, groups) * 256u + lane;
    let n = step.counts[info.count];
    if (i >= n) { return; }
    let key = keys[i];
    if (key == NONE) { return; }
    var head = true;
    if (i > 0u) { head = keys[i - 1u] != key; }
    var last = true;
    if (i + 1u < n) { last = keys[i + 1u] == NONE; }
    let here = select(segment[i] - 1u, segment[i], head);
    segment[i] = here;
    if (head) { starts[here] = i; }
    if (last) {
        step.counts[info.segments] = here + 1u;
        step.counts[info.valid] = i + 1u;
    }
}
