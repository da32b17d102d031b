// Values over the `params.lanes` invocations that share a row, through shared memory, for subgroups of any size. Each
// function must be called by the whole workgroup, and gives every invocation the value of its row.
#include "shared/lane_{rank}.wgsl"

var<workgroup> row_lows: array<u32, 256>;
var<workgroup> row_highs: array<u32, 256>;
var<workgroup> row_sums: array<f32, 256>;

fn extent_of_row(own: Extent, lane: Lane, lanes: u32) -> Extent {
    let part = lane.index & (lanes - 1u);
    row_lows[lane.index] = own.low;
    row_highs[lane.index] = own.high;
    for (var reach = lanes / 2u; reach > 0u; reach /= 2u) {
        workgroupBarrier();
        if (part < reach) {
            row_lows[lane.index] = min(row_lows[lane.index], row_lows[lane.index + reach]);
            row_highs[lane.index] = max(row_highs[lane.index], row_highs[lane.index + reach]);
        }
    }
    workgroupBarrier();
    let first = lane.index - part;
    return Extent(row_lows[first], row_highs[first]);
}

// The mean of all `squares` of the row, added by a tree.
fn mean_of_row(squares: f32, lane: Lane, lanes: u32) -> f32 {
    let part = lane.index & (lanes - 1u);
    row_sums[lane.index] = squares;
    for (var reach = lanes / 2u; reach > 0u; reach /= 2u) {
        workgroupBarrier();
        if (part < reach) { row_sums[lane.index] += row_sums[lane.index + reach]; }
    }
    if (part == 0u) { row_sums[lane.index] = row_sums[lane.index] / f32(params.dim); }
    workgroupBarrier();
    return row_sums[lane.index - part];
}
