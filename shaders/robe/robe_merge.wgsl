// Sums the chunks of each start with more than 32 chunks, 32 chunks at a time. The work follows the chunks, so a
// start with half of the batch's chunks delays nothing. params.lanes invocations share a partial row of robe.reach
// sums, which ends with the number of chunks that reach the last weight.
//
// Bytes moved per chunk of such a start: 8, 4 Z; per tile of 32 chunks: 2 x 20 to look for such a start, 4 Z + 4 out.
#include "shared/robe_sum.wgsl"

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<uniform> robe: Robe;
@group(0) @binding(2) var<storage, read> targets: array<Target>;
@group(0) @binding(3) var<storage, read> segment: array<u32>;
@group(0) @binding(4) var<storage, read> accesses: array<vec2<u32>>;
@group(0) @binding(5) var<storage, read> grad_outputs: array<Words>;
@group(0) @binding(6) var<storage, read_write> scratch: array<f32>; // partial rows

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
    let lane = local & (params.lanes - 1u);
    let at_once = 256u / params.lanes;
    let valid = targets[0].place;
    unscale = bitcast<f32>(targets[0].end);
    let rows = 2u * ((valid + MERGE_CHUNK - 1u) / MERGE_CHUNK);
    for (var row = partial_of(local / params.lanes, group, groups); row < rows; row += groups.x * groups.y * at_once) {
        let tile = row / 2u * MERGE_CHUNK;
        let begins = (row & 1u) == 1u; // else the start whose chunks began before the tile
        let j = select(tile, min(tile + MERGE_CHUNK, valid) - 1u, begins);
        let one = targets[segment[j] + 1u];
        if (!is_heavy(one) || (one.start >= tile) != begins) { continue; }
        var first = one.start;
        if (!begins) { first += (tile - one.start + MERGE_CHUNK - 1u) / MERGE_CHUNK * MERGE_CHUNK; }
        if (first >= one.end) { continue; }
        let end = min(first + MERGE_CHUNK, one.end);
        for (var e = lane; e <= robe.reach; e += params.lanes) {
            let sum = sum_of(first, end, min(e, robe.reach - 1u));
            scratch[partial_at(row, e)] = select(f32(sum.chunks), sum.value, e < robe.reach);
        }
    }
}
