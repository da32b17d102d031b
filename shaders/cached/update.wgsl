// Runs the optimiser (SPEC 3, Backward): sums the gradients of each distinct row and updates the row once, in FP32, in
// its slot or in scratch, where forward has left the bypassed rows. A bypassed row is packed into its record at once.
// A dispatch binds as many pieces of the table as the device allows. If that is not all, a bypassed row belongs to the
// dispatch with its record, a resident row to the first, and a workgroup first lists the rows of a block that belong to
// its dispatch. A row whose gradient or new value is not finite stays as it is and is counted.
//
// Bytes moved per row: 16, 8 + 4 dim for each access, 4 (dim + state) in and out; per resident row: 8 (flags); per
// bypassed row: the stride out; per workgroup: 4 for each of up to 64 tables.
#include "shared/common.wgsl"
#include "shared/meta.wgsl"
#include "shared/quad{width}.wgsl"
#include "shared/piece.wgsl"
#include "shared/target.wgsl"
#include "shared/half.wgsl"
#include "shared/gradient{width}.wgsl"
#include "shared/rate.wgsl"

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<uniform> piece: Piece;
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
#include "shared/row_{rank}.wgsl"
#include "shared/piece_list.wgsl"
#include "shared/rng.wgsl"
#include "shared/slots.wgsl"
#include "shared/store.wgsl"
#include "shared/pack.wgsl"
#include "shared/merge.wgsl"
#include "shared/sum.wgsl"
#include "shared/correction.wgsl"
#include "shared/rule.wgsl"

const MOST_COUNTED: f32 = 16777216.0; // 2^24, where a row's count stays

var<workgroup> length: u32;
var<workgroup> seen: array<atomic<u32>, 64>; // for each row: WRONG, CHANGED
var<workgroup> packs: atomic<u32>;            // not 0 if any row is to be packed
var<workgroup> packing: u32;

const WRONG: u32 = 1u;   // a value is not finite
const CHANGED: u32 = 2u; // a bit of the row has changed

// A Quad after the step.
struct Moved {
    e: Element,
    same: bool, // every bit is as before
}

// What the elements of a row have in common.
struct Common {
    n: Numbers,
    factor: f32, // brings the gradient's norm within its bound
    count: f32,  // updates of the row, with this one
}

var<private> step_numbers: Numbers; // of the group's step number

fn merged(one: Target, q: u32) -> Quad {
    if (one.end - one.start > MERGE_CHUNK) { return scratch[partial_at(2u * (one.start / MERGE_CHUNK) + 1u, q)]; }
    return sum_of(one.start, one.end, q);
}

// A summed gradient within its bounds, which are those of a finite one. `factor` is 1 until the norm is known.
fn bounded(grad: Quad, factor: f32) -> Quad {
    var g = grad;
    if (params.clip_value > 0.0) { g = clamp(g, Quad(-params.clip_value), Quad(params.clip_value)); }
    if (params.clip_norm > 0.0) { g = g * factor; }
    return g;
}

// Scalar k of the row's state.
fn scalar_of(place: u32, k: u32) -> f32 {
    return part_of(load_quad(place, scalars_at() + k / WIDTH), k % WIDTH);
}

// Whether Quad q of a row is not the first of the lane `part`. Where a row has a lane for each Quad, a compiler knows that none is.
fn is_beyond(q: u32, part: u32) -> bool {
    return weight_quads() > params.lanes && q != part;
}

fn equal(before: Quad, after: Quad) -> bool {
    return all(bits_of(before) == bits_of(after));
}

// A Quad after the step; `grad` is the summed gradient.
fn moved(one: Target, q: u32, grad: Quad, row: Common) -> Moved {
    let w = load_quad(one.place, q);
    var e = Element(bounded(grad, row.factor) + params.weight_decay * w, w, Quad(0.0), Quad(0.0));
    if (params.each > 0u) { e.first = load_quad(one.place, weight_quads() + q); }
    if (params.each > 1u) { e.second = load_quad(one.place, 2u * weight_quads() + q); }
    let after = stepped(e, row.n);
    return Moved(after, equal(w, after.w) && equal(e.first, after.first) && equal(e.second, after.second));
}

fn belongs(one: Target) -> bool {
    return one.row != NONE && select(piece.first_row == 0u, in_piece(one.row), one.place >= params.slots);
}

fn concerns(i: u32) -> bool {
    return belongs(targets[i + 1u]);
}

