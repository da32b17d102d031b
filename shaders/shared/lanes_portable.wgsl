// Prefix sums over a workgroup.
#include "shared/lane_{rank}.wgsl"

struct Scan {
    before: u32, // sum over the invocations before this one
    total: u32,  // sum over all
}

var<workgroup> lane_values: array<u32, 256>;
var<workgroup> row_sums: array<u32, 16>;

// Prefix sum over the workgroup, as 16 rows of 16: three barriers, and reads that a row shares. Must be in uniform
// control flow.
fn scan_lanes(value: u32, lane: Lane) -> Scan {
    workgroupBarrier(); // all invocations have read the previous scan
    lane_values[lane.index] = value;
    workgroupBarrier();
    let row = lane.index / 16u;
    var before = 0u;
    for (var i = row * 16u; i < lane.index; i++) { before += lane_values[i]; }
    if ((lane.index & 15u) == 15u) { row_sums[row] = before + value; }
    workgroupBarrier();
    var total = 0u;
    for (var i = 0u; i < 16u; i++) {
        let sum = row_sums[i];
        before += select(0u, sum, i < row);
        total += sum;
    }
    return Scan(before, total);
}
