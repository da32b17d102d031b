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

const TILES: u32 = 8u; // that a workgroup looks at, at once

var<workgroup> tiles: u32;
var<workgroup> begun: atomic<u32>;
var<workgroup> rows: u32;
var<workgroup> heavy: array<vec2<u32>, 8>; // the tiles in which heavy rows begin, and the numbers of these rows' chunks
var<workgroup> sums: array<Quad, 256>;

// Number of chunks of the heavy row that begins in the tile; 0 if none does.
fn chunks_from(tile: u32) -> u32 {
    let one = targets[segment[min((tile + 1u) * MERGE_CHUNK, targets[0].place) - 1u] + 1u];
    if (one.start < tile * MERGE_CHUNK || one.end - one.start <= MERGE_CHUNK) { return 0u; }
    return (one.end - one.start + MERGE_CHUNK - 1u) / MERGE_CHUNK;
}

// The sums of chunks k, k + 8, k + 16 and k + 24 of the row that begins in the tile, where live. Chunk k > 0 begins in tile + k and belongs to a row that
// began before that tile.
fn four_chunks(tile: u32, k: u32, q: u32, live: vec4<bool>) -> Four {
    var four: Four;
    if (live.x) { four.a = scratch[partial_at(2u * (tile + k), q)]; }
    if (live.y) { four.b = scratch[partial_at(2u * (tile + k + 8u), q)]; }
    if (live.z) { four.c = scratch[partial_at(2u * (tile + k + 16u), q)]; }
    if (live.w) { four.d = scratch[partial_at(2u * (tile + k + 24u), q)]; }
    return four;
}

fn add_chunks(sum: Quad, four: Four, live: vec4<bool>) -> Quad {
    var all = sum;
    if (live.x) { all = plus(all, four.a); }
    if (live.y) { all = plus(all, four.b); }
    if (live.z) { all = plus(all, four.c); }
    if (live.w) { all = plus(all, four.d); }
    return all;
}

// Adds up the `count` chunks of the row that begins in the tile. The whole workgroup must call this.
fn combine(tile: u32, count: u32, local: u32) {
    let g = local / 32u;
    for (var first = 0u; first < weight_quads(); first += 32u) {
        let q = first + (local & 31u);
        var sum = Quad(0.0);
        if (q < weight_quads() && g < count) {
            sum = scratch[partial_at(select(2u * (tile + g), 2u * tile + 1u, g == 0u), q)];
            for (var k = g + 8u; k < count; k += 64u) { // eight loads are under way at once
                let near = vec4<u32>(k) + vec4<u32>(0u, 8u, 16u, 24u) < vec4<u32>(count);
                let far = vec4<u32>(k) + vec4<u32>(32u, 40u, 48u, 56u) < vec4<u32>(count);
                let a = four_chunks(tile, k, q, near);
                let b = four_chunks(tile, k + 32u, q, far);
                sum = add_chunks(add_chunks(sum, a, near), b, far);
            }
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

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
    if (local == 0u) { tiles = (targets[0].place + MERGE_CHUNK - 1u) / MERGE_CHUNK; }
    let n = workgroupUniformLoad(&tiles);
    let all = groups.x * groups.y;
    for (var first = flat_group(group, groups); first < n; first += TILES * all) {
        if (local == 0u) { atomicStore(&begun, 0u); }
        workgroupBarrier();
        let tile = first + local * all;
        if (local < TILES && tile < n) {
            let count = chunks_from(tile);
            if (count > 0u) { heavy[atomicAdd(&begun, 1u)] = vec2<u32>(tile, count); }
        }
        workgroupBarrier();
        if (local == 0u) { rows = atomicLoad(&begun); }
        let found = workgroupUniformLoad(&rows);
        for (var k = 0u; k < found; k++) { combine(heavy[k].x, heavy[k].y, local); }
    }
}
