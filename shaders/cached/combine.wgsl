// Adds up the chunk sums p of each heavy row, one workgroup for each row: s_g = p_g + p_(g + 8) + ... for g from 0 to
// 7, total = s_0 + ... + s_7.
//
// Bytes moved per chunk: 4 dim; per tile: 20 to look for a heavy row.
#include "shared/common.wgsl"
#include "shared/quad{width}.wgsl"
#include "shared/target.wgsl"

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> targets: array<Target>;
@group(0) @binding(2) var<storage, read> segment: array<u32>;
@group(0) @binding(3) var<storage, read_write> scratch: array<Quad>; // partial rows, from params.partials on

fn weight_quads() -> u32 {
    return params.dim / WIDTH;
}

#include "shared/merge.wgsl"

var<workgroup> tiles: u32;
var<workgroup> chunks: u32;
var<workgroup> sums: array<Quad, 256>;

// Number of chunks of the heavy row that begins in the tile; 0 if none does.
fn chunks_from(tile: u32) -> u32 {
    let one = targets[segment[min((tile + 1u) * MERGE_CHUNK, targets[0].place) - 1u] + 1u];
    if (one.start < tile * MERGE_CHUNK || one.end - one.start <= MERGE_CHUNK) { return 0u; }
    return (one.end - one.start + MERGE_CHUNK - 1u) / MERGE_CHUNK;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
    if (local == 0u) { tiles = (targets[0].place + MERGE_CHUNK - 1u) / MERGE_CHUNK; }
    let n = workgroupUniformLoad(&tiles);
    let g = local / 32u;
    for (var tile = flat_group(group, groups); tile < n; tile += groups.x * groups.y) {
        if (local == 0u) { chunks = chunks_from(tile); }
        let count = workgroupUniformLoad(&chunks);
        if (count == 0u) { continue; }
        for (var first = 0u; first < weight_quads(); first += 32u) {
            let q = first + (local & 31u);
            var sum = Quad(0.0);
            if (q < weight_quads() && g < count) {
                // Chunk k > 0 begins in tile + k and belongs to a row that began before that tile.
                var k = g + 8u;
                sum = scratch[partial_at(select(2u * (tile + g), 2u * tile + 1u, g == 0u), q)];
                for (; k + 24u < count; k += 32u) {
                    let a = scratch[partial_at(2u * (tile + k), q)];
                    let b = scratch[partial_at(2u * (tile + k + 8u), q)];
                    let c = scratch[partial_at(2u * (tile + k + 16u), q)];
                    let d = scratch[partial_at(2u * (tile + k + 24u), q)];
                    sum = plus(plus(plus(plus(sum, a), b), c), d);
                }
                for (; k < count; k += 8u) { sum = plus(sum, scratch[partial_at(2u * (tile + k), q)]); }
            }
            sums[local] = sum;
            workgroupBarrier();
            if (g == 0u && q < weight_quads()) {
                for (var other = 1u; other < min(count, 8u); other++) { sum = plus(sum, sums[other * 32u + local]); }
                scratch[partial_at(2u * tile + 1u, q)] = sum;
            }
            workgroupBarrier();
        }
    }
}
