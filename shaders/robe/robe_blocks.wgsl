// robe_update for a packed array: the covered weights move in FP32, then their *units* are packed again. A unit is a
// word of two halves, or a block: of codes with its scale and bias, or of halves whose states are INT8. One invocation
// for each weight; the invocations of a unit are its only writer. The update goes over all weights (Dense, or if chunks cover most of the array), or start by
// start: start d updates the units that its chunks may reach and the chunks of the previous start may not. If the range
// of a block overflows, none of its weights move, and each covered weight is counted. A unit of which no bit changes keeps
// its words. Dispatched once for each window
// of the array.
//
// Bytes moved per covered weight: 8 + 4 for each chunk; bits / 8 in and out (for all weights of the block); 4, 2 or
// 1 in and out per state.
#include "shared/robe_sum.wgsl"
#include "shared/rate.wgsl"

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<uniform> robe: Robe;
@group(0) @binding(2) var<storage, read> targets: array<Target>;
@group(0) @binding(3) var<storage, read> accesses: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read> grad_outputs: array<Words>;
@group(0) @binding(5) var<storage, read> scratch: array<f32>; // the partial rows of robe_merge
@group(0) @binding(6) var<storage, read_write> memory: array<u32>; // one window; `states` is the same window
@group(0) @binding(7) var<storage, read_write> states: array<u32>; // of 32, 16 or 8 bits
@group(0) @binding(8) var<storage, read_write> tables: array<atomic<u32>>;
@group(0) @binding(9) var<uniform> rate: Rate;

fn array_word(at: u32) -> u32 {
    return memory[at];
}

#include "shared/tables.wgsl"
#include "shared/robe_weight_sums.wgsl"
#include "shared/robe_array.wgsl"
#include "shared/rng.wgsl"
#include "shared/codec.wgsl"
#include "shared/correction.wgsl"
#include "shared/robe_move.wgsl"

var<workgroup> lows: array<u32, 256>;   // as the integers of `ordered`
var<workgroup> highs: array<u32, 256>;
var<workgroup> moves: array<u32, 256>;  // 1: the weight or a state changes
var<workgroup> codes: array<u32, 256>;  // the codes of weights
var<workgroup> kept: array<u32, 256>;   // the states of a weight: the first's code or half below the second's
var<workgroup> tops: array<vec2<u32>, 256>; // the bits of the largest states

// Whether state k of a weight may be negative; of one state alone, both.
fn is_signed(k: u32) -> bool {
    return ((params.facts >> (2u * k)) & STATE_SIGNED) != 0u;
}

// The bases of the codes of both states, from the bits of the block's largest ones: states of one sign share a base.
fn bases_of(top: vec2<u32>) -> vec2<u32> {
    let most = select(top, vec2<u32>(max(top.x, top.y)), is_signed(0u) == is_signed(1u));
    return vec2<u32>(code_base(most.x, is_signed(0u)), code_base(most.y, is_signed(1u)));
}

// The packed states of the weight at `at` of the window, the first's below the second's; 0 for states that are not packed.
fn stored_states(at: u32) -> u32 {
    if (robe.state_bits == 0u || robe.state_bits == 32u) { return 0u; }
    if (robe.state_bits == 8u) {
        let e = at & (robe.block - 1u);
        let word = states_at(at) + 1u + e / 4u;
        let first = (states[word] >> (8u * (e & 3u))) & 0xffu;
        if (params.each == 1u) { return first; }
        return first | (((states[word + robe.block / 4u] >> (8u * (e & 3u))) & 0xffu) << 8u);
    }
    if (params.each == 2u) { return states[at]; }
    return (states[at / 2u] >> (16u * (at & 1u))) & 0xffffu;
}

// The first word of the INT8 states of the block of the weight at `at` of the window: the bases of its codes.
fn states_at(at: u32) -> u32 {
    return (at >> firstTrailingBit(robe.block)) * robe.state_words;
}

fn states_of(stored: u32, at: u32) -> vec2<f32> {
    if (robe.state_bits == 0u) { return vec2<f32>(); }
    if (robe.state_bits == 32u) {
        let word = at * params.each;
        return vec2<f32>(bitcast<f32>(states[word]), bitcast<f32>(select(0u, states[word + params.each - 1u], params.each == 2u)));
    }
    if (robe.state_bits == 8u) {
        let bases = states[states_at(at)];
        let signs = vec2<bool>(is_signed(0u), is_signed(1u));
        let base = select(vec2<u32>(bases & 0xffffu), vec2<u32>(bases >> 16u), signs);
        let first = value_of_code(stored & 0xffu, base.x, signs.x);
        return bitcast<vec2<f32>>(vec2<u32>(first, value_of_code(stored >> 8u, base.y, signs.y)));
    }
    return vec2<f32>(f32_from_state(stored & 0xffffu, params.facts), f32_from_state(stored >> 16u, params.facts >> 2u));
}

