// Where each distinct row of the batch is now: in a slot, or bypassed into scratch; and what must be fetched to get it there.
// An LFU batch may have evicted a row it had hit, so the tag is looked at again.
#include "shared/common.wgsl"
#include "shared/meta.wgsl"

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> step: Step;
@group(0) @binding(2) var<storage, read_write> unique: array<Unique>;
@group(0) @binding(3) var<storage, read> set_keys: array<u32>;
@group(0) @binding(4) var<storage, read> ways: array<u32>;
@group(0) @binding(5) var<storage, read_write> fetch_to: array<u32>; // slot, slots + u for scratch, NONE for nothing

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let u = flat_group(group, groups) * 256u + lane;
    if (u >= step.counts[COUNT_UNIQUE]) { return; }
    let slot = unique[u].slot;
    var resident = slot != NONE;
    if (resident) { resident = ways[way_at(slot, TAG)] == unique[u].row; }
    let here = select(params.slots + u, slot, resident);
    let was_hit = set_keys[u] == NONE;
    unique[u].slot = here;
    fetch_to[u] = select(here, NONE, resident && was_hit);
}