// Updates distinct row i; NONE for none. The whole workgroup must call this.
fn handle(i: u32, lane: Lane, asked: Asked) {
    let local = lane_index(lane);
    let part = local & (params.lanes - 1u);
    let mine = local / params.lanes;
    var one = Target(NONE, NONE, 0u, 0u);
    if (i != NONE) { one = targets[i + 1u]; }
    let bypass = one.place >= params.slots;
    let live = belongs(one);
    if (part == 0u) { atomicStore(&seen[mine], 0u); }
    if (local == 0u) { atomicStore(&packs, 0u); }

    // Each lane sums one Quad of the row once and keeps the sum. Rows of more Quads are summed again in each pass,
    // from L1.
    var held = Quad(0.0);
    if (live && part < weight_quads()) { held = merged(one, part); }

    var bad = false;
    var row = Common(step_numbers, 1.0, 0.0);
    if (asked.clip_norm > 0.0) {
        var sum = 0.0;
        if (live) {
            for (var q = part; q < weight_quads(); q += params.lanes) {
                var grad = held;
                if (is_beyond(q, part)) { grad = merged(one, q); }
                sum = add_squares(sum, bounded(grad, 1.0));
            }
        }
        let mean = mean_of_row(sum, lane, asked.lanes);
        bad = !is_finite(bits_of(quad_of(mean)));
        let norm = sqrt(mean * f32(params.dim));
        if (norm > params.clip_norm) { row.factor = params.clip_norm / norm; }
        workgroupBarrier(); // the next mean takes the same memory
    }
    if (params.own_count == 1u && live) {
        row.count = min(scalar_of(one.place, params.scalars - 1u) + 1.0, MOST_COUNTED);
        row.n = numbers_at(u32(row.count));
    }

    // The row-wise rules need the mean of squares first. The order is fixed: each lane adds its Quads in ascending
    // order, then a tree adds the lanes.
    if (asked.scalars > asked.own_count) {
        var sum = 0.0;
        if (live) {
            for (var q = part; q < weight_quads(); q += params.lanes) {
                var grad = held;
                if (is_beyond(q, part)) { grad = merged(one, q); }
                sum = add_squares(sum, bounded(grad, row.factor) + params.weight_decay * load_quad(one.place, q));
            }
        }
        let mean = mean_of_row(sum, lane, asked.lanes);
        if (live) { row.n.own = row_stepped(scalar_of(one.place, 0u), mean, row.n); }
    }

    // Two passes over the row: the first checks that every new value is finite, the second stores them.
    bad = bad || !is_finite(bits_of(quad_of(row.n.own)));
    var changed = false;
    var next: Moved;
    if (live) {
        for (var k = part; k < params.scalars; k += params.lanes) {
            let counts = params.own_count == 1u && k == params.scalars - 1u;
            changed = changed || bitcast<u32>(scalar_of(one.place, k)) != bitcast<u32>(select(row.n.own, row.count, counts));
        }
        for (var q = part; q < weight_quads(); q += params.lanes) {
            var grad = held;
            if (is_beyond(q, part)) { grad = merged(one, q); }
            let after = moved(one, q, grad, row);
            if (!is_beyond(q, part)) { next = after; }
            changed = changed || !after.same;
            // A bound makes an infinite gradient finite, and perhaps NaN too.
            bad = bad || !is_finite(bits_of(grad)) || !is_finite(bits_of(after.e.g)) || !is_finite(bits_of(after.e.w))
                || !is_finite(bits_of(after.e.first)) || !is_finite(bits_of(after.e.second));
        }
    }
    workgroupBarrier();
    // Every lane has read the row's own numbers; one of them replaces them.
    if (asked.scalars > 0u) { storageBarrier(); }
    if (bad || changed) { atomicOr(&seen[mine], select(0u, WRONG, bad) | select(0u, CHANGED, changed)); }
    if (live && bypass && changed) { atomicStore(&packs, 1u); }
    workgroupBarrier();
    let taken = live && (atomicLoad(&seen[mine]) & WRONG) == 0u;
    // A record whose row has not changed keeps its bytes, and counts as written.
    let repacks = taken && bypass && (atomicLoad(&seen[mine]) & CHANGED) != 0u;
    if (taken) {
        for (var q = part; q < weight_quads(); q += params.lanes) {
            var after = next;
            if (is_beyond(q, part)) { after = moved(one, q, merged(one, q), row); }
            store_quad(one.place, q, after.e.w);
            if (params.each > 0u) { store_quad(one.place, weight_quads() + q, after.e.first); }
            if (params.each > 1u) { store_quad(one.place, 2u * weight_quads() + q, after.e.second); }
        }
    }
    if (part == 0u) {
        if (taken) {
            let own = select(row.count, row.n.own, params.scalars > params.own_count);
            for (var k = 0u; k < params.scalars; k += WIDTH) {
                let count = select(0.0, row.count, params.scalars == 2u);
                store_quad(one.place, scalars_at() + k / WIDTH, quad_of_two(own, count, k));
            }
            if (!bypass) { ways[way_at(one.place, FLAGS)] |= DIRTY; }
            if (bypass && !repacks) { count_row(one.row, BYPASS_WRITES); }
        } else if (live) {
            count_row(one.row, SKIPPED_ROWS);
        }
    }
    if (local == 0u) { packing = atomicLoad(&packs); }
    if (workgroupUniformLoad(&packing) != 0u) {
        storageBarrier(); // the other lanes must see the new row before they pack it
        let packed = pack_row(repacks, one.place, one.row, one.place - params.slots, lane, asked);
        if (packed && part == 0u) { count_row(one.row, BYPASS_WRITES); }
    }
}

fn run(group: vec3<u32>, groups: vec3<u32>, lane: Lane) {
    let me = lane_index(lane);
    if (me == 0u) { length = targets[0].row; }
    let n = workgroupUniformLoad(&length);
    pack_step = targets[0].start;
    unscale = bitcast<f32>(targets[0].end);
    step_numbers = numbers_at(pack_step);
    each_entry(0u, n, group, groups, lane);
}
