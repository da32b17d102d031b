// Decides whether the step takes place; if so, advances the clock (SPEC 3, step 1). One invocation.
#include "shared/common.wgsl"
#include "shared/feature.wgsl"

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> indices: array<u32>;
@group(0) @binding(2) var<storage, read> offsets: array<u32>;
@group(0) @binding(3) var<storage, read> features: array<Feature>;
@group(0) @binding(4) var<storage, read_write> tables: array<atomic<u32>>;
@group(0) @binding(5) var<storage, read_write> step: Step;

#include "shared/halvings.wgsl"
#include "shared/sets.wgsl"

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
            if (params.policy == WINDOW && params.shares == 0u && ages(whole())) {
                step.counts[COUNT_HALVINGS] = halvings_of(0u, params.slots, atomicLoad(&step.accesses));
            }
        }
    }
    step.t = t;
}
