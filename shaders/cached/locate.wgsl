// Finds where the rows of a training batch lie under LFU, which may have evicted a row that the batch has hit. Such a row is
// in scratch, in the row of the swap that evicted it. Of other batches shared/placed.wgsl finds the places.
#include "shared/common.wgsl"
#include "shared/meta.wgsl"
#include "shared/swap.wgsl"

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> step: Step;
@group(0) @binding(2) var<storage, read> keys: array<u32>;   // linear row of each access
@group(0) @binding(3) var<storage, read> swaps: array<Swap>; // the missing rows, sorted by key_of
@group(0) @binding(4) var<storage, read> ways: array<u32>;
@group(0) @binding(5) var<storage, read_write> places: array<u32>; // afterwards a slot, or slots + u for row u of scratch
@group(0) @binding(6) var<storage, read> shares: array<Share>;

#include "shared/shares.wgsl"

// The number of a missing row.
fn number_of(row: u32) -> u32 {
    let key = key_of(row);
    var low = 0u;
    var high = step.counts[COUNT_SWAPS];
    while (high - low > 1u) {
        let middle = low + (high - low) / 2u;
        if (key_of(swaps[middle].row) <= key) { low = middle; } else { high = middle; }
    }
    return low;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    if (step.counts[COUNT_SWAPS] == 0u) { return; }
    for (var i = flat_group(group, groups) * 256u + lane; i < params.indices; i += groups.x * groups.y * 256u) {
        let place = places[i];
        if (place == NONE) { continue; }
        if (place >= params.slots) {
            places[i] = swaps[place - params.slots].place;
        } else if ((ways[way_at(place, FLAGS)] & COMING) != 0u) {
            let now = ways[way_at(place, STAMP)];
            if (now != keys[i]) { places[i] = params.slots + number_of(now); }
        }
    }
}
