// Adds to each block of 1,024 the scanned total of the blocks before it.
#include "shared/common.wgsl"
#include "shared/scan.wgsl"

@group(0) @binding(0) var<uniform> info: ScanInfo;
@group(0) @binding(1) var<storage, read_write> data: array<u32>;
@group(0) @binding(2) var<storage, read> sums: array<u32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let block = flat_group(group, groups);
    for (var k = 0u; k < 4u; k++) {
        let i = block * SCAN_BLOCK + k * 256u + lane;
        if (i < info.n) { data[i] += sums[block]; }
    }
}
