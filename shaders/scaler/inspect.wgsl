// Finds the largest magnitude among scaled gradients. Magnitudes are compared as the bits of FP32 values: as integers,
// so the order of comparisons does not matter, and infinity and NaN exceed all finite values. Several buffers may be
// inspected before `rescale` decides.
//
// Bytes moved per element: 4 (FP32) or 2 (FP16).
#include "shared/half.wgsl"

struct Inspected {
    elements: u32,
    half: u32, // 1: FP16, two elements in a word
    pad0: u32,
    pad1: u32,
}

@group(0) @binding(0) var<uniform> inspected: Inspected;
@group(0) @binding(1) var<storage, read> gradients: array<u32>;
@group(0) @binding(2) var<storage, read_write> greatest: array<atomic<u32>>; // the bits of an FP32 magnitude

var<workgroup> ours: atomic<u32>;

fn magnitude(word: u32) -> u32 {
    if (inspected.half == 0u) { return word & 0x7fffffffu; }
    return max(word & 0x7fffu, (word >> 16u) & 0x7fffu);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    if (lane == 0u) { atomicStore(&ours, 0u); }
    workgroupBarrier();
    let words = (inspected.elements + inspected.half) >> inspected.half;
    let all = groups.x * groups.y * 256u;
    var most = 0u;
    var i = (group.x + group.y * groups.x) * 256u + lane;
    // The upper half of the last word may belong to other data.
    if (inspected.half == 1u && (inspected.elements & 1u) == 1u && i == 0u) { most = gradients[words - 1u] & 0x7fffu; }
    let whole = inspected.elements >> inspected.half;
    for (; i + 3u * all < whole; i += 4u * all) { // four loads in flight
        let a = magnitude(gradients[i]);
        let b = magnitude(gradients[i + all]);
        let c = magnitude(gradients[i + 2u * all]);
        let d = magnitude(gradients[i + 3u * all]);
        most = max(max(most, max(a, b)), max(c, d));
    }
    for (; i < whole; i += all) { most = max(most, magnitude(gradients[i])); }
    atomicMax(&ours, most);
    workgroupBarrier();
    if (lane != 0u) { return; }
    most = atomicLoad(&ours);
    if (inspected.half == 1u) { most = bits_from_half(most); }
    atomicMax(&greatest[0], most);
}
