// Lists the covered weights in ascending order, each with its gradient: the sum that robe_update would apply. One
// invocation for each position of the list, so that no invocation is idle where starts are close and own one or two
// weights each.
//
// Bytes moved per covered weight: 8 + 4 for each chunk, 8 out; to find its start: 4 log2(starts / 256) + 64, and 16
// log2(starts within a chunk's reach).
#include "shared/robe_sum.wgsl"

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<uniform> robe: Robe;
@group(0) @binding(2) var<storage, read> targets: array<Target>;
@group(0) @binding(3) var<storage, read> accesses: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read> grad_outputs: array<Words>;
@group(0) @binding(5) var<storage, read> scratch: array<f32>; // the partial rows of robe_merge
@group(0) @binding(6) var<storage, read> runs: array<vec2<u32>>; // the output of robe_runs
@group(0) @binding(7) var<storage, read> blocks: array<u32>;     // number of covered weights before each block
@group(0) @binding(8) var<storage, read_write> locations: array<u32>;
@group(0) @binding(9) var<storage, read_write> sums: array<f32>;

#include "shared/robe_weight_sums.wgsl"

// The start that owns a position of the list: the last start with no more weights before it. Searches the blocks of 256
// starts first, then within one.
fn start_at(place: u32, n: u32) -> u32 {
    var block = 0u;
    for (var high = (n + 255u) / 256u; high - block > 1u;) {
        let middle = block + (high - block) / 2u;
        if (blocks[middle] <= place) { block = middle; } else { high = middle; }
    }
    var d = block * 256u;
    for (var high = min(d + 256u, n); high - d > 1u;) {
        let middle = d + (high - d) / 2u;
        if (blocks[block] + runs[middle].x <= place) { d = middle; } else { high = middle; }
    }
    return d;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
    let n = targets[0].row;
    if (n == 0u) { return; }
    unscale = bitcast<f32>(targets[0].end);
    let last = runs[n - 1u];
    let total = blocks[(n - 1u) / 256u] + last.x + last.y;
    for (var place = flat_group(group, groups) * 256u + local; place < total; place += groups.x * groups.y * 256u) {
        let d = start_at(place, n);
        let w = targets[d + 1u].row + (place - blocks[d / 256u] - runs[d].x);
        locations[place] = w;
        sums[place] = due_from(w, d).value;
    }
}
