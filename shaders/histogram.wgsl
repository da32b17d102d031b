// Radix sort, first of three: how many keys of each block carry each 8-bit digit.
// Reduce-then-scan (no workgroup waits on another), so it is safe on every device.
#include "shared/common.wgsl"
#include "shared/sort.wgsl"

@group(0) @binding(0) var<uniform> pass_info: Pass;
@group(0) @binding(1) var<storage, read_write> step: Step;
@group(0) @binding(2) var<storage, read> keys: array<u32>;
@group(0) @binding(3) var<storage, read_write> digits: array<u32>; // digit-major: digits[digit * blocks + block]

var<workgroup> bins: array<atomic<u32>, 256>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let block = flat_group(group, groups);
    let n = step.counts[pass_info.count];
    atomicStore(&bins[lane], 0u);
    workgroupBarrier();
    for (var round = 0u; round < SORT_ROUNDS; round++) {
        let i = block * SORT_BLOCK + round * 256u + lane;
        if (i < n) { atomicAdd(&bins[(keys[i] >> pass_info.shift) & 255u], 1u); }
    }
    workgroupBarrier();
    if (block < pass_info.blocks) { digits[lane * pass_info.blocks + block] = atomicLoad(&bins[lane]); }
}
