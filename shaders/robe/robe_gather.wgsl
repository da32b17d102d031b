// Reads the rows of each bag from a shared array of FP32, in bag order, and pools them.
//
// Bytes moved per access: 4 (hash), 4 dim (row), 4 (weight); per output row: 8 (offsets), 4 dim.
#include "shared/common.wgsl"
#include "shared/robe.wgsl"

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<uniform> robe: Robe;
@group(0) @binding(2) var<storage, read> offsets: array<u32>;
@group(0) @binding(3) var<storage, read> hashes: array<u32>;
@group(0) @binding(4) var<storage, read> weights: array<f32>; // one for each index, if params.weighted
@group(0) @binding(5) var<storage, read> window: array<u32>;  // the first window of the shared array
@group(0) @binding(6) var<storage, read_write> access: array<vec2<u32>>; // .y: the coefficient for backward, written where it is not 1
@group(0) @binding(7) var<storage, read_write> outputs: array<f32>;

#include "shared/robe_window.wgsl"

fn weight_of(w: u32) -> f32 {
    return bitcast<f32>(array_word(w));
}

#include "shared/robe_pool.wgsl"
