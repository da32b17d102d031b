// Marks the rows that were hit (SPEC 3.3): the first touch in a step stamps the slot; LFU counts every access, in the slot and in
// the row's own counter, which is kept for ever. One invocation an access, one dispatch a shard of the counters (LRU: one in all).
#include "shared/common.wgsl"
#include "shared/meta.wgsl"
#include "shared/shard.wgsl"

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<uniform> shard: Shard;
@group(0) @binding(2) var<storage, read_write> step: Step;
@group(0) @binding(3) var<storage, read> keys: array<u32>;
@group(0) @binding(4) var<storage, read> places: array<u32>;
@group(0) @binding(5) var<storage, read_write> ways: array<atomic<u32>>;
@group(0) @binding(6) var<storage, read_write> freqs: array<atomic<u32>>; // of this shard's rows; LRU: not used
@group(0) @binding(7) var<storage, read_write> tables: array<atomic<u32>>;

#include "shared/tables.wgsl"
#include "shared/tally.wgsl"

// LFU: accesses to one slot, counted here before they go to memory: a hot row, and half a batch may want it, must not make
// every access wait for one word. A slot that finds its entry taken by another goes to memory at once.
var<workgroup> slots: array<atomic<u32>, 256>;
var<workgroup> counts: array<atomic<u32>, 256>;
var<workgroup> rows: array<u32, 256>;

// A batch has at most 2^30 accesses: no wrap before what is beyond the end is cut.
fn add(slot: u32, row: u32, amount: u32) {
    let freq = way_at(slot, FREQ);
    if (atomicAdd(&ways[freq], amount) + amount > FREQ_MAX) { atomicMin(&ways[freq], FREQ_MAX); }
    let at = row - shard.first_row;
    if (atomicAdd(&freqs[at], amount) + amount > FREQ_MAX) { atomicMin(&freqs[at], FREQ_MAX); }
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let i = flat_group(group, groups) * 256u + lane;
    var row = NONE;
    var slot = NONE;
    if (i < params.indices) {
        row = keys[i];
        slot = places[i];
    }
    atomicStore(&slots[lane], NONE);
    atomicStore(&counts[lane], 0u);
    tally_begin(lane, row); // and a barrier
    if (slot != NONE && row - shard.first_row < shard.rows) {
        let stamp = way_at(slot, STAMP);
        // Looked at first: most accesses to a hot row come late, and need no atomic.
        if (atomicLoad(&ways[stamp]) != step.t) {
            if (atomicMax(&ways[stamp], step.t) != step.t) { tally(row, UNIQUE, 1u); }
        }
        if (params.policy == LFU) {
            let entry = (slot * 0x9e3779b1u) >> 24u;
            let tried = atomicCompareExchangeWeak(&slots[entry], NONE, slot);
            if (tried.exchanged) { rows[entry] = row; }
            if (tried.exchanged || tried.old_value == slot) {
                atomicAdd(&counts[entry], 1u);
            } else {
                add(slot, row, 1u);
            }
        }
    }
    tally_end(lane); // a barrier first
    let counted = atomicLoad(&counts[lane]);
    if (counted > 0u) { add(atomicLoad(&slots[lane]), rows[lane], counted); }
}
