// Halves the counters of rows and their copies in slots, as often as begin has found (SPEC 3, Window); mostly never.
// Dispatched once for each piece of the counters; the first dispatch has the slots.
//
// Bytes moved where counters are halved: a word each way for 8 rows, and for each slot.
#include "shared/common.wgsl"
#include "shared/meta.wgsl"
#include "shared/piece.wgsl"

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<uniform> piece: Piece;
@group(0) @binding(2) var<storage, read_write> step: Step;
@group(0) @binding(3) var<storage, read_write> ways: array<u32>;
@group(0) @binding(4) var<storage, read_write> freqs: array<u32>; // 8 counters a word

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let halvings = step.counts[COUNT_HALVINGS];
    if (halvings == 0u) { return; }
    let kept = 0x11111111u * (15u >> halvings);
    let words = (piece.rows + 7u) / 8u;
    let slots = select(0u, params.slots, piece.first_row == 0u);
    for (var i = flat_group(group, groups) * 256u + lane; i < max(words, slots); i += groups.x * groups.y * 256u) {
        if (i < words) { freqs[i] = (freqs[i] >> halvings) & kept; }
        if (i < slots) { ways[way_at(i, FREQ)] >>= halvings; }
    }
}
