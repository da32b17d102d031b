// Rounds the outputs of a forward, of cached tables or of a shared array, to FP16: to the nearest, ties to even.
// Magnitudes beyond 65504 saturate, infinity stays infinite, and every NaN becomes 0x7e00. An invocation writes a whole
// word, so no two write the same one, also where a row has an odd number of outputs.
//
// Bytes moved per output: 4 read, 2 written. The stage before has written the 4.
#include "shared/half.wgsl"

struct Halves {
    elements: u32,
    pad0: u32,
    pad1: u32,
    pad2: u32,
}

@group(0) @binding(0) var<uniform> halves: Halves;
@group(0) @binding(1) var<storage, read> sums: array<u32>; // the bits of FP32 outputs
@group(0) @binding(2) var<storage, read_write> outputs: array<u32>; // two halves in a word, the first in the lower one

fn rounded(bits: u32) -> u32 {
    let magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) { return 0x7e00u; }
    if (magnitude == 0x7f800000u) { return ((bits >> 16u) & 0x8000u) | 0x7c00u; }
    return half_from_bits(bits, false, 0u);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let first = 2u * ((group.x + group.y * groups.x) * 256u + lane);
    if (first >= halves.elements) { return; }
    var word = rounded(sums[first]);
    // Behind an odd number of outputs the upper half of the last word is 0.
    if (first + 1u < halves.elements) { word |= rounded(sums[first + 1u]) << 16u; }
    outputs[first >> 1u] = word;
}