// A state of a weight, packed; `facts` begins with its own.
fn packed_state(x: f32, row: u32, element: u32, base: u32, facts: u32) -> u32 {
    if (robe.state_bits == 16u) { return state_half_of(x, row, element, facts); }
    let random = noise(pack_step, row, element, 1u);
    if ((facts & STATE_SIGNED) != 0u) { return signed_code(bitcast<u32>(x), base, random); }
    return unsigned_code(bitcast<u32>(x), base, random);
}

// The states of a weight, packed, the first's below the second's.
fn packed_states(now: vec2<f32>, row: u32, element: u32, bases: vec2<u32>) -> u32 {
    let first = packed_state(now.x, row, element, bases.x, params.facts);
    if (params.each == 1u) { return first; }
    return first | (packed_state(now.y, row, robe.block + element, bases.y, params.facts >> 2u) << robe.state_bits);
}

// Moves weight w by its gradient sum and packs it with the other weights of its unit. The whole workgroup must call
// this; an invocation without a weight passes `live` false.
fn move_unit(live: bool, w: u32, sum: Sum, unit: u32, local: u32) {
    let lane = local & (unit - 1u);
    let head = local - lane;
    let at = w - robe.first;
    let integers = params.bits <= 8u;
    let coded = robe.state_bits == 8u;
    let due_any = live && sum.chunks > 0u;
    var value = 0.0;
    var stored = 0u; // the old states
    var now = vec2<f32>(); // the states
    var moved = false;
    var changed = false;
    if (live) {
        value = weight_of(at);
        stored = stored_states(at);
        now = states_of(stored, at);
    }
    if (due_any) {
        let next = moved_by(sum.value, value, now.x, now.y);
        moved = next.finite;
        if (moved) {
            let after = vec2<f32>(next.e.first, next.e.second);
            changed = bits_of(value) != bits_of(next.e.w) || any(bitcast<vec2<u32>>(now) != bitcast<vec2<u32>>(after));
            value = next.e.w;
            now = after;
        }
    }
    tops[local] = bitcast<vec2<u32>>(now) & vec2<u32>(0x7fffffffu);
    moves[local] = select(0u, 1u, changed);
    lows[local] = select(NONE, lowest(value), live);
    highs[local] = select(0u, highest(value), live);
    for (var reach = unit / 2u; reach > 0u; reach /= 2u) {
        workgroupBarrier();
        if (lane < reach) {
            moves[local] |= moves[local + reach];
            lows[local] = min(lows[local], lows[local + reach]);
            highs[local] = max(highs[local], highs[local + reach]);
            if (coded) { tops[local] = max(tops[local], tops[local + reach]); }
        }
    }
    workgroupBarrier();
    let differs = moves[head] != 0u;
    let bases = bases_of(tops[head]);
    var scale = 0.0;
    var bias = 0u; // the bits of the bias
    var refused = false;
    if (integers && differs) {
        bias = bias_of(lows[head]);
        let span = bitcast<f32>(unordered(highs[head])) - bitcast<f32>(bias);
        refused = !is_finite(bits_of(span));
        scale = scale_of(span);
    }
    if (due_any && (refused || !moved)) { count(0u, SKIPPED_ROWS, 1u); }
    let packs = differs && !refused;
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
        if (coded || (moved && robe.state_bits == 16u)) { stored = packed_states(now, row, element, bases); }
    }
    codes[local] = code;
    kept[local] = stored;
    workgroupBarrier();
    storageBarrier(); // all of the unit's words have been read before they are written
    if (packs) {
        // Codes behind the array's end are 0.
        let first = (at - lane); // the first invocation of the unit
        if (coded) {
            let words = states_at(first);
            if (lane == 0u) {
                // Without a sign, a base takes the lower half.
                let placed = select(bases, bases << vec2<u32>(16u), vec2<bool>(is_signed(0u), is_signed(1u)));
                states[words] = placed.x | placed.y;
            }
            if (lane < unit / 4u) {
                for (var k = 0u; k < params.each; k++) {
                    var word = 0u;
                    for (var j = 0u; j < 4u; j++) {
                        word |= ((kept[head + 4u * lane + j] >> (8u * k)) & 0xffu) << (8u * j);
                    }
                    states[words + 1u + k * robe.block / 4u + lane] = word;
                }
            }
        } else if (robe.state_bits == 32u) {
            if (moved) {
                states[at * params.each] = bitcast<u32>(now.x);
                if (params.each == 2u) { states[2u * at + 1u] = bitcast<u32>(now.y); }
            }
        } else if (robe.state_bits == 16u && params.each == 2u) {
            if (moved) { states[at] = stored; }
        } else if (robe.state_bits == 16u && lane < unit / 2u) {
            states[first / 2u + lane] = kept[head + 2u * lane] | (kept[head + 2u * lane + 1u] << 16u);
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
    at_step(pack_step);
    unscale = bitcast<f32>(targets[0].end);
    let reach = i32(robe.reach);
    let end = min(robe.first + robe.window, robe.weights);
    let unit = select(robe.block, 2u, params.bits == 16u && robe.state_bits != 8u);
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
                if (live) { sum = sum_at(w, first_beyond(i32(w) - reach, d, high), high); }
            }
            move_unit(live, w, sum, unit, local);
        }
    }
}
