// The gradient of the loss with respect to each index's weight: the dot product of the row, as forward read it, and the
// gradient of the index's output row; with mean pooling divided by the number of rows of its bag. Changes nothing else.
// params.lanes invocations share an index.
//
// Bytes moved per index: 8 (access), 4 (place), 4 dim (row), 4 dim (gradient; FP16: 2 dim), 4 out; with mean pooling 4 for each index
// of its bag, mostly from caches.
#include "shared/common.wgsl"
#include "shared/half.wgsl"
#include "shared/swap.wgsl"
#include "shared/quad{width}.wgsl"
#include "shared/gradient{width}.wgsl"

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> offsets: array<u32>;
@group(0) @binding(2) var<storage, read> access: array<vec2<u32>>; // .x: output row
@group(0) @binding(3) var<storage, read> places: array<u32>;
@group(0) @binding(4) var<storage, read> swaps: array<Swap>;
@group(0) @binding(5) var<storage, read> cache: array<Quad>;
@group(0) @binding(6) var<storage, read> scratch: array<Quad>;
@group(0) @binding(7) var<storage, read> grad_outputs: array<Words>;
@group(0) @binding(8) var<storage, read_write> grad_weights: array<f32>; // one for each index
@group(0) @binding(9) var<uniform> step: array<vec4<u32>, 5>; // `Step` as words

#include "shared/placed.wgsl"
#include "shared/slots.wgsl"

fn place_of(i: u32) -> u32 {
    return select(NONE, places[i], all(step[4].xz == step[4].yw));
}

// A lane's part of the dot product.
fn dot_of(listed: u32, output: u32, lane: u32) -> f32 {
    let place = placed(listed);
    var products = Quad(0.0);
    for (var q = lane; q < weight_quads(); q += params.lanes) {
        products += load_quad(place, q) * grad_output(output * weight_quads() + q);
    }
    var sum = part_of(products, 0u);
    for (var k = 1u; k < WIDTH; k++) { sum += part_of(products, k); }
    return sum;
}

#include "shared/weight_gradient.wgsl"
