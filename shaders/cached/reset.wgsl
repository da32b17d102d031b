// Empties the cache: tags become NONE, all other metadata as in a new cache. One invocation for each slot.
#include "shared/common.wgsl"
#include "shared/meta.wgsl"

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> ways: array<u32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let slot = flat_group(group, groups) * 256u + lane;
    if (slot >= params.slots) { return; }
    ways[way_at(slot, TAG)] = NONE;
    ways[way_at(slot, STAMP)] = 0u;
    ways[way_at(slot, FREQ)] = 0u;
    ways[way_at(slot, FLAGS)] = select(0u, RECENT, (slot & 31u) < params.window_ways);
}
