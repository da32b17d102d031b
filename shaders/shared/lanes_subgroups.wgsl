// Prefix sums over a workgroup, by subgroups.
#include "shared/lane_{rank}.wgsl"

struct Scan {
    before: u32, // sum over the invocations before this one
    total: u32,  // sum over all
}

var<workgroup> subgroup_sums: array<u32, 8>;

// Prefix sum over the workgroup, with two barriers. Must be in uniform control flow.
fn scan_lanes(value: u32, lane: Lane) -> Scan {
    // All invocations have read the previous scan. The barrier also brings the lanes of a subgroup together, which may
    // have left a loop of the caller one after another.
    workgroupBarrier();
    var before = subgroupExclusiveAdd(value);
    if (lane.invocation == subgroup_lanes(lane) - 1u) { subgroup_sums[lane.subgroup] = before + value; }
    workgroupBarrier();
    var total = 0u;
    for (var i = 0u; i < 256u / subgroup_lanes(lane); i++) {
        let sum = subgroup_sums[i];
        before += select(0u, sum, i < lane.subgroup);
        total += sum;
    }
    return Scan(before, total);
}
