// Counts the covered weights from each start up to the next one, its *run*. Every chunk that covers a weight begins at
// or before that weight. So the covered weights between two starts begin at the earlier start and have no gap. Writes
// for each start the length of its run and the number of covered weights before it in its block of 256 starts, and for
// each block its total. One invocation for each start.
//
// Bytes moved per start: 32 in, 8 out; 8 for each chunk where the last chunk of a row is shorter.
#include "shared/common.wgsl"
#include "shared/target.wgsl"
#include "shared/robe.wgsl"
#include "shared/lanes_{rank}.wgsl"

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<uniform> robe: Robe;
@group(0) @binding(2) var<storage, read> targets: array<Target>;
@group(0) @binding(3) var<storage, read> accesses: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read> scratch: array<f32>; // the partial rows of robe_merge
@group(0) @binding(5) var<storage, read_write> runs: array<vec2<u32>>; // (weights before the start in its block, length of its run)
@group(0) @binding(6) var<storage, read_write> blocks: array<u32>;

#include "shared/robe_reach.wgsl"

var<workgroup> length: u32;

// Whether any chunk at this start has the full length.
fn has_whole(one: Target) -> bool {
    if (is_heavy(one)) { return scratch[partial_at(partial_row(one), robe.reach)] > 0.0; }
    for (var j = one.start; j < one.end; j++) {
        if (reach_of(accesses[j].x) == robe.reach) { return true; }
    }
    return false;
}

// Length of start d's run; there are n starts.
fn run_of(d: u32, n: u32) -> u32 {
    let row = targets[d + 1u].row;
    var end = row + robe.tail;
    // Of two full chunks the later one reaches further.
    for (var back = d + 1u; back > 0u; back--) {
        let one = targets[back];
        if (one.row + robe.reach <= end) { break; }
        if (has_whole(one)) {
            end = one.row + robe.reach;
            break;
        }
    }
    if (d + 1u < n) { end = min(end, targets[d + 2u].row); }
    return end - row;
}

fn run(group: vec3<u32>, groups: vec3<u32>, lane: Lane) {
    let me = lane_index(lane);
    if (me == 0u) { length = targets[0].row; }
    let n = workgroupUniformLoad(&length);
    for (var block = flat_group(group, groups); block < (n + 255u) / 256u; block += groups.x * groups.y) {
        let d = block * 256u + me;
        var run = 0u;
        if (d < n) { run = run_of(d, n); }
        let scan = scan_lanes(run, lane);
        if (d < n) { runs[d] = vec2<u32>(scan.before, run); }
        if (me == 0u) { blocks[block] = scan.total; }
    }
}
