// Record -> FP32 row: up-converts each missing row of one shard, once, into its slot or into scratch (SPEC 3.5).
#include "shared/common.wgsl"
#include "shared/shard.wgsl"

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<uniform> shard: Shard;
@group(0) @binding(2) var<storage, read> range: array<vec2<u32>>;
@group(0) @binding(3) var<storage, read> rows: array<u32>;
@group(0) @binding(4) var<storage, read> fetch_to: array<u32>;
@group(0) @binding(5) var<storage, read> records: array<u32>;
@group(0) @binding(6) var<storage, read_write> cache: array<f32>;
@group(0) @binding(7) var<storage, read_write> scratch: array<f32>;
@group(0) @binding(8) var<storage, read_write> tables: array<atomic<u32>>;

#include "shared/tables.wgsl"
#include "shared/half.wgsl"
#include "shared/record.wgsl"

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let u = range[shard.index].x + flat_group(group, groups);
    if (u >= range[shard.index].y) { return; }
    let to = fetch_to[u];
    if (to == NONE) { return; }
    let base = (rows[u] - shard.first_row) * params.record_words;
    let bypass = to >= params.slots;
    let row = select(to, to - params.slots, bypass) * params.row_words;
    for (var e = lane; e < params.row_words; e += 64u) {
        var value: f32;
        if (e < params.dim) { value = record_weight(base, e); } else { value = record_state(base, e - params.dim); }
        if (bypass) { scratch[row + e] = value; } else { cache[row + e] = value; }
    }
    if (lane == 0u && bypass && params.mode == MODE_TRAIN) { count(table_of(rows[u]), BYPASS_READS, 1u); }
}
