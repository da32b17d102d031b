// Records the accesses (SPEC 3, steps 3 and 4). Hits: the first touch of a step stamps the slot; policies that count uses count every
// access, in the slot and in the row's counter. Misses: lists the distinct rows, each with the key by which admission
// orders it. Such a row is bypassed, in its own place in scratch, until admission gives it a slot. One invocation for each
// access, and for each missing row; dispatched once for each piece of the counters (once without counters).
#include "shared/common.wgsl"
#include "shared/meta.wgsl"
#include "shared/swap.wgsl"
#include "shared/piece.wgsl"
#include "shared/freqs.wgsl"

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<uniform> piece: Piece;
@group(0) @binding(2) var<storage, read_write> step: Step;
@group(0) @binding(3) var<storage, read> keys: array<u32>;
@group(0) @binding(4) var<storage, read> places: array<u32>; // slots, or slots + u for missing row u
@group(0) @binding(5) var<storage, read> starts: array<vec2<u32>>; // of each missing row the first of its sorted accesses, and that one's index
@group(0) @binding(6) var<storage, read_write> ways: array<atomic<u32>>;
@group(0) @binding(7) var<storage, read_write> freqs: array<atomic<u32>>; // the counters of this piece's rows, if there are any
@group(0) @binding(8) var<storage, read_write> swaps: array<Swap>;
@group(0) @binding(9) var<storage, read_write> tables: array<atomic<u32>>;

#include "shared/tables.wgsl"
#include "shared/tally.wgsl"

// The slots that this workgroup touches. Up to half of a batch may access one hot row, and these accesses must not all
// wait for one word of memory: the first of the workgroup stamps the slot, and their number is added at once. A
// slot whose entry is taken by another slot is stamped and counted in memory directly.
var<workgroup> slots: array<atomic<u32>, 256>;
var<workgroup> counts: array<atomic<u32>, 256>;
var<workgroup> rows: array<u32, 256>;
var<workgroup> misses: u32;

// A batch has at most 2^30 accesses, so the sum does not wrap before it is capped.
fn add(slot: u32, row: u32, amount: u32) {
    let freq = way_at(slot, FREQ);
    // A load first: most hot rows have the greatest counter.
    if (atomicLoad(&ways[freq]) < params.freq_max) {
        if (atomicAdd(&ways[freq], amount) + amount > params.freq_max) { atomicMin(&ways[freq], params.freq_max); }
    }
    let place = freq_place(row - piece.first_row);
    if (params.freq_bits == 32u) {
        if (atomicAdd(&freqs[place.x], amount) + amount > params.freq_max) { atomicMin(&freqs[place.x], params.freq_max); }
        return;
    }
    var word = atomicLoad(&freqs[place.x]);
    loop { // until no other row's counter in the word has changed meanwhile
        let uses = freq_in(word, place.y);
        let more = min(uses + amount, params.freq_max) - uses;
        if (more == 0u) { return; }
        let tried = atomicCompareExchangeWeak(&freqs[place.x], word, word + (more << place.y));
        if (tried.exchanged) { return; }
        word = tried.old_value;
    }
}

// Records the hit of index i, if it is one. The whole workgroup must call this.
fn hit(i: u32, lane: u32) {
    var row = NONE;
    var slot = NONE;
    if (i < params.indices) {
        row = keys[i];
        slot = places[i];
    }
    atomicStore(&slots[lane], NONE);
    atomicStore(&counts[lane], 0u);
    tally_begin(lane, row); // ends with a barrier
    if (slot < params.slots && row - piece.first_row < piece.rows) {
        let entry = (slot * 0x9e3779b1u) >> 24u;
        let tried = atomicCompareExchangeWeak(&slots[entry], NONE, slot);
        let listed = !tried.exchanged && tried.old_value == slot;
        if (tried.exchanged) { rows[entry] = row; }
        if (!listed) {
            let stamp = way_at(slot, STAMP);
            // A load first: most workgroups that access a hot row come late and need no atomic exchange.
            if (atomicLoad(&ways[stamp]) != step.t) {
                if (atomicMax(&ways[stamp], step.t) != step.t) { tally(counted_in(row), UNIQUE, 1u); }
            }
        }
        if (counts_uses()) {
            if (tried.exchanged || listed) {
                atomicAdd(&counts[entry], 1u);
            } else {
                add(slot, row, 1u);
            }
        }
    }
    tally_end(lane); // begins with a barrier
    let counted = atomicLoad(&counts[lane]);
    if (counted > 0u) { add(atomicLoad(&slots[lane]), rows[lane], counted); }
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    if (params.mode == MODE_TRAIN && params.sets > 0u) { hit(flat_group(group, groups) * 256u + lane, lane); }
    if (lane == 0u) { misses = step.counts[COUNT_SWAPS]; }
    let n = workgroupUniformLoad(&misses);
    for (var first = flat_group(group, groups) * 256u; first < n; first += groups.x * groups.y * 256u) {
        let u = first + lane;
        var row = NONE;
        if (u < n) { row = keys[starts[u].y]; }
        tally_begin(lane, row);
        if (u < n && row - piece.first_row < piece.rows) {
            var end = step.counts[COUNT_MISSED];
            if (u + 1u < n) { end = starts[u + 1u].x; }
            let count = end - starts[u].x;
            var key = count;
            if (params.mode == MODE_TRAIN) {
                let table = counted_in(row);
                tally(table, UNIQUE, 1u);
                tally(table, UNIQUE_MISSES, 1u);
                if (counts_uses()) {
                    // A batch has at most 2^30 accesses, so the sum does not wrap; and each row is added to once, so that no
                    // carry reaches the counter beside it.
                    let place = freq_place(row - piece.first_row);
                    let uses = freq_in(atomicLoad(&freqs[place.x]), place.y);
                    let now = min(uses + count, params.freq_max);
                    atomicAdd(&freqs[place.x], (now - uses) << place.y);
                    key = admission_key(now, count);
                }
            }
            swaps[u] = Swap(params.slots + u, row, key, 0u);
        }
        tally_end(lane);
        workgroupBarrier();
    }
}
