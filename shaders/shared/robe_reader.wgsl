// As shared/reader.wgsl, for a shared array (ROBE): the same functions. The lines that begin with `#plain` are for FP32,
// those with `#packed` for the other precisions.
#include "shared/common.wgsl"
#include "shared/quad1.wgsl"
#include "shared/half.wgsl"
#include "shared/robe.wgsl"
#include "shared/robe_window.wgsl"
#include "shared/robe_array.wgsl"

// x: the linear row, NONE beyond the tables; y: its hash or, addressed directly, its first weight.
alias Place = vec2<u32>;

fn find(row: u32) -> Place {
    if (row >= params.total_rows) { return Place(NONE, NONE); }
    return Place(row, row_place(row, robe.stride, robe.rows));
}

fn contains(row: u32) -> bool {
    return row < params.total_rows;
}

// Weight i of a row from its place, 0 behind the last and without a place.
fn element(place: Place, i: u32) -> f32 {
    if (place.x == NONE || i >= robe.dim) { return 0.0; }
    let weight = start_of(place.y, chunk_hash(i / robe.chunk), robe.starts) + i % robe.chunk;
    #plain return bitcast<f32>(array_word(weight));
    #packed return weight_of(weight);
}

#include "shared/reader_values.wgsl"
