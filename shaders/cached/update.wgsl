// Runs the optimiser (SPEC 3, Backward): sums the gradients of each distinct row and updates the row once, in FP32, in
// its slot or in scratch, where forward has left the bypassed rows. A bypassed row is packed into its record at once.
// A dispatch binds as many shards of the table as the device allows. If that is not all, a bypassed row belongs to the
// dispatch with its record, a resident row to the first, and a workgroup first lists the rows of a block that belong to
// its dispatch. A row whose gradient or new value is not finite stays as it is and is counted.
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
@group(0) @binding(5) var<storage, read_write> records: array<Item>;
@group(0) @binding(6) var<storage, read_write> cache: array<Quad>;
@group(0) @binding(7) var<storage, read_write> scratch: array<Quad>; // bypassed rows, then the partial rows of merge
@group(0) @binding(8) var<storage, read_write> ways: array<u32>;
@group(0) @binding(9) var<storage, read_write> tables: array<atomic<u32>>;
@group(0) @binding(10) var<uniform> rate: Rate;

#include "shared/tables.wgsl"
#include "shared/row_counts.wgsl"
#include "shared/row.wgsl"
#include "shared/shard_list.wgsl"
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

fn belongs(one: Target) -> bool {
    return one.row != NONE && select(shard.first_row == 0u, in_shard(one.row), one.place >= params.slots);
}

fn concerns(i: u32) -> bool {
    return belongs(targets[i + 1u]);
}

// Updates distinct row i; NONE for none. The whole workgroup must call this.
fn handle(i: u32, lane: Lane) {
    let local = lane_index(lane);
    let part = local & (params.lanes - 1u);
    let mine = local / params.lanes;
    var one = Target(NONE, NONE, 0u, 0u);
    if (i != NONE) { one = targets[i + 1u]; }
    let bypass = one.place >= params.slots;
    let live = belongs(one);
    if (part == 0u) { atomicStore(&wrong[mine], 0u); }
    if (local == 0u) { atomicStore(&packs, 0u); }

    // Each lane sums one Quad of the row once and keeps the sum. Rows of more Quads are summed again in each pass,
    // from L1.
    var held = Quad();
    if (live && part < weight_quads()) { held = merged(one, part); }

    // Row-wise AdaGrad needs the mean of squares first. The order is fixed: each lane adds its Quads in ascending
    // order, then a tree adds the lanes.
    var row_state = 0.0;
    if (params.optimizer == ROW_WISE) {
        var sum = 0.0;
        if (live) {
            for (var q = part; q < weight_quads(); q += params.lanes) {
                var grad = held;
                if (q != part) { grad = merged(one, q); }
                sum = add_squares(sum, grad + params.weight_decay * load_quad(one.place, q));
            }
        }
        // Only the invocation that writes the row's state reads it.
        var state = 0.0;
        if (live && part == 0u) { state = part_of(load_quad(one.place, weight_quads()), 0u); }
        let next_state = state_of_row(state, sum, lane);
        if (live) { row_state = next_state; }
    }

    // Two passes over the row: the first checks that every new value is finite, the second stores them.
    var bad = !is_finite(bits_of(quad_of(row_state)));
    var next: Moved;
    if (live) {
        for (var q = part; q < weight_quads(); q += params.lanes) {
            var grad = held;
            if (q != part) { grad = merged(one, q); }
            let after = moved(one, q, grad, row_state);
            if (q == part) { next = after; }
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
        for (var q = part; q < weight_quads(); q += params.lanes) {
            var after = next;
            if (q != part) { after = moved(one, q, merged(one, q), row_state); }
            store_quad(one.place, q, after.w);
            if (params.optimizer == ADAGRAD) { store_quad(one.place, weight_quads() + q, after.state); }
        }
    }
    if (part == 0u) {
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
        let packed = pack_row(taken && bypass, one.place, one.row, one.place - params.slots, lane);
        if (packed && part == 0u) { count_row(one.row, BYPASS_WRITES); }
    }
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        lane: Lane) {
    let me = lane_index(lane);
    if (me == 0u) { length = targets[0].row; }
    let n = workgroupUniformLoad(&length);
    pack_step = targets[0].start;
    unscale = bitcast<f32>(targets[0].end);
    each_entry(0u, n, group, groups, lane);
}
