// As weight_gradient, for a shared array of any precision: the gradient of the loss with respect to each index's weight.
//
// Bytes moved per index: 8 (access), 4 (hash), dim bits / 8 (row), 8 for each of its blocks (integers), 4 dim (gradient;
// FP16: 2 dim), 4 out; with mean pooling 4 for each index of its bag, mostly from caches.
#include "shared/common.wgsl"
#include "shared/robe.wgsl"
#include "shared/half.wgsl"
#include "shared/quad1.wgsl"
#include "shared/gradient1.wgsl"

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<uniform> robe: Robe;
@group(0) @binding(2) var<storage, read> offsets: array<u32>;
@group(0) @binding(3) var<storage, read> access: array<vec2<u32>>; // .x: output row
@group(0) @binding(4) var<storage, read> hashes: array<u32>;
@group(0) @binding(5) var<storage, read> window: array<u32>;       // the first window of the shared array
@group(0) @binding(6) var<storage, read> grad_outputs: array<Words>;
@group(0) @binding(7) var<storage, read_write> grad_weights: array<f32>; // one for each index
@group(0) @binding(8) var<uniform> step: array<vec4<u32>, 5>; // `Step` as words

#include "shared/robe_window.wgsl"
#include "shared/robe_array.wgsl"

fn place_of(i: u32) -> u32 {
    return select(NONE, hashes[i], all(step[4].xz == step[4].yw));
}

fn value_of(w: u32) -> f32 {
    if (params.bits == 32u) { return bitcast<f32>(array_word(w)); }
    return weight_of(w);
}

// A lane's part of the dot product.
fn dot_of(hash: u32, output: u32, lane: u32) -> f32 {
    var sum = 0.0;
    for (var column = lane; column < robe.dim; column += params.lanes) {
        let start = start_of(hash, chunk_hash(column / robe.chunk), robe.starts);
        sum += value_of(start + column % robe.chunk) * grad_output(output * robe.dim + column);
    }
    return sum;
}

#include "shared/weight_gradient.wgsl"
