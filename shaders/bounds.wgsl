// Which part of an ascending list of rows lies in each shard, and the indirect dispatch that covers it.
#include "shared/common.wgsl"

struct BoundsInfo {
    shards: u32,
    rows_per_shard: u32,
    count: u32,      // which of Step.counts tells the list's length
    sorted: u32,     // 0: the list is not ascending; one shard takes all of it
    per_group: u32,  // rows a workgroup takes
    max_groups: u32,
    pad0: u32,
    pad1: u32,
}

@group(0) @binding(0) var<uniform> info: BoundsInfo;
@group(0) @binding(1) var<storage, read_write> step: Step;
@group(0) @binding(2) var<storage, read> rows: array<u32>;
@group(0) @binding(3) var<storage, read_write> range: array<vec2<u32>>; // first and past the last item of each shard
@group(0) @binding(4) var<storage, read_write> groups_of: array<u32>;   // x, y, z of each shard's dispatch

fn lower_bound(row: u32, n: u32) -> u32 {
    var low = 0u;
    var high = n;
    while (low < high) {
        let middle = low + (high - low) / 2u;
        if (rows[middle] < row) { low = middle + 1u; } else { high = middle; }
    }
    return low;
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let shard = flat_group(group, groups) * 64u + lane;
    if (shard >= info.shards) { return; }
    let n = step.counts[info.count];
    var low = 0u;
    var high = n;
    if (info.sorted == 1u) {
        low = lower_bound(shard * info.rows_per_shard, n);
        // The last shard ends below NONE; (shard + 1) * rows_per_shard may not fit in 32 bits there.
        if (shard + 1u < info.shards) {
            high = lower_bound((shard + 1u) * info.rows_per_shard, n);
        } else {
            high = lower_bound(NONE, n);
        }
    }
    range[shard] = vec2<u32>(low, high);
    let wanted = (high - low + info.per_group - 1u) / info.per_group;
    let x = min(wanted, info.max_groups);
    groups_of[shard * 3u] = x;
    groups_of[shard * 3u + 1u] = select(0u, (wanted + x - 1u) / max(x, 1u), x > 0u);
    groups_of[shard * 3u + 2u] = 1u;
}
