// Runs the optimiser (SPEC 3, Backward): sums the gradients of each distinct row and updates the row once, in FP32, in
// its slot or in scratch, where forward has left the bypassed rows. A bypassed row is packed into its record at once.
// Dispatched once for each shard: bypassed rows belong to the shard of their record, resident rows to the first. A row
// whose gradient or new value is not finite stays as it is and is counted.
//
// Bytes moved per row: 16, 8 + 4 dim for each access, 4 (dim + state) in and out; per resident row: 8 (flags); per
// bypassed row: the stride out; per workgroup: 4 for each of up to 64 tables.
#include "shared/common.wgsl"
#include "shared/meta.wgsl"
#include "shared/quad.wgsl"
#include "shared/shard.wgsl"
#include "shared/target.wgsl"
#include "shared/half.wgsl"
#include "shared/gradient.wgsl"
#include "shared/rate.wgsl"

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<uniform> shard: Shard;
@group(0) @binding(2) var<storage, read> targets: array<Target>;
@group(0) @binding(3) var<storage, read> accesses: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read> grad_outputs: array<Words>;
@group(0) @binding(5) var<storage, read_write> records: array<u32>;
@group(0) @binding(6) var<storage, read_write> cache: array<Quad>;
@group(0) @binding(7) var<storage, read_write> scratch: array<Quad>; // bypassed rows, then the partial rows of merge
@group(0) @binding(8) var<storage, read_write> ways: array<u32>;
@group(0) @binding(9) var<storage, read_write> tables: array<atomic<u32>>;
@group(0) @binding(10) var<uniform> rate: Rate;

#include "shared/tables.wgsl"
#include "shared/row_counts.wgsl"
#include "shared/flight.wgsl"
#include "shared/rng.wgsl"
#include "shared/slots.wgsl"
#include "shared/store.wgsl"
#include "shared/pack.wgsl"
#include "shared/merge.wgsl"
#include "shared/sum.wgsl"

const SGD: u32 = 0u;
const ADAGRAD: u32 = 1u;
const ROW_WISE: u32 = 2u;

var<workgroup> length: u32;
var<workgroup> squares: array<f32, 256>;
var<workgroup> wrong: array<atomic<u32>, 64>; // for each row: a value is not finite
var<workgroup> packs: atomic<u32>;            // not 0 if any row is to be packed
var<workgroup> packing: u32;

struct Moved {
    g: Quad,
    w: Quad,
    state: Quad,
}

fn merged(one: Target, q: u32) -> Quad {
    if (one.end - one.start > MERGE_CHUNK) { return scratch[partial_at(2u * (one.start / MERGE_CHUNK) + 1u, q)]; }
    return sum_of(one.start, one.end, q);
}

// Gradient, new weight and new state of a Quad; `grad` is the summed gradient.
fn moved(one: Target, q: u32, grad: Quad, row_state: f32) -> Moved {
    let w = load_quad(one.place, q);
    let g = grad + params.weight_decay * w;
    var by = rate.lr * g;
    var state = Quad();
    if (params.optimizer == ADAGRAD) {
        state = load_quad(one.place, weight_quads() + q) + g * g;
        by = by / (sqrt(state) + params.eps);
    } else if (params.optimizer == ROW_WISE) {
        by = by / (sqrt(row_state) + params.eps);
    }
    return Moved(g, w - by, state);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
    if (local == 0u) { length = targets[0].row; }
    let n = workgroupUniformLoad(&length);
    pack_step = targets[0].start;
    unscale = bitcast<f32>(targets[0].end);
    let lane = local & (params.lanes - 1u);
    let mine = local / params.lanes;
    let at_once = 256u / params.lanes;
    let begin = flat_group(group, groups) * at_once;
    if (begin >= n) { return; }
    row_counts_begin(local);
    for (var first = begin; first < n; first += groups.x * groups.y * at_once) {
        var one = Target(NONE, NONE, 0u, 0u);
        if (first + mine < n) { one = targets[first + mine + 1u]; }
        let bypass = one.place >= params.slots;
        let live = one.row != NONE && select(shard.first_row == 0u, in_shard(one.row), bypass);
        if (lane == 0u) { atomicStore(&wrong[mine], 0u); }
        if (local == 0u) { atomicStore(&packs, 0u); }

        // Each lane sums one Quad of the row once and keeps the sum. Rows of more Quads are summed again in each pass,
        // from L1.
        var held = Quad();
        if (live && lane < weight_quads()) { held = merged(one, lane); }

        // Row-wise AdaGrad needs the mean of squares first. The order is fixed: each lane adds its Quads in ascending
        // order, then a tree adds the lanes.
        var row_state = 0.0;
        if (params.optimizer == ROW_WISE) {
            var sum = 0.0;
            if (live) {
                for (var q = lane; q < weight_quads(); q += params.lanes) {
                    var grad = held;
                    if (q != lane) { grad = merged(one, q); }
                    sum = add_squares(sum, grad + params.weight_decay * load_quad(one.place, q));
                }
            }
            squares[local] = sum;
            for (var reach = params.lanes / 2u; reach > 0u; reach /= 2u) {
                workgroupBarrier();
                if (lane < reach) { squares[local] += squares[local + reach]; }
            }
            // The lane that writes the row's state is the only one that reads it.
            if (live && lane == 0u) {
                squares[local] = part_of(load_quad(one.place, weight_quads()), 0u) + squares[local] / f32(params.dim);
            }
            workgroupBarrier();
            if (live) { row_state = squares[local - lane]; }
        }

        // Two passes over the row: the first checks that every new value is finite, the second stores them.
        var bad = !is_finite(bits_of(quad_of(row_state)));
        var next: Moved;
        if (live) {
            for (var q = lane; q < weight_quads(); q += params.lanes) {
                var grad = held;
                if (q != lane) { grad = merged(one, q); }
                let after = moved(one, q, grad, row_state);
                if (q == lane) { next = after; }
                bad = bad || !is_finite(bits_of(after.g)) || !is_finite(bits_of(after.w))
                    || !is_finite(bits_of(after.state));
            }
        }
        workgroupBarrier();
        if (bad) { atomicStore(&wrong[mine], 1u); }
        if (live && bypass) { atomicStore(&packs, 1u); }
        workgroupBarrier();
        let taken = live && atomicLoad(&wrong[mine]) == 0u;
        if (taken) {
            for (var q = lane; q < weight_quads(); q += params.lanes) {
                var after = next;
                if (q != lane) { after = moved(one, q, merged(one, q), row_state); }
                store_quad(one.place, q, after.w);
                if (params.optimizer == ADAGRAD) { store_quad(one.place, weight_quads() + q, after.state); }
            }
        }
        if (lane == 0u) {
            if (taken) {
                if (params.optimizer == ROW_WISE) { store_quad(one.place, weight_quads(), quad_of(row_state)); }
                if (!bypass) { ways[way_at(one.place, FLAGS)] |= DIRTY; }
            } else if (live) {
                count_row(one.row, SKIPPED_ROWS);
            }
        }
        if (local == 0u) { packing = atomicLoad(&packs); }
        if (workgroupUniformLoad(&packing) != 0u) {
            storageBarrier(); // the other lanes must see the new row before they pack it
            let packed = pack_row(taken && bypass, one.place, one.row, one.place - params.slots, local);
            if (packed && lane == 0u) { count_row(one.row, BYPASS_WRITES); }
        }
    }
    row_counts_end(local);
}
