// Sums each chunk of the heavy rows' gradients. The work follows the accesses, so a row with half of the batch's
// accesses delays nothing. params.lanes invocations share a partial row.
//
// Bytes moved per access of a heavy row: 8, 4 dim; per tile of 32 accesses: 2 x 20 to look for a heavy row, 4 dim out
// per chunk.
#include "shared/common.wgsl"
#include "shared/quad{width}.wgsl"
#include "shared/target.wgsl"
#include "shared/half.wgsl"
#include "shared/gradient{width}.wgsl"

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> targets: array<Target>;
@group(0) @binding(2) var<storage, read> segment: array<u32>;
@group(0) @binding(3) var<storage, read> accesses: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read> grad_outputs: array<Words>;
@group(0) @binding(5) var<storage, read_write> scratch: array<Quad>; // partial rows, from params.partials on

fn weight_quads() -> u32 {
    return params.dim / WIDTH;
}

#include "shared/merge.wgsl"
#include "shared/sum.wgsl"

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
        let begins = (row & 1u) == 1u; // else the row that began before the tile
        let j = select(tile, min(tile + MERGE_CHUNK, valid) - 1u, begins);
        let one = targets[segment[j] + 1u];
        if (one.end - one.start <= MERGE_CHUNK || (one.start >= tile) != begins) { continue; }
        var first = one.start;
        if (!begins) { first += (tile - one.start + MERGE_CHUNK - 1u) / MERGE_CHUNK * MERGE_CHUNK; }
        if (first >= one.end) { continue; }
        let end = min(first + MERGE_CHUNK, one.end);
        for (var q = lane; q < weight_quads(); q += params.lanes) {
            scratch[partial_at(row, q)] = sum_of(first, end, q);
        }
    }
}
