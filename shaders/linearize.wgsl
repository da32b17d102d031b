// Index -> linear row. Checks offsets and indices; finds each index's bag.
#include "shared/common.wgsl"

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> indices: array<u32>;
@group(0) @binding(2) var<storage, read> offsets: array<u32>;
@group(0) @binding(3) var<storage, read> features: array<u32>; // feature -> table
@group(0) @binding(4) var<storage, read_write> tables: array<atomic<u32>>;
@group(0) @binding(5) var<storage, read_write> step: Step;
@group(0) @binding(6) var<storage, read_write> keys: array<u32>;         // linear row, NONE if left out
@group(0) @binding(7) var<storage, read_write> access: array<vec2<u32>>; // output row, coefficient (set by gather)

#include "shared/tables.wgsl"

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let i = flat_group(group, groups) * 256u + lane;
    if (i <= params.bags) {
        var good = offsets[i] <= params.indices;
        if (i == 0u) { good = good && offsets[0] == 0u; }
        if (i == params.bags) { good = good && offsets[i] == params.indices; }
        if (i < params.bags) { good = good && offsets[i] <= offsets[i + 1u]; }
        if (!good) { atomicMax(&step.bad_offset, NONE - i); }
    }
    if (i >= params.indices) { return; }

    // The last bag that starts at or before i; empty bags start where the next one does.
    var low = 0u;
    var high = params.bags;
    while (high - low > 1u) {
        let middle = (low + high) / 2u;
        if (offsets[middle] <= i) { low = middle; } else { high = middle; }
    }
    access[i] = vec2<u32>(select(low, i, params.pooling == POOL_NONE), 0u);

    var index = indices[i];
    if (params.mode == MODE_ROWS) {
        keys[i] = index;
        atomicAdd(&step.accesses, 1u);
        return;
    }
    let table = features[low / params.bags_per_feature];
    let rows = atomicLoad(&tables[CLOCK_WORDS + table * TABLE_WORDS + 1u]);
    var key = NONE;
    if (index >= rows) {
        if (params.mode == MODE_TRAIN) { count(table, OUT_OF_RANGE, 1u); }
        if (params.out_of_range == CLAMP) {
            index = rows - 1u;
        } else if (params.out_of_range != SKIP) {
            atomicMax(&step.bad_index, NONE - i);
        }
    }
    if (index < rows) {
        key = table_base(table) + index;
        atomicAdd(&step.accesses, 1u);
    }
    keys[i] = key;
}
