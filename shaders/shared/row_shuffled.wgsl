// Values over the `params.lanes` invocations that share a row, by shuffles within a subgroup of at least 32 lanes. Each
// function must be called by the whole workgroup, and gives every invocation the value of its row. Its barrier brings
// the lanes of a subgroup together, which may have left a loop of the caller one after another.
#include "shared/lane_{rank}.wgsl"

fn extent_of_row(own: Extent, lane: Lane, lanes: u32) -> Extent {
    workgroupBarrier();
    var all = own;
    for (var reach = lanes / 2u; reach > 0u; reach /= 2u) {
        let other = lane.invocation ^ reach;
        all.low = min(all.low, subgroupShuffle(all.low, other));
        all.high = max(all.high, subgroupShuffle(all.high, other));
        all.bad |= subgroupShuffle(all.bad, other);
    }
    return all;
}

// The mean of all `squares` of the row, added by a tree. A sum of two has the same bits in either order, so every invocation has the first one's sum.
fn mean_of_row(squares: f32, lane: Lane, lanes: u32) -> f32 {
    workgroupBarrier();
    var sum = squares;
    for (var reach = lanes / 2u; reach > 0u; reach /= 2u) {
        sum += bitcast<f32>(subgroupShuffle(bitcast<u32>(sum), lane.invocation ^ reach));
    }
    let first = lane.invocation & ~(lanes - 1u);
    return bitcast<f32>(subgroupShuffle(bitcast<u32>(sum / f32(params.dim)), first));
}
