// The 256 invocations of a workgroup as 8 subgroups of 32 or 4 of 64.
struct Lane {
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_invocation_id) invocation: u32,
    @builtin(subgroup_size) size: u32, // 32 or 64
}

fn lane_index(lane: Lane) -> u32 { return lane.subgroup * lane.size + lane.invocation; }

struct Scan {
    before: u32, // sum over the invocations before this one
    total: u32,  // sum over all
}

var<workgroup> subgroup_sums: array<u32, 8>;

// Prefix sum over the workgroup, with two barriers. Must be in uniform control flow.
fn scan_lanes(value: u32, lane: Lane) -> Scan {
    workgroupBarrier(); // all invocations have read the previous scan
    var before = subgroupExclusiveAdd(value);
    if (lane.invocation == lane.size - 1u) { subgroup_sums[lane.subgroup] = before + value; }
    workgroupBarrier();
    var total = 0u;
    for (var i = 0u; i < 256u / lane.size; i++) {
        let sum = subgroup_sums[i];
        before += select(0u, sum, i < lane.subgroup);
        total += sum;
    }
    return Scan(before, total);
}
