// Radix sort, last of three: each key to its place. Stable.
//
// Ranking without subgroups: for every digit a 256-bit mask of the lanes that hold it; a lane's rank is the number of
// lower lanes in its digit's mask. 8 KiB of shared memory, any subgroup width.
#include "shared/common.wgsl"
#include "shared/sort.wgsl"

@group(0) @binding(0) var<uniform> pass_info: Pass;
@group(0) @binding(1) var<storage, read_write> step: Step;
@group(0) @binding(2) var<storage, read> keys_in: array<u32>;
@group(0) @binding(3) var<storage, read> values_in: array<u32>;
@group(0) @binding(4) var<storage, read> digits: array<u32>; // scanned
@group(0) @binding(5) var<storage, read_write> keys_out: array<u32>;
@group(0) @binding(6) var<storage, read_write> values_out: array<u32>;

var<workgroup> masks: array<atomic<u32>, 2048>;
var<workgroup> next: array<u32, 256>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let block = flat_group(group, groups);
    let n = step.counts[pass_info.count];
    next[lane] = digits[lane * pass_info.blocks + min(block, pass_info.blocks - 1u)];
    for (var round = 0u; round < SORT_ROUNDS; round++) {
        for (var word = 0u; word < 8u; word++) { atomicStore(&masks[lane * 8u + word], 0u); }
        workgroupBarrier();
        let i = block * SORT_BLOCK + round * 256u + lane;
        let live = i < n && block < pass_info.blocks;
        var key = 0u;
        var digit = 0u;
        if (live) {
            key = keys_in[i];
            digit = (key >> pass_info.shift) & 255u;
            atomicOr(&masks[digit * 8u + lane / 32u], 1u << (lane & 31u));
        }
        workgroupBarrier();
        if (live) {
            var place = next[digit];
            for (var word = 0u; word < lane / 32u; word++) { place += countOneBits(atomicLoad(&masks[digit * 8u + word])); }
            place += countOneBits(atomicLoad(&masks[digit * 8u + lane / 32u]) & ((1u << (lane & 31u)) - 1u));
            keys_out[place] = key;
            if (pass_info.first == 1u) { values_out[place] = i; } else { values_out[place] = values_in[i]; }
        }
        workgroupBarrier();
        var taken = 0u;
        for (var word = 0u; word < 8u; word++) { taken += countOneBits(atomicLoad(&masks[lane * 8u + word])); }
        next[lane] += taken;
        workgroupBarrier();
    }
}
