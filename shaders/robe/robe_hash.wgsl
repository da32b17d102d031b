// Hashes the row of each access, or takes its first weight if rows are addressed directly; the place of each of its chunks is then one addition
// away. One invocation for each access.
//
// Bytes moved per access: 4 in, 4 out.
#include "shared/common.wgsl"
#include "shared/robe.wgsl"

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<uniform> robe: Robe;
@group(0) @binding(2) var<storage, read_write> step: Step;
@group(0) @binding(3) var<storage, read> keys: array<u32>;          // linear rows; NONE if left out
@group(0) @binding(4) var<storage, read_write> hashes: array<u32>;  // NONE if left out
@group(0) @binding(5) var<storage, read_write> tables: array<atomic<u32>>;

#include "shared/tables.wgsl"
#include "shared/tally.wgsl"

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let i = flat_group(group, groups) * 256u + lane;
    var row = NONE;
    // A refused step has no rows: its outputs are zero.
    if (i < params.indices && step.counts[COUNT_INDICES] != 0u) { row = keys[i]; }
    tally_begin(lane, row);
    if (i < params.indices) { hashes[i] = select(row_place(row, robe.stride, robe.rows), NONE, row == NONE); }
    if (row != NONE && params.mode == MODE_TRAIN) { tally(counted_in(row), ACCESSES, 1u); }
    tally_end(lane);
}
