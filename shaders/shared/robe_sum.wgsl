// Sums of the gradients of chunks. Needs `accesses`, `grad_outputs`, `params`, `robe`.
#include "shared/common.wgsl"
#include "shared/quad1.wgsl"
#include "shared/target.wgsl"
#include "shared/half.wgsl"
#include "shared/gradient1.wgsl"
#include "shared/robe.wgsl"
#include "shared/robe_reach.wgsl"

var<private> unscale: f32; // 1 / scale of the loss; set before anything is summed

struct Sum {
    value: f32,
    chunks: u32, // number of chunks that reach the weight
}

// Sums the sorted chunks first to end - 1, in order, at their weight e.
fn sum_of(first: u32, end: u32, e: u32) -> Sum {
    var sum = Sum(0.0, 0u);
    for (var j = first; j < end; j++) {
        let one = accesses[j];
        if (e >= reach_of(one.x)) { continue; }
        var g = times(unscale, grad_output(one.x + e));
        if (params.weighted == 1u || params.pooling == MEAN) { g = bitcast<f32>(one.y) * g; }
        sum.value = plus(sum.value, g);
        sum.chunks += 1u;
    }
    return sum;
}
