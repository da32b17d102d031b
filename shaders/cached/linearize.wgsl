// Turns each index into its linear row. Checks offsets and indices, and finds the bag of each index (SPEC 3, step 1;
// SPEC 7). The indices of a workgroup are neighbours: it searches the bags of its first and last index together, and
// each lane searches between them. The workgroup that ends last decides whether the step takes place, and advances the
// clock. In training it also counts the digits of rows by which backward's sort begins.
//
// Bytes moved per index: 4 in, 12 out; per bag: 4; per workgroup: 2 KiB of offsets in each of the two or fewer rounds
// that find a bag among 65,536.
#include "shared/common.wgsl"
#include "shared/feature.wgsl"
#include "shared/sort.wgsl"

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> indices: array<u32>;
@group(0) @binding(2) var<storage, read> offsets: array<u32>;
@group(0) @binding(3) var<storage, read> features: array<Feature>;
@group(0) @binding(4) var<storage, read_write> tables: array<atomic<u32>>;
@group(0) @binding(5) var<storage, read_write> step: Step;
@group(0) @binding(6) var<storage, read_write> keys: array<u32>;         // linear row; NONE if the index is left out
@group(0) @binding(7) var<storage, read_write> access: array<vec2<u32>>; // output row, coefficient (set by gather)
@group(0) @binding(8) var<storage, read_write> row_digits: array<atomic<u32>>; // zero before; written if params.row_mask

#include "shared/tables.wgsl"
#include "shared/bag.wgsl"
#include "shared/halvings.wgsl"
#include "shared/sets.wgsl"
#include "shared/begin.wgsl"

var<workgroup> accesses: atomic<u32>;
var<workgroup> bins: array<atomic<u32>, 256>; // indices of the workgroup by the lowest digit of their rows

// Lists the indices of a workgroup, from `first` on. The whole workgroup must call this.
fn list(first: u32, lane: u32) {
    let i = first + lane;
    let ends = bags_by_group(vec2<u32>(first, min(first + 255u, params.indices - 1u)), lane); // begins with a barrier
    if (i >= params.indices) { return; }
    let bag = bag_between(i, ends.x, ends.y);
    access[i] = vec2<u32>(select(bag, i, params.pooling == POOL_NONE), 0u);
    var index = indices[i];
    var key = index;
    if (params.mode != MODE_ROWS) {
        let feature = features[bag / params.bags_per_feature];
        // The uniform condition saves the reads of a group without padding.
        let padded = params.padded != 0u && feature.padded == 1u;
        var pads = padded && index == feature.padding;
        let beyond = index >= feature.rows && !pads;
        if (params.mode == MODE_TRAIN && (pads || beyond)) {
            count(feature.table, select(OUT_OF_RANGE, PADDING, pads), 1u);
        }
        if (beyond) {
            if (params.out_of_range == CLAMP) {
                index = feature.rows - 1u;
                pads = padded && index == feature.padding;
            } else if (params.out_of_range != SKIP) {
                atomicMax(&step.bad_index, NONE - i);
            }
        }
        key = select(NONE, feature.base + index, index < feature.rows && !pads);
    }
    keys[i] = key;
    if (params.row_mask != 0u) { atomicAdd(&bins[key & params.row_mask], 1u); }
    if (key != NONE) { atomicAdd(&accesses, 1u); }
}

// Says what is wrong with a batch, or takes its step.
fn decide() {
    let bad_offset = atomicLoad(&step.bad_offset);
    let bad_index = atomicLoad(&step.bad_index);
    if (bad_offset != 0u) {
        step.error = 2u;
        step.error_position = NONE - bad_offset;
        step.error_value = offsets[step.error_position];
    } else if (bad_index != 0u) {
        step.error = 1u;
        step.error_position = NONE - bad_index;
        step.error_value = indices[step.error_position];
        step.error_table = features[bag_between(step.error_position, 0u, params.bags - 1u) / params.bags_per_feature].table;
    } else {
        begin();
    }
    step.t = atomicLoad(&tables[0]);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let first = flat_group(group, groups) * 256u;
    let i = first + lane;
    if (i <= params.bags) {
        var good = offsets[i] <= params.indices;
        if (i == 0u) { good = good && offsets[0] == 0u; }
        if (i == params.bags) { good = good && offsets[i] == params.indices; }
        if (i < params.bags) { good = good && offsets[i] <= offsets[i + 1u]; }
        if (!good) { atomicMax(&step.bad_offset, NONE - i); }
    }
    if (lane == 0u) { atomicStore(&accesses, 0u); }
    atomicStore(&bins[lane], 0u);
    if (first < params.indices) { list(first, lane); }
    workgroupBarrier();
    if (lane == 0u) { atomicAdd(&step.accesses, atomicLoad(&accesses)); }
    let counted = atomicLoad(&bins[lane]);
    // The indices of a workgroup lie in one block of the sort.
    if (counted > 0u) { atomicAdd(&row_digits[lane * digit_stride(params.indices) + first / SORT_BLOCK], counted); }
    if (is_last(groups, lane)) { decide(); }
}
