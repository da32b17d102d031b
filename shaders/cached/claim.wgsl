// Lists the distinct missing rows with their counts and the keys by which admission orders them (SPEC 3, steps 3 and
// 4). A row is bypassed, in its own place in scratch, until admission gives it a slot. Dispatched once for each piece
// of the counters (once without counters).
#include "shared/common.wgsl"
#include "shared/swap.wgsl"
#include "shared/piece.wgsl"
#include "shared/freqs.wgsl"

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<uniform> piece: Piece;
@group(0) @binding(2) var<storage, read_write> step: Step;
@group(0) @binding(3) var<storage, read> keys: array<u32>;   // linear row of each access
@group(0) @binding(4) var<storage, read> order: array<u32>;  // the missing accesses, sorted
@group(0) @binding(5) var<storage, read> starts: array<u32>; // the first access of each distinct row
@group(0) @binding(6) var<storage, read_write> unique: array<Unique>;
@group(0) @binding(7) var<storage, read_write> swaps: array<Swap>;
@group(0) @binding(8) var<storage, read_write> freqs: array<atomic<u32>>; // the counters of this piece's rows, if there are any
@group(0) @binding(9) var<storage, read_write> tables: array<atomic<u32>>;

#include "shared/tables.wgsl"
#include "shared/tally.wgsl"

var<workgroup> misses: u32;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    if (lane == 0u) { misses = step.counts[COUNT_SWAPS]; }
    let n = workgroupUniformLoad(&misses);
    for (var first = flat_group(group, groups) * 256u; first < n; first += groups.x * groups.y * 256u) {
        let u = first + lane;
        var row = NONE;
        if (u < n) { row = keys[order[starts[u]]]; }
        tally_begin(lane, row);
        if (u < n && row - piece.first_row < piece.rows) {
            var end = step.counts[COUNT_MISSED];
            if (u + 1u < n) { end = starts[u + 1u]; }
            let count = end - starts[u];
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
                    key = min(uses + count, params.freq_max);
                    atomicAdd(&freqs[place.x], (key - uses) << place.y);
                    if (params.policy == WINDOW) { key = window_key(key, count); }
                }
            }
            unique[u] = Unique(row, count, key, params.slots + u);
            swaps[u] = Swap(params.slots + u, row, NONE, 0u);
        }
        tally_end(lane);
        workgroupBarrier();
    }
}
