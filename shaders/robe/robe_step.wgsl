// Runs the optimiser on the sums of robe_scatter: moves each covered weight once and clears its sum and mark. One
// invocation for each weight; dispatched once for each window of the array.
//
// Bytes moved per weight: 4 in; with a sum 4 out and 4 (1 + state) in and out; with marks 1/8.
#include "shared/common.wgsl"
#include "shared/quad1.wgsl"
#include "shared/robe.wgsl"
#include "shared/rate.wgsl"

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<uniform> robe: Robe;
@group(0) @binding(2) var<storage, read_write> sums: array<u32>; // floats as bits, one for each weight
@group(0) @binding(3) var<storage, read_write> covered: array<u32>; // one bit for each weight, if robe.marks
@group(0) @binding(4) var<storage, read_write> memory: array<f32>; // one window; `states` is the same window
@group(0) @binding(5) var<storage, read_write> states: array<f32>;
@group(0) @binding(6) var<storage, read_write> tables: array<atomic<u32>>;
@group(0) @binding(7) var<uniform> rate: Rate;

#include "shared/tables.wgsl"
#include "shared/correction.wgsl"
#include "shared/robe_move.wgsl"
#include "shared/robe_words.wgsl"

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
    let marked = robe.marks == 1u;
    at_step(atomicLoad(&tables[0]));
    let end = min(robe.first + robe.window, robe.weights);
    // Begins at a whole word of marks, so that one workgroup has all 32 weights of a word.
    let block = (robe.first & 0xffffffe0u) + flat_group(group, groups) * 256u;
    for (var first = block; first < end; first += groups.x * groups.y * 256u) {
        let w = first + local;
        var marks = 0u;
        if (marked) {
            if (w < end) { marks = covered[w / 32u]; }
            storageBarrier(); // all 32 invocations have read the word
            // The window that contains the last weight of the word is the last to read it, so it clears it.
            if (marks != 0u && (w & 31u) == 0u && min(w | 31u, robe.weights - 1u) < end) { covered[w / 32u] = 0u; }
        }
        if (w >= robe.first && w < end) {
            // A sum to which nothing, or only zeros, was added is 0.
            let sum = sums[w];
            if (sum != 0u) { sums[w] = 0u; }
            if (select(sum != 0u, ((marks >> (w & 31u)) & 1u) == 1u, marked)) { move_weight(w, bitcast<f32>(sum)); }
        }
    }
}
