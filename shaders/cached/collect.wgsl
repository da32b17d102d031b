// Flush: lists a swap for every dirty slot, in any order; exchange marks the slot clean. One invocation for each slot.
//
// Bytes moved per slot: 4 (flags); per dirty slot: 4 (tag), 4, 16.
#include "shared/common.wgsl"
#include "shared/meta.wgsl"
#include "shared/swap.wgsl"

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> step: array<atomic<u32>>; // `Step` as words, so that the number of swaps can grow atomically
@group(0) @binding(2) var<storage, read> ways: array<u32>;
@group(0) @binding(3) var<storage, read_write> swaps: array<Swap>;
@group(0) @binding(4) var<storage, read_write> tables: array<atomic<u32>>;

#include "shared/tag.wgsl"

var<workgroup> found: atomic<u32>;
var<workgroup> base: u32;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let slot = flat_group(group, groups) * 256u + lane;
    if (lane == 0u) { atomicStore(&found, 0u); }
    if (slot == 0u) { atomicStore(&step[0], atomicLoad(&tables[0])); }
    workgroupBarrier();
    var dirty = false;
    if (slot < params.slots) { dirty = (ways[way_at(slot, FLAGS)] & DIRTY) != 0u; }
    var place = 0u;
    if (dirty) { place = atomicAdd(&found, 1u); }
    workgroupBarrier();
    if (lane == 0u) {
        let n = atomicLoad(&found);
        if (n > 0u) { base = atomicAdd(&step[STEP_COUNTS + COUNT_SWAPS], n); }
    }
    workgroupBarrier();
    if (!dirty) { return; }
    swaps[base + place] = Swap(slot, NONE, tag_of(slot), WRITE);
}
