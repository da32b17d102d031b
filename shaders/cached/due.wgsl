// Finds how often the counters of the rows of each table are halved before this step, where each table has a share of the
// cache (SPEC 3, Window). linearize does so where all tables share it. One invocation for each table.
#include "shared/common.wgsl"

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> step: array<atomic<u32>>; // `Step` as words
@group(0) @binding(2) var<storage, read_write> tables: array<atomic<u32>>;
@group(0) @binding(3) var<storage, read_write> shares: array<Share>;

#include "shared/shares.wgsl"
#include "shared/halvings.wgsl"

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let table = flat_group(group, groups) * 256u + lane;
    if (table >= params.shares || atomicLoad(&step[STEP_COUNTS + COUNT_INDICES]) == 0u) { return; }
    if (!ages(shares[table])) { return; }
    // Probe counts the accesses of this step.
    let halvings = halvings_of(table, shares[table].sets * 32u, 0u);
    shares[table].halvings = halvings;
    if (halvings > 0u) { atomicMax(&step[STEP_COUNTS + COUNT_HALVINGS], halvings); }
}
