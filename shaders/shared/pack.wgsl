// Packs an FP32 row into its record (SPEC 2). Needs `records`, `tables`, `params`, shared/piece.wgsl, shared/tables.wgsl,
// shared/half.wgsl, shared/rng.wgsl, shared/quad{width}.wgsl, shared/row_{rank}.wgsl, shared/row_counts.wgsl, shared/slots.wgsl.

const SIGNS: u32 = 5u;         // STATE_SIGNED of both states
var<private> pack_bases: u32; // the bases of a row's codes: of its states without a sign, and above it of those with one; 0 if there are none
var<workgroup> pack_places: array<u32, 64>; // staged: the position of each row's record

#include "shared/codec.wgsl"
#include "shared/record_items{item}.wgsl"
#include "formats/{format}.wgsl"

// The range of a row's values, as the integers of `ordered`; `high` is NONE, which no finite value has, if a value is not finite.
struct Extent {
    low: u32,
    high: u32,
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
    var own = Extent(NONE, 0u);
    if (live) {
        var finite = true;
        for (var q = part; q < weight_quads(); q += params.lanes) {
            let v = load_quad(place, q);
            finite = finite & is_finite(bits_of(v));
            if (params.bits <= 8u) {
                own.low = min(own.low, lowest(v));
                own.high = max(own.high, highest(v));
            }
        }
        for (var q = weight_quads() + part; q < params.row_quads; q += params.lanes) {
            finite = finite & is_finite(bits_of(load_quad(place, q)));
        }
        if (!finite) { own.high = NONE; }
    }
    let all = extent_of_row(own, lane, asked.lanes);
    var scale = 0.0;
    var bias = 0u; // the bits of the bias
    var refused = all.high == NONE;
    if (params.bits <= 8u) {
        bias = bias_of(all.low);
        let span = bitcast<f32>(unordered(all.high)) - bitcast<f32>(bias);
        refused = refused || cannot_pack(all, span);
        scale = scale_of(span);
    }
    if (asked.state_bits == 8u) {
        // As a range: the complement of the largest signed magnitude, and the largest without sign.
        own = Extent(NONE, 0u);
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
