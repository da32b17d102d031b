// Finds the place of each missed access's row. An LFU batch may have evicted a row that it had hit. The place of such a
// row is in scratch, in the row of the swap that evicted it.
#include "shared/common.wgsl"
#include "shared/meta.wgsl"

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> step: Step;
@group(0) @binding(2) var<storage, read> keys: array<u32>;    // linear row of each access
@group(0) @binding(3) var<storage, read> order: array<u32>;   // the missed accesses, sorted by key_of
@group(0) @binding(4) var<storage, read> segment: array<u32>; // the position in `unique` of each sorted access's row
@group(0) @binding(5) var<storage, read> unique: array<Unique>;
@group(0) @binding(6) var<storage, read> ways: array<u32>;
@group(0) @binding(7) var<storage, read_write> places: array<atomic<u32>>; // slot, or slots + u for row u of scratch; NONE if left out
@group(0) @binding(8) var<storage, read> shares: array<Share>;

#include "shared/shares.wgsl"

// The position in `unique` of a row that is listed there.
fn place_of(row: u32) -> u32 {
    let key = key_of(row);
    var low = 0u;
    var high = step.counts[COUNT_SWAPS];
    while (high - low > 1u) {
        let middle = low + (high - low) / 2u;
        if (key_of(unique[middle].row) <= key) { low = middle; } else { high = middle; }
    }
    return low;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let missed = step.counts[COUNT_MISSED];
    let again = params.policy == LFU && params.mode == MODE_TRAIN && missed > 0u;
    let n = select(missed, params.indices, again);
    for (var i = flat_group(group, groups) * 256u + lane; i < n; i += groups.x * groups.y * 256u) {
        if (i < missed) { atomicStore(&places[order[i]], unique[segment[i]].slot); }
        if (again) {
            // Another lane may be writing the place of a missed access. Both its old and its new value need no
            // correction here.
            let slot = atomicLoad(&places[i]);
            if (slot < params.slots) {
                if ((ways[way_at(slot, FLAGS)] & COMING) != 0u) {
                    let now = ways[way_at(slot, STAMP)];
                    if (now != keys[i]) { atomicStore(&places[i], params.slots + place_of(now)); }
                }
            }
        }
    }
}
