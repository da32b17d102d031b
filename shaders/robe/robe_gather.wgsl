// Reads the rows of each bag from a shared array of FP32, in bag order, and pools them.
//
// Bytes moved per access: 4 (hash), 4 dim (row), 4 (weight); per output row: 8 (offsets), 4 dim.
#include "shared/robe_pool.wgsl"

fn weight_of(w: u32) -> f32 {
    return bitcast<f32>(array_word(w));
}

