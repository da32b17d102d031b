// robe_gather of an array that is kept packed: reads each bag's rows out of halves or blocks of codes, in bag order, and pools them.
// Bytes an access: 4 (hash), dim bits / 8 (row), integers 8 a block of it, 4 (weight); an output row: 8 (offsets), 4 dim.
#include "shared/common.wgsl"
#include "shared/robe.wgsl"
#include "shared/half.wgsl"

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<uniform> robe: Robe;
@group(0) @binding(2) var<storage, read> offsets: array<u32>;
@group(0) @binding(3) var<storage, read> hashes: array<u32>;
@group(0) @binding(4) var<storage, read> weights: array<f32>; // one an index, if params.weighted
@group(0) @binding(5) var<storage, read> window: array<u32>;  // of the shared array
@group(0) @binding(6) var<storage, read_write> access: array<vec2<u32>>; // .y: the coefficient, for backward, where it is not 1
@group(0) @binding(7) var<storage, read_write> outputs: array<f32>;

#include "shared/robe_window.wgsl"
#include "shared/robe_array.wgsl"
#include "shared/robe_pool.wgsl"
