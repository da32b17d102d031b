// Flush: lists every dirty slot and marks it clean. One invocation a slot.
#include "shared/common.wgsl"
#include "shared/meta.wgsl"

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> step: Step;
@group(0) @binding(2) var<storage, read_write> ways: array<u32>;
@group(0) @binding(3) var<storage, read_write> rows: array<u32>;    // NONE for a clean slot
@group(0) @binding(4) var<storage, read_write> sources: array<u32>; // the slot

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let slot = flat_group(group, groups) * 256u + lane;
    if (slot >= params.slots) { return; }
    if (slot == 0u) { step.counts[COUNT_SLOTS] = params.slots; }
    let dirty = ways[way_at(slot, DIRTY)] == 1u;
    rows[slot] = select(NONE, ways[way_at(slot, TAG)], dirty);
    sources[slot] = slot;
    ways[way_at(slot, DIRTY)] = 0u;
}
