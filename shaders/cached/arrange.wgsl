// Turns a dedup of the accesses into the input of backward: the accesses in sorted order, and each distinct row with
// the range of its accesses. If gradients overflowed, or the lists in step scratch are those of another forward, the list
// of rows is empty, so nothing in the table changes.
//
// Bytes moved per access: 12 (order, segment twice), 8 in, 8 out; per row: 8 in, 16 out.
#include "shared/common.wgsl"
#include "shared/swap.wgsl"
#include "shared/target.wgsl"
#include "shared/scaler.wgsl"

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<uniform> step: array<vec4<u32>, 5>; // `Step` as words
@group(0) @binding(2) var<storage, read> order: array<u32>;   // the index of each sorted access
@group(0) @binding(3) var<storage, read> segment: array<u32>; // the number of the access's distinct row
@group(0) @binding(4) var<storage, read> keys: array<u32>;    // by index: linear row
@group(0) @binding(5) var<storage, read> places: array<u32>;  // by index, as gather reads them
@group(0) @binding(6) var<storage, read> swaps: array<Swap>;
@group(0) @binding(7) var<storage, read> access: array<vec2<u32>>; // by index: output row, coefficient
@group(0) @binding(8) var<storage, read_write> accesses: array<vec2<u32>>; // the accesses in sorted order
@group(0) @binding(9) var<storage, read_write> targets: array<Target>;
@group(0) @binding(10) var<uniform> scaler: ScalerState;

#include "shared/placed.wgsl"

fn step_count(count: u32) -> u32 {
    let word = STEP_COUNTS + count;
    return step[word / 4u][word % 4u];
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    var valid = step_count(COUNT_VALID);
    var rows = step_count(COUNT_UNIQUE);
    if (scaler.overflow != 0u || any(step[4].xz != step[4].yw)) {
        valid = 0u;
        rows = 0u;
    }
    let j = flat_group(group, groups) * 256u + lane;
    if (j == 0u) { targets[0] = Target(rows, valid, step[0].x, bitcast<u32>(scaler.inverse)); }
    if (j >= valid) { return; }
    let i = order[j];
    accesses[j] = access[i];
    let u = segment[j];
    if (j + 1u == valid) { targets[u + 1u].end = valid; }
    var first = j == 0u;
    if (!first) { first = segment[j - 1u] != u; }
    if (!first) { return; }
    targets[u + 1u].row = keys[i];
    targets[u + 1u].place = placed(places[i]);
    targets[u + 1u].start = j;
    if (u > 0u) { targets[u].end = j; }
}
