// Marks where a new key begins in the sorted keys. NONE, which sorts last, begins nothing.
#include "shared/common.wgsl"
#include "shared/dedup.wgsl"

@group(0) @binding(0) var<uniform> info: DedupInfo;
@group(0) @binding(1) var<storage, read_write> step: Step;
@group(0) @binding(2) var<storage, read> keys: array<u32>;
@group(0) @binding(3) var<storage, read_write> heads: array<u32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let i = flat_group(group, groups) * 256u + lane;
    if (i >= info.capacity) { return; }
    let n = step.counts[info.count];
    var head = 0u;
    if (i < n && keys[i] != NONE) {
        head = 1u;
        if (i > 0u && keys[i - 1u] == keys[i]) { head = 0u; }
    }
    heads[i] = head;
}
