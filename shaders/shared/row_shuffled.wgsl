// Values over the `params.lanes` invocations that share a row, by shuffles within a subgroup of at least 32 lanes. Each
// function must be called by the whole workgroup, and gives every invocation the value of its row. Its barrier brings
// the lanes of a subgroup together, which may have left a loop of the caller one after another.
#include "shared/lane_{rank}.wgsl"

// By halves: the lower half of the lanes finds the highest value, the upper half the complement of the lowest.
fn extent_of_row(own: Extent, lane: Lane, lanes: u32) -> Extent {
    workgroupBarrier();
    let is_upper = (lane.invocation & (lanes / 2u)) != 0u;
    let given = subgroupShuffle(select(~own.low, own.high, is_upper), lane.invocation ^ (lanes / 2u));
    var most = max(select(own.high, ~own.low, is_upper), given);
    for (var reach = lanes / 4u; reach > 0u; reach /= 2u) { most = max(most, subgroupShuffle(most, lane.invocation ^ reach)); }
    let other = subgroupShuffle(most, lane.invocation ^ (lanes / 2u));
    return Extent(~select(other, most, is_upper), select(most, other, is_upper));
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
