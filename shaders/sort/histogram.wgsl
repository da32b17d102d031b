// Radix sort, first of three stages: counts how many keys of each block have each digit of up to 8 bits. The first
// pass needs it where the stage that wrote the keys has not counted; scatter counts the digits of the pass that follows.
// The sort is reduce, then scan, so no workgroup waits for another (Merrill & Grimshaw 2011).
#include "shared/common.wgsl"
#include "shared/sort.wgsl"

@group(0) @binding(0) var<uniform> pass_info: Pass;
@group(0) @binding(1) var<storage, read_write> step: Step;
@group(0) @binding(2) var<storage, read> keys: array<u32>;
@group(0) @binding(3) var<storage, read_write> digits: array<u32>; // by digit and block

// Eight counters for each digit, used in turn, so that at most four of 32 equal keys meet at one address.
var<workgroup> bins: array<atomic<u32>, 2048>;
var<workgroup> live: u32;

fn load4(i: u32, n: u32) -> vec4<u32> {
    let last = n - 1u;
    return vec4<u32>(keys[min(i, last)], keys[min(i + 256u, last)], keys[min(i + 512u, last)], keys[min(i + 768u, last)]);
}

// Without a branch: a compiler may move the load of a key into it, and then each load waits for the one before.
fn add(key: u32, i: u32, n: u32, lane: u32) {
    atomicAdd(&bins[((key >> pass_info.shift) & pass_info.mask) * 8u + (lane & 7u)], select(0u, 1u, i < n));
}

fn add4(keys: vec4<u32>, i: u32, n: u32, lane: u32) {
    add(keys.x, i, n, lane);
    add(keys.y, i + 256u, n, lane);
    add(keys.z, i + 512u, n, lane);
    add(keys.w, i + 768u, n, lane);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    if (lane == 0u) { live = min(step.counts[pass_info.count], pass_info.capacity); }
    let n = workgroupUniformLoad(&live);
    let blocks = (n + SORT_BLOCK - 1u) / SORT_BLOCK;
    for (var block = flat_group(group, groups); block < blocks; block += groups.x * groups.y) {
        let first = block * SORT_BLOCK + lane;
        let a = load4(first, n);
        let b = load4(first + 1024u, n);
        let c = load4(first + 2048u, n);
        for (var k = 0u; k < 8u; k++) { atomicStore(&bins[k * 256u + lane], 0u); }
        workgroupBarrier();
        add4(a, first, n, lane);
        add4(b, first + 1024u, n, lane);
        add4(c, first + 2048u, n, lane);
        workgroupBarrier();
        var sum = 0u;
        // Each quarter begins at a different counter, so that 32 invocations read 32 banks.
        for (var k = 0u; k < 8u; k++) { sum += atomicLoad(&bins[lane * 8u + ((k + lane / 4u) & 7u)]); }
        digits[lane * digit_stride(pass_info.capacity) + block] = sum;
        workgroupBarrier();
    }
}
