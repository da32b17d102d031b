// Dedup, first of two stages: counts the keys in each block of the sorted keys that are the first among equal keys.
#include "shared/common.wgsl"
#include "shared/dedup.wgsl"
#include "shared/lanes_{rank}.wgsl"

@group(0) @binding(0) var<uniform> info: DedupInfo;
@group(0) @binding(1) var<storage, read_write> step: Step;
@group(0) @binding(2) var<storage, read> keys: array<u32>;
@group(0) @binding(3) var<storage, read_write> heads: array<u32>; // one word for each block

var<workgroup> live: u32;

#include "shared/head.wgsl"

fn run(group: vec3<u32>, groups: vec3<u32>, lane: Lane) {
    let me = lane_index(lane);
    if (me == 0u) { live = min(step.counts[info.count], info.capacity); }
    let n = workgroupUniformLoad(&live);
    let blocks = (n + DEDUP_BLOCK - 1u) / DEDUP_BLOCK;
    for (var block = flat_group(group, groups); block < blocks; block += groups.x * groups.y) {
        let scan = scan_lanes(countOneBits(heads_of(block * DEDUP_BLOCK + me, n)), lane);
        if (me == 0u) { heads[block] = scan.total; }
    }
}
