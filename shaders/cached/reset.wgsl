// Empties the cache: tags become NONE, all other metadata as in a new cache. One invocation for each slot.
#include "shared/common.wgsl"
#include "shared/meta.wgsl"

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> ways: array<u32>;
@group(0) @binding(2) var<storage, read> shares: array<Share>;

#include "shared/shares.wgsl"

// The number of ways of a set that hold recent rows in an empty cache.
fn recent_ways(home: u32) -> u32 {
    if (params.shares == 0u) { return params.window_ways; }
    var low = 0u;
    var high = params.shares;
    while (high - low > 1u) {
        let middle = (low + high) / 2u;
        if (shares[middle].first_set <= home) { low = middle; } else { high = middle; }
    }
    return select(params.window_ways, 0u, covers(shares[low]));
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let slot = flat_group(group, groups) * 256u + lane;
    if (slot >= params.slots) { return; }
    ways[way_at(slot, TAG)] = NONE;
    ways[way_at(slot, STAMP)] = 0u;
    ways[way_at(slot, FREQ)] = 0u;
    ways[way_at(slot, FLAGS)] = select(0u, RECENT, (slot & 31u) < recent_ways(slot / 32u));
}
