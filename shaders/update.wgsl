// The optimiser: each distinct row is updated once, in its slot or in scratch, in FP32 (SPEC 3, backward).
// A row whose gradient or new value is not finite is left as it was, and counted.
#include "shared/common.wgsl"
#include "shared/meta.wgsl"

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> step: Step;
@group(0) @binding(2) var<storage, read> unique: array<Unique>;
@group(0) @binding(3) var<storage, read> grads: array<f32>;
@group(0) @binding(4) var<storage, read_write> cache: array<f32>;
@group(0) @binding(5) var<storage, read_write> scratch: array<f32>;
@group(0) @binding(6) var<storage, read_write> ways: array<u32>;
@group(0) @binding(7) var<storage, read_write> sources: array<u32>; // out: the bypass rows to write to the table
@group(0) @binding(8) var<storage, read_write> tables: array<atomic<u32>>;

#include "shared/tables.wgsl"

const SGD: u32 = 0u;
const ROW_WISE: u32 = 2u;

var<workgroup> one: Unique;
var<workgroup> sums: array<f32, 64>;
var<workgroup> bad: array<u32, 64>;

fn load(bypass: bool, at: u32) -> f32 {
    if (bypass) { return scratch[at]; }
    return cache[at];
}

fn store(bypass: bool, at: u32, value: f32) {
    if (bypass) { scratch[at] = value; } else { cache[at] = value; }
}

fn is_finite(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7f800000u) != 0x7f800000u;
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let u = flat_group(group, groups);
    if (lane == 0u) {
        one = Unique(NONE, 0u, 0u, 0u);
        if (u < step.counts[COUNT_UNIQUE]) { one = unique[u]; }
    }
    let here = workgroupUniformLoad(&one);
    if (here.row == NONE) { return; }
    let bypass = here.slot >= params.slots;
    let base = select(here.slot, here.slot - params.slots, bypass) * params.row_words;

    // Row-wise AdaGrad needs the mean of the squares first. Fixed order: 64 strided sums, then a tree.
    var row_state = 0.0;
    if (params.optimizer == ROW_WISE) {
        var sum = 0.0;
        for (var e = lane; e < params.dim; e += 64u) {
            let g = grads[u * params.dim + e] + params.weight_decay * load(bypass, base + e);
            sum += g * g;
        }
        sums[lane] = sum;
        for (var reach = 32u; reach > 0u; reach /= 2u) {
            workgroupBarrier();
            if (lane < reach) { sums[lane] += sums[lane + reach]; }
        }
        workgroupBarrier();
        row_state = load(bypass, base + params.dim) + sums[0] / f32(params.dim);
    }

    // Twice over the row: first to see whether every new value is finite, then to store them.
    for (var writing = 0u; writing < 2u; writing++) {
        var wrong = select(0u, 1u, !is_finite(row_state));
        for (var e = lane; e < params.dim; e += 64u) {
            let w = load(bypass, base + e);
            let g = grads[u * params.dim + e] + params.weight_decay * w;
            var moved = params.lr * g;
            var state = row_state;
            if (params.optimizer != SGD) {
                if (params.optimizer != ROW_WISE) { state = load(bypass, base + params.dim + e) + g * g; }
                moved = moved / (sqrt(state) + params.eps);
            }
            let new_w = w - moved;
            if (writing == 1u) {
                store(bypass, base + e, new_w);
                if (params.optimizer == 1u) { store(bypass, base + params.dim + e, state); }
            } else if (!is_finite(g) || !is_finite(new_w) || !is_finite(state)) {
                wrong = 1u;
            }
        }
        if (writing == 0u) {
            bad[lane] = wrong;
            for (var reach = 32u; reach > 0u; reach /= 2u) {
                workgroupBarrier();
                if (lane < reach) { bad[lane] |= bad[lane + reach]; }
            }
            if (workgroupUniformLoad(&bad[0]) != 0u) { break; }
        }
    }
    if (lane != 0u) { return; }
    sources[u] = NONE;
    if (bad[0] != 0u) {
        count(table_of(here.row), SKIPPED_ROWS, 1u);
        return;
    }
    if (params.optimizer == ROW_WISE) { store(bypass, base + params.dim, row_state); }
    if (bypass) { sources[u] = here.slot; } else { ways[way_at(here.slot, DIRTY)] = 1u; }
}
