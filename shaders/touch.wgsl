// LFU: one counter for every table row, kept for ever (SPEC 3.3).
#include "shared/common.wgsl"
#include "shared/meta.wgsl"
#include "shared/shard.wgsl"

const FREQ_MAX: u32 = 0x80000000u;

@group(0) @binding(0) var<uniform> shard: Shard;
@group(0) @binding(1) var<storage, read> range: array<vec2<u32>>;
@group(0) @binding(2) var<storage, read_write> unique: array<Unique>;
@group(0) @binding(3) var<storage, read_write> ways: array<u32>;
@group(0) @binding(4) var<storage, read_write> freqs: array<u32>; // of this shard's rows

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let u = range[shard.index].x + flat_group(group, groups) * 64u + lane;
    if (u >= range[shard.index].y) { return; }
    let one = unique[u];
    let at = one.row - shard.first_row;
    let freq = min(freqs[at] + one.count, FREQ_MAX); // a batch has at most 2^30 accesses: no wrap
    freqs[at] = freq;
    unique[u].key = freq;
    if (one.slot != NONE) { ways[way_at(one.slot, FREQ)] = freq; }
}
