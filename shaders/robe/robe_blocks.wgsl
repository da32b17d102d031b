// robe_update for a packed array: the covered weights move in FP32, then their *units* are packed again. A unit is a
// word of two halves, or a block of codes with its scale and bias. One invocation for each weight; the invocations of a
// unit are its only writer. The update goes over all weights (Dense, or if chunks cover most of the array), or start by
// start: start d updates the units that its chunks may reach and the chunks of the previous start may not. If the range
// of a block overflows, none of its weights move, and each covered weight is counted. Dispatched once for each window
// of the array.
//
// Bytes moved per covered weight: 8 + 4 for each chunk; bits / 8 in and out (for all weights of the block); 2 in and
// out per state.
#include "shared/common.wgsl"
#include "shared/quad1.wgsl"
#include "shared/target.wgsl"
#include "shared/half.wgsl"
#include "shared/gradient1.wgsl"
#include "shared/robe.wgsl"
#include "shared/rate.wgsl"

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<uniform> robe: Robe;
@group(0) @binding(2) var<storage, read> targets: array<Target>;
@group(0) @binding(3) var<storage, read> accesses: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read> grad_outputs: array<Words>;
@group(0) @binding(5) var<storage, read> scratch: array<f32>; // the partial rows of robe_merge
@group(0) @binding(6) var<storage, read_write> memory: array<u32>; // one window; `states` is the same window
@group(0) @binding(7) var<storage, read_write> states: array<u32>; // FP16
@group(0) @binding(8) var<storage, read_write> tables: array<atomic<u32>>;
@group(0) @binding(9) var<uniform> rate: Rate;

fn weight_quads() -> u32 {
    return params.dim;
}

fn array_word(at: u32) -> u32 {
    return memory[at];
}

#include "shared/tables.wgsl"
#include "shared/merge.wgsl"
#include "shared/robe_reach.wgsl"
#include "shared/robe_sum.wgsl"
#include "shared/robe_due.wgsl"
#include "shared/robe_array.wgsl"
#include "shared/rng.wgsl"
#include "shared/codec.wgsl"

var<workgroup> lows: array<u32, 256>;   // as the integers of `ordered`
var<workgroup> highs: array<u32, 256>;
var<workgroup> moves: array<u32, 256>;  // 1: the weight moves
var<workgroup> codes: array<u32, 256>;  // the codes of weights
var<workgroup> halves: array<u32, 256>; // the halves of states

