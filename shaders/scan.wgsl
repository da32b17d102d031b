// Exclusive prefix sum of blocks of 1,024, in place; each block's total goes to `sums`.
#include "shared/common.wgsl"
#include "shared/scan.wgsl"

@group(0) @binding(0) var<uniform> info: ScanInfo;
@group(0) @binding(1) var<storage, read_write> data: array<u32>;
@group(0) @binding(2) var<storage, read_write> sums: array<u32>;

var<workgroup> totals: array<u32, 256>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let block = flat_group(group, groups);
    let first = block * SCAN_BLOCK + lane * 4u;
    var values: array<u32, 4>;
    var total = 0u;
    for (var k = 0u; k < 4u; k++) {
        if (first + k < info.n) { values[k] = data[first + k]; }
        total += values[k];
    }
    totals[lane] = total;
    for (var reach = 1u; reach < 256u; reach *= 2u) {
        workgroupBarrier();
        var sum = totals[lane];
        if (lane >= reach) { sum += totals[lane - reach]; }
        workgroupBarrier();
        totals[lane] = sum;
    }
    var before = totals[lane] - total;
    for (var k = 0u; k < 4u; k++) {
        if (first + k < info.n) { data[first + k] = before; }
        before += values[k];
    }
    if (lane == 255u && block < (info.n + SCAN_BLOCK - 1u) / SCAN_BLOCK) { sums[block] = before; }
}
