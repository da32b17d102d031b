// Write rows: the caller's FP32 values replace the weights of the listed rows, in slot or scratch; the state stays.
// A row with a value that is not finite is refused and counted.
#include "shared/common.wgsl"
#include "shared/meta.wgsl"

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> step: Step;
@group(0) @binding(2) var<storage, read> unique: array<Unique>;
@group(0) @binding(3) var<storage, read> values: array<f32>; // row u of the batch, ascending rows
@group(0) @binding(4) var<storage, read_write> cache: array<f32>;
@group(0) @binding(5) var<storage, read_write> scratch: array<f32>;
@group(0) @binding(6) var<storage, read_write> ways: array<u32>;
@group(0) @binding(7) var<storage, read_write> sources: array<u32>;
@group(0) @binding(8) var<storage, read_write> tables: array<atomic<u32>>;

#include "shared/tables.wgsl"

var<workgroup> bad: atomic<u32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let u = flat_group(group, groups);
    let live = u < step.counts[COUNT_UNIQUE];
    if (lane == 0u) { atomicStore(&bad, 0u); }
    workgroupBarrier();
    if (live) {
        for (var e = lane; e < params.dim; e += 64u) {
            if ((bitcast<u32>(values[u * params.dim + e]) & 0x7f800000u) == 0x7f800000u) { atomicOr(&bad, 1u); }
        }
    }
    workgroupBarrier();
    if (!live) { return; }
    let here = unique[u];
    let refused = atomicLoad(&bad) != 0u;
    let bypass = here.slot >= params.slots;
    if (!refused) {
        let base = select(here.slot, here.slot - params.slots, bypass) * params.row_words;
        for (var e = lane; e < params.dim; e += 64u) {
            let value = values[u * params.dim + e];
            if (bypass) { scratch[base + e] = value; } else { cache[base + e] = value; }
        }
    }
    if (lane != 0u) { return; }
    sources[u] = select(NONE, here.slot, bypass && !refused);
    if (refused) {
        count(table_of(here.row), SKIPPED_ROWS, 1u);
    } else if (!bypass) {
        ways[way_at(here.slot, DIRTY)] = 1u;
    }
}