// Moves weight w by its gradient sum and packs it with the other weights of its unit. The whole workgroup must call
// this; an invocation without a weight passes `live` false.
fn move_unit(live: bool, w: u32, sum: Sum, unit: u32, local: u32) {
    let lane = local & (unit - 1u);
    let head = local - lane;
    let at = w - robe.first;
    let integers = params.bits <= 8u;
    let adagrad = params.optimizer == ADAGRAD;
    let due_any = live && sum.chunks > 0u;
    var value = 0.0;
    var squares = 0.0;
    var kept = 0u; // the old state
    var moved = false;
    if (live) {
        value = weight_of(at);
        if (adagrad) { kept = (states[at / 2u] >> (16u * (at & 1u))) & 0xffffu; }
    }
    if (due_any) {
        let g = sum.value + params.weight_decay * value;
        var by = rate.lr * g;
        if (adagrad) {
            squares = f32_from_half(kept) + g * g;
            by = by / (sqrt(squares) + params.eps);
        }
        let after = value - by;
        moved = is_finite(bits_of(g)) && is_finite(bits_of(after)) && is_finite(bits_of(squares));
        if (moved) { value = after; }
    }
    moves[local] = select(0u, 1u, moved);
    lows[local] = select(NONE, lowest(value), live);
    highs[local] = select(0u, highest(value), live);
    for (var reach = unit / 2u; reach > 0u; reach /= 2u) {
        workgroupBarrier();
        if (lane < reach) {
            moves[local] |= moves[local + reach];
            lows[local] = min(lows[local], lows[local + reach]);
            highs[local] = max(highs[local], highs[local + reach]);
        }
    }
    workgroupBarrier();
    let any = moves[head] != 0u;
    var scale = 0.0;
    var bias = 0u; // the bits of the bias
    var refused = false;
    if (integers && any) {
        bias = bias_of(lows[head]);
        let span = bitcast<f32>(unordered(highs[head])) - bitcast<f32>(bias);
        refused = !is_finite(bits_of(span));
        scale = scale_of(span);
    }
    if (due_any && (refused || !moved)) { count(0u, SKIPPED_ROWS, 1u); }
    let packs = any && !refused;
    let row = w >> firstTrailingBit(robe.block);
    let element = w & (robe.block - 1u);
    var code = 0u;
    if (packs && live) {
        noise_begins();
        if (integers) {
            code = code_of(value, row, element, scale, bitcast<f32>(bias));
        } else if (moved) {
            code = half_of(value, row, element, 0u);
        } else {
            code = (memory[at / 2u] >> (16u * (at & 1u))) & 0xffffu;
        }
        if (moved && adagrad) { kept = half_of(squares, row, element, 1u); }
    }
    codes[local] = code;
    halves[local] = kept;
    workgroupBarrier();
    storageBarrier(); // all of the unit's words have been read before they are written
    if (packs) {
        // Codes behind the array's end are 0.
        let first = (at - lane); // the first invocation of the unit
        if (adagrad && lane < unit / 2u) {
            states[first / 2u + lane] = halves[head + 2u * lane] | (halves[head + 2u * lane + 1u] << 16u);
        }
        var base = first / 2u;
        if (integers) {
            base = (first >> firstTrailingBit(robe.block)) * robe.block_words;
            if (lane < 2u) { memory[base + lane] = select(bitcast<u32>(scale), bias, lane == 1u); }
            base += 2u;
        }
        let per_word = 32u / params.bits;
        if (lane < unit / per_word) {
            var word = 0u;
            for (var k = 0u; k < per_word; k++) { word |= codes[head + lane * per_word + k] << (k * params.bits); }
            memory[base + lane] = word;
        }
    }
    workgroupBarrier(); // before the next unit uses the arrays
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
    if (local == 0u) { length = targets[0].row; }
    let n = workgroupUniformLoad(&length);
    pack_step = targets[0].start;
    unscale = bitcast<f32>(targets[0].end);
    let reach = i32(robe.reach);
    let end = min(robe.first + robe.window, robe.weights);
    let unit = select(robe.block, 2u, params.bits == 16u);
    let block = flat_group(group, groups);
    let blocks = groups.x * groups.y;
    if (goes_over_all(n)) {
        let share = share_of(vec2<u32>(robe.first, end), block, blocks);
        var starts = starts_before(share.x, local, n);
        for (var first = share.x; first < share.y; first += 256u) {
            starts = starts_within(first, starts, local, n);
            if (starts.x < starts.y) {
                let w = first + local;
                var sum = Sum(0.0, 0u);
                if (w < end) { sum = due_within(w, starts); }
                move_unit(w < end, w, sum, unit, local);
            }
        }
    } else {
        // Number of units that a chunk may reach.
        let most = (robe.reach + unit - 2u) / unit + 1u;
        let items = n * most;
        let at_once = 256u / unit;
        for (var item = block * at_once; item < items; item += blocks * at_once) {
            let at = item + local / unit;
            var live = at < items;
            var w = robe.first;
            var sum = Sum(0.0, 0u);
            if (live) {
                let d = at / most;
                let row = targets[d + 1u].row;
                let mine = row / unit + at % most;
                live = mine <= (row + robe.reach - 1u) / unit;
                if (d > 0u) { live = live && (targets[d].row + robe.reach - 1u) / unit < mine; }
                w = mine * unit + (local & (unit - 1u));
                live = live && w >= robe.first && w < end;
                let high = min(n, d + robe.reach + unit);
                if (live) { sum = due(w, first_beyond(i32(w) - reach, d, high), high); }
            }
            move_unit(live, w, sum, unit, local);
        }
    }
}
