// Packs an FP32 row into its record (SPEC 2). Needs `records`, `tables`, `params`, shared/piece.wgsl, shared/tables.wgsl,
// shared/half.wgsl, shared/rng.wgsl, shared/quad{width}.wgsl, shared/row_{rank}.wgsl, shared/row_counts.wgsl, shared/slots.wgsl.

const SIGNS: u32 = 5u;         // STATE_SIGNED of both states
var<private> pack_bases: u32; // the bases of a row's codes: of its states without a sign, and above it of those with one; 0 if there are none
var<workgroup> pack_places: array<u32, 64>; // staged: the position of each row's record

#include "shared/codec.wgsl"
#include "shared/record_items{item}.wgsl"
#include "formats/{format}.wgsl"

// The range of a row's values, as the integers of `ordered`; `bad` is not 0 if a value is not finite.
struct Extent {
    low: u32,
    high: u32,
    bad: u32,
}

// Float e of the row, weights first, then state. Weights need no padding, so the state's Quads follow directly.
fn element_of(place: u32, e: u32) -> f32 {
    return part_of(load_quad(place, e / WIDTH), e % WIDTH);
}

// Half h of the record, counted behind its FP32 words: FP16 state, or payload.
fn packed_half(place: u32, row: u32, h: u32, scale: f32, bias: f32) -> u32 {
    if (h < params.payload_half) {
        let e = h - 2u * (params.state_word + params.scalars);
        if (params.state_bits == 8u) { return packed_code(place, row, 2u * e - 4u) | (packed_code(place, row, 2u * e - 3u) << 8u); }
        return state_half_of(element_of(place, params.dim + e), row, e, facts_at(params.facts, e, params.dim));
    }
    if (params.bits < 16u) { return half_of_codes(place, row, h, scale, bias); }
    let first = h - params.payload_half;
    if (first >= params.dim) { return 0u; }
    return half_of(element_of(place, first), row, first, 0u);
}

// The code of state e, behind the word of scales; 0 for the byte behind an odd number of codes.
fn packed_code(place: u32, row: u32, e: u32) -> u32 {
    if (e >= params.state - params.scalars) { return 0u; }
    let bits = bitcast<u32>(element_of(place, params.dim + e));
    let random = noise(pack_step, row, e, 1u);
    let is_signed = (facts_at(params.facts, e, params.dim) & STATE_SIGNED) != 0u;
    if (is_signed) { return signed_code(bits, pack_bases >> 16u, random); }
    return unsigned_code(bits, pack_bases & 0xffffu, random);
}

// Word w of the record, one of those before the first half: of a head, or FP32 state.
fn float_word(place: u32, w: u32, scale: f32, bias: f32) -> u32 {
    if (w < params.state_word) { return head_word(place, w, scale, bias); }
    // The scalars come first in a record and last in a row.
    let e = w - params.state_word;
    let begin = select(params.dim, params.dim + params.state, e < params.scalars);
    return bitcast<u32>(element_of(place, begin + e - params.scalars));
}

// Word w of the record.
fn packed_word(place: u32, row: u32, w: u32, scale: f32, bias: f32) -> u32 {
    if (params.state_bits == 8u && w == params.state_word + params.scalars) { return pack_bases; }
    if (w < params.state_word + params.scalars || (params.state_bits == 32u && w < params.state_word + params.state)) {
        return float_word(place, w, scale, bias);
    }
    if (params.bits == 32u) { return bitcast<u32>(element_of(place, w - params.payload_half / 2u)); }
    if (WIDTH == 4u && params.bits < 16u && 2u * w >= params.payload_half) { return word_of_codes(place, row, w, scale, bias); }
    return packed_half(place, row, 2u * w, scale, bias) | (packed_half(place, row, 2u * w + 1u, scale, bias) << 16u);
}

// The Quad behind the states of elements.
fn scalars_at() -> u32 {
    return weight_quads() + (params.state - params.scalars) / WIDTH;
}

// Packs the FP32 row at `place` into the record of linear row `row`, which lies in this piece or leaves with swap `j`.
// Each `params.lanes` invocations pack one row. The whole workgroup must call this; invocations without a row pass
// `live` false. Returns false and leaves the record as it was if a value is not finite or the row's range overflows;
// the row is then counted.
fn pack_row(live: bool, place: u32, row: u32, j: u32, lane: Lane, asked: Asked) -> bool {
    let local = lane_index(lane);
    let part = local & (params.lanes - 1u);
    var own = Extent(NONE, 0u, 0u);
    if (live) {
        for (var q = part; q < weight_quads(); q += params.lanes) {
            let v = load_quad(place, q);
            if (!is_finite(bits_of(v))) { own.bad = 1u; }
            own.low = min(own.low, lowest(v));
            own.high = max(own.high, highest(v));
        }
        for (var q = weight_quads() + part; q < params.row_quads; q += params.lanes) {
            if (!is_finite(bits_of(load_quad(place, q)))) { own.bad = 1u; }
        }
    }
    let all = extent_of_row(own, lane, asked.lanes);
    var scale = 0.0;
    var bias = 0u; // the bits of the bias
    var refused = all.bad != 0u;
    if (params.bits <= 8u) {
        bias = bias_of(all.low);
        let span = bitcast<f32>(unordered(all.high)) - bitcast<f32>(bias);
        refused = refused || cannot_pack(all, span);
        scale = scale_of(span);
    }
    if (asked.state_bits == 8u) {
        // As a range: the complement of the largest signed magnitude, and the largest without sign.
        own = Extent(NONE, 0u, 0u);
        if (live) {
            for (var q = weight_quads() + part; q < scalars_at(); q += params.lanes) {
                let largest = largest_of(load_quad(place, q));
                if ((facts_at(params.facts, q - weight_quads(), weight_quads()) & STATE_SIGNED) != 0u) {
                    own.low = min(own.low, ~largest);
                } else {
                    own.high = max(own.high, largest);
                }
            }
        }
        workgroupBarrier(); // all have read the range
        let most = extent_of_row(own, lane, asked.lanes);
        pack_bases = 0u;
        if ((params.facts & SIGNS) != SIGNS) { pack_bases = code_base(most.high, false); }
        if ((params.facts & SIGNS) != 0u) { pack_bases |= code_base(~most.low, true) << 16u; }
    }
    if (live && refused && part == 0u) { count_row(row, SKIPPED_ROWS); }
    let taken = live && !refused;
    var record = own_record(row);
    if (piece.swaps != 0u) {
        if (taken && part == 0u) { pack_places[local / params.lanes] = departure(row, j); }
        workgroupBarrier();
        if (taken) { record = departed(piece.leaving, pack_places[local / params.lanes]); }
    }
    if (taken) {
        noise_begins();
        write_record(record, place, row, part, scale, bitcast<f32>(bias));
    }
    return taken;
}
