// Begins a step by a gradient of all shared weights that the caller gives: one chunk over the whole array stands for it,
// so that robe_update or robe_blocks runs the optimiser. If the loss's gradients overflowed, or the forward was refused
// or did not run, the list of chunks is empty, so nothing in the array moves. A forward without an access has not
// advanced the clock. Then this stage does, so that all ranks that train one array have the same clock.
//
// Bytes moved: 150.
#include "shared/common.wgsl"
#include "shared/target.wgsl"
#include "shared/scaler.wgsl"

@group(0) @binding(0) var<uniform> step: array<vec4<u32>, 5>; // `Step` as words
@group(0) @binding(1) var<uniform> scaler: ScalerState;
@group(0) @binding(2) var<storage, read_write> tables: array<u32>;
@group(0) @binding(3) var<storage, read_write> accesses: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read_write> targets: array<Target>;

@compute @workgroup_size(1)
fn main() {
    let runs = step[0].y == 0u && all(step[4].xz == step[4].yw);
    var t = step[0].x;
    if (runs && step[2].x == 0u) { // COUNT_INDICES
        t += 1u;
        tables[0] = t;
    }
    let chunks = select(0u, 1u, runs && scaler.overflow == 0u);
    accesses[0] = vec2<u32>(0u, 0x3f800000u); // coefficient 1
    targets[0] = Target(chunks, chunks, t, bitcast<u32>(scaler.inverse));
    targets[1] = Target(0u, 0u, 0u, 1u);
}
