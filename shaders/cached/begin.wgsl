// Decides whether the step takes place; if so, advances the clock (SPEC 3, step 1). One invocation.
#include "shared/common.wgsl"
#include "shared/feature.wgsl"

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> indices: array<u32>;
@group(0) @binding(2) var<storage, read> offsets: array<u32>;
@group(0) @binding(3) var<storage, read> features: array<Feature>;
@group(0) @binding(4) var<storage, read_write> tables: array<atomic<u32>>;
@group(0) @binding(5) var<storage, read_write> step: Step;
@group(0) @binding(6) var<storage, read_write> shares: array<Share>;

#include "shared/shares.wgsl"

// How often the counters of a table's rows, or of all rows, are halved before this step: once for every 32 accesses a slot since
// the last time. Counts this step's accesses, where the caller knows them. The sum is below 2^37, so that its multiples of
// 32 fit in a word.
fn halvings_of(table: u32, slots: u32, accesses: u32) -> u32 {
    let at = CLOCK_WORDS + table * TABLE_WORDS + SINCE;
    let low = atomicLoad(&tables[at]);
    let turns = (low >> 5u) | (atomicLoad(&tables[at + 1u]) << 27u);
    let left = turns % slots;
    let rest = (left << 5u) | (low & 31u);
    let sum = rest + accesses;
    atomicStore(&tables[at], sum);
    atomicStore(&tables[at + 1u], (left >> 27u) + select(0u, 1u, sum < rest));
    return min(turns / slots, 4u);
}

// Notes how often counters are halved. Each share has accesses of its own, which probe counts.
fn age() {
    if (params.shares == 0u) {
        if (params.direct == 0u) {
            step.counts[COUNT_HALVINGS] = halvings_of(0u, params.slots, atomicLoad(&step.accesses));
        }
        return;
    }
    var most = 0u;
    for (var table = 0u; table < params.shares; table++) {
        if (!ages(table)) { continue; }
        let halvings = halvings_of(table, shares[table].sets * 32u, 0u);
        shares[table].halvings = halvings;
        most = max(most, halvings);
    }
    step.counts[COUNT_HALVINGS] = most;
}

@compute @workgroup_size(1)
fn main() {
    let bad_offset = atomicLoad(&step.bad_offset);
    let bad_index = atomicLoad(&step.bad_index);
    var t = atomicLoad(&tables[0]);
    if (bad_offset != 0u) {
        step.error = 2u;
        step.error_position = NONE - bad_offset;
        step.error_value = offsets[step.error_position];
    } else if (bad_index != 0u) {
        step.error = 1u;
        step.error_position = NONE - bad_index;
        step.error_value = indices[step.error_position];
        var bag = 0u;
        var high = params.bags;
        while (high - bag > 1u) {
            let middle = (bag + high) / 2u;
            if (offsets[middle] <= step.error_position) { bag = middle; } else { high = middle; }
        }
        step.error_table = features[bag / params.bags_per_feature].table;
    } else if (atomicLoad(&step.accesses) > 0u) {
        step.counts[COUNT_INDICES] = params.indices;
        if (params.mode == MODE_TRAIN) {
            t += 1u;
            atomicStore(&tables[0], t);
            if (params.policy == WINDOW && params.sets > 0u) { age(); }
        }
    }
    step.t = t;
}
