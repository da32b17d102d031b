// Lists rows for another rank (SPEC 11): of each row its record, or its weights in FP32 where its slot is dirty, because they are newer than the
// record. A dispatch reads the records of the bound pieces; of other rows it leaves the record's words as they are. params.lanes invocations share a
// row. An entry of the list has `entry_words()` words: 1 if it is a record, else 0; then the words.
//
// Bytes moved per row: 8, the record (stride) or the weights (4 dim), in and out, 4; per row in the cache 4 (flags).
#include "shared/common.wgsl"
#include "shared/meta.wgsl"
#include "shared/quad{width}.wgsl"
#include "shared/piece.wgsl"

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<uniform> piece: Piece;
@group(0) @binding(2) var<storage, read> keys: array<u32>;   // linear rows
@group(0) @binding(3) var<storage, read> places: array<u32>; // slots; of a row that is in none, slots or more
@group(0) @binding(4) var<storage, read> records: array<Item>;
@group(0) @binding(5) var<storage, read> cache: array<Quad>;
@group(0) @binding(6) var<storage, read> scratch: array<Quad>;
@group(0) @binding(7) var<storage, read> ways: array<u32>;
@group(0) @binding(8) var<storage, read_write> sent: array<u32>;

#include "shared/slots.wgsl"

alias Item = u32;

fn word_of(record: Record, w: u32) -> u32 {
    let at = record.word + w;
    #piece record.piece: return records$[at];
}

fn entry_words() -> u32 {
    return 1u + max(params.record_words, params.dim);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
    let lane = local & (params.lanes - 1u);
    let i = flat_group(group, groups) * (256u / params.lanes) + local / params.lanes;
    if (i >= params.indices) { return; }
    let place = places[i];
    let entry = i * entry_words();
    var dirty = false;
    if (place < params.slots) { dirty = (ways[way_at(place, FLAGS)] & DIRTY) != 0u; }
    if (lane == 0u) { sent[entry] = select(1u, 0u, dirty); }
    if (dirty) {
        for (var q = lane; q < weight_quads(); q += params.lanes) {
            let weights = load_quad(place, q);
            for (var k = 0u; k < WIDTH; k++) { sent[entry + 1u + q * WIDTH + k] = bitcast<u32>(part_of(weights, k)); }
        }
    } else if (in_piece(keys[i])) {
        let record = own_record(keys[i]);
        for (var w = lane; w < params.record_words; w += params.lanes) { sent[entry + 1u + w] = word_of(record, w); }
    }
}
