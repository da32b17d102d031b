// The greatest magnitude of a scaled gradient, by its bits: an integer, so that the order does not matter, and beyond every finite one
// for infinity and NaN. Several buffers may be inspected before `rescale` decides.
// Bytes an element: 4, or 2.
#include "shared/half.wgsl"

struct Inspected {
    elements: u32,
    half: u32, // 1: FP16, two elements a word
    pad0: u32,
    pad1: u32,
}

@group(0) @binding(0) var<uniform> inspected: Inspected;
@group(0) @binding(1) var<storage, read> gradients: array<u32>;
@group(0) @binding(2) var<storage, read_write> greatest: array<atomic<u32>>; // bits of an FP32 magnitude

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
    // The last word may be half somebody else's.
    if (inspected.half == 1u && (inspected.elements & 1u) == 1u && i == 0u) { most = gradients[words - 1u] & 0x7fffu; }
    let whole = inspected.elements >> inspected.half;
    for (; i + 3u * all < whole; i += 4u * all) { // four in flight
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
