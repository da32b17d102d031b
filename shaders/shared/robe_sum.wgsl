// Sums of the gradients of chunks. Needs `accesses`, `grad_outputs`, `params`, `robe`.
#include "shared/common.wgsl"
#include "shared/quad1.wgsl"
#include "shared/target.wgsl"
#include "shared/half.wgsl"
#include "shared/gradient1.wgsl"
#include "shared/robe.wgsl"
#include "shared/robe_reach.wgsl"
#include "shared/accesses.wgsl"

struct Sum {
    value: f32,
    chunks: u32, // number of chunks that reach the weight
}

// Which of the chunks with these first gradients reach weight e.
fn four_reach(chunks: vec4<u32>, e: u32) -> vec4<bool> {
    return vec4<u32>(e) < vec4<u32>(reach_of(chunks.x), reach_of(chunks.y), reach_of(chunks.z), reach_of(chunks.w));
}

// Sums the sorted chunks first to end - 1, in order, at their weight e, four a turn. A chunk that does not reach e is read at its first weight.
fn sum_of(first: u32, end: u32, e: u32) -> Sum {
    var sum = Sum(0.0, 0u);
    for (var j = first; j < end; j += 4u) {
        let four = four_accesses(j, end);
        let reach = four_reach(four.first, e);
        let live = reach & four_below(j, end);
        sum.value = add_four(sum.value, select(four.first, four.first + e, reach), four.factors, live);
        let counted = select(vec4<u32>(0u), vec4<u32>(1u), live);
        sum.chunks += counted.x + counted.y + counted.z + counted.w;
    }
    return sum;
}
