// Halves the counters of rows and their copies in slots, as often as linearize has found (SPEC 3, Window); mostly never. A table
// with a share of the cache has a number of its own.
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
@group(0) @binding(5) var<storage, read> shares: array<Share>;

#include "shared/shares.wgsl"

// How often the counter of a row is halved.
fn halvings_with(row: u32) -> u32 {
    if (params.shares == 0u) { return step.counts[COUNT_HALVINGS]; }
    return shares[share_of(row)].halvings;
}

// A word of counters from `row` on, halved.
fn halved(word: u32, row: u32) -> u32 {
    let halvings = halvings_with(row);
    if (share_of(row + 7u) == share_of(row)) { return (word >> halvings) & (0x11111111u * (15u >> halvings)); }
    var out = 0u;
    for (var k = 0u; k < 8u; k++) { out |= (((word >> (4u * k)) & 15u) >> halvings_with(row + k)) << (4u * k); }
    return out;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    if (step.counts[COUNT_HALVINGS] == 0u) { return; }
    let words = (piece.rows + 7u) / 8u;
    let slots = select(0u, params.slots, piece.first_row == 0u);
    for (var i = flat_group(group, groups) * 256u + lane; i < max(words, slots); i += groups.x * groups.y * 256u) {
        if (i < words) { freqs[i] = halved(freqs[i], piece.first_row + 8u * i); }
        if (i < slots) {
            let row = ways[way_at(i, TAG)];
            if (row != NONE) { ways[way_at(i, FREQ)] >>= halvings_with(row); }
        }
    }
}
