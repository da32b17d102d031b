// Looks up the row of each access in its set (SPEC 3, step 2). The 32 tags of a set are one line of 128 bytes. How many
// lanes read it together is the body's choice (shared/lookup_*.wgsl). Misses are listed in any order; the sort that
// follows orders them. The digits by which it begins are counted here.
//
// Bytes moved per access: key 4, tags 128 (mostly from the cache), place 4; per miss 8 more.
#include "shared/common.wgsl"
#include "shared/sort.wgsl"

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> step: array<atomic<u32>>; // `Step` as words; the misses are counted in it
@group(0) @binding(2) var<storage, read> keys: array<u32>;               // linear rows, NONE if left out
@group(0) @binding(4) var<storage, read_write> places: array<u32>;       // the slot of a hit, else NONE
@group(0) @binding(5) var<storage, read_write> misses: array<u32>;       // the keys of missed accesses, then their indices
@group(0) @binding(6) var<storage, read_write> miss_digits: array<atomic<u32>>; // zero before; written if params.miss_mask
@group(0) @binding(7) var<storage, read_write> tables: array<atomic<u32>>;
@group(0) @binding(8) var<storage, read> shares: array<Share>;

#include "shared/shares.wgsl"
#include "shared/lookup_{lookup}.wgsl"
#include "shared/tables.wgsl"
#include "shared/tally.wgsl"

var<workgroup> missed: atomic<u32>;
var<workgroup> missed_before: u32;

fn run(group: vec3<u32>, groups: vec3<u32>, lane: Lane) {
    let me = lane_index(lane);
    let i = flat_group(group, groups) * 256u + me;
    var row = NONE;
    // A refused step has no rows: its outputs are zero.
    if (i < params.indices && atomicLoad(&step[STEP_COUNTS + COUNT_INDICES]) != 0u) { row = keys[i]; }
    if (me == 0u) { atomicStore(&missed, 0u); }
    tally_begin(me, row);

    let share = share_with(row);
    let home = select(home_in(share, row), NONE, row == NONE);
    let place = look_up(select(row, NONE, home == NONE), select(home, 0u, home == NONE), lane);
    if (i < params.indices) { places[i] = place; }
    let miss = row != NONE && place == NONE;
    var nth = 0u;
    if (miss) { nth = atomicAdd(&missed, 1u); }
    if (row != NONE && params.mode == MODE_TRAIN) {
        let table = counted_in(row);
        tally(table, ACCESSES, 1u);
        if ((params.policy & AGES) != 0u && params.shares > 0u && ages(share)) { tally(table, SINCE_HALVING, 1u); }
        if (!miss) { tally(table, HITS, 1u); }
    }
    tally_end(me);
    if (me == 0u) { missed_before = atomicAdd(&step[STEP_COUNTS + COUNT_MISSED], atomicLoad(&missed)); }
    let before = workgroupUniformLoad(&missed_before);
    if (miss) {
        let key = key_in(share, row);
        let at = before + nth;
        misses[at] = key;
        misses[params.miss_values + at] = i;
        if (params.miss_mask != 0u) {
            atomicAdd(&miss_digits[(key & params.miss_mask) * digit_stride(params.indices) + at / SORT_BLOCK], 1u);
        }
    }
}
