// Looks up the row of each access in its set (SPEC 3, step 2). One invocation for each access: the 32 tags of a set are
// one line of 128 bytes, read as eight independent loads of 16 bytes. Misses are listed in any order; the sort that
// follows orders them.
//
// Bytes moved per access: key 4, tags 128 (mostly from the cache), place 4; per miss 8 more.
#include "shared/common.wgsl"
#include "shared/hash.wgsl"

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> step: array<atomic<u32>>; // `Step` as words; the misses are counted in it
@group(0) @binding(2) var<storage, read> keys: array<u32>;               // linear rows, NONE if left out
@group(0) @binding(3) var<storage, read> ways: array<vec4<u32>>;         // 32 vec4 for each set, the first 8 of them tags
@group(0) @binding(4) var<storage, read_write> places: array<u32>;       // the slot of a hit, else NONE
@group(0) @binding(5) var<storage, read_write> miss_keys: array<u32>;
@group(0) @binding(6) var<storage, read_write> miss_index: array<u32>;   // the index of each missed access
@group(0) @binding(7) var<storage, read_write> tables: array<atomic<u32>>;

#include "shared/tables.wgsl"
#include "shared/tally.wgsl"

var<workgroup> missed: atomic<u32>;
var<workgroup> missed_before: u32;

// Bit k: component k of the vec4 is the row.
fn matches(quad: vec4<u32>, row: u32) -> u32 {
    let bits = select(vec4<u32>(0u), vec4<u32>(1u, 2u, 4u, 8u), quad == vec4<u32>(row));
    return bits.x | bits.y | bits.z | bits.w;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let i = flat_group(group, groups) * 256u + lane;
    var row = NONE;
    // A refused step has no rows: its outputs are zero.
    if (i < params.indices && atomicLoad(&step[STEP_COUNTS + COUNT_INDICES]) != 0u) { row = keys[i]; }
    if (lane == 0u) { atomicStore(&missed, 0u); }
    tally_begin(lane, row);

    var place = NONE;
    if (row != NONE && params.sets > 0u) {
        let home = fmix32(row) % params.sets;
        let at = home * 32u;
        let found = matches(ways[at], row) | (matches(ways[at + 1u], row) << 4u)
            | (matches(ways[at + 2u], row) << 8u) | (matches(ways[at + 3u], row) << 12u)
            | (matches(ways[at + 4u], row) << 16u) | (matches(ways[at + 5u], row) << 20u)
            | (matches(ways[at + 6u], row) << 24u) | (matches(ways[at + 7u], row) << 28u);
        if (found != 0u) { place = home * 32u + firstTrailingBit(found); }
    }
    if (i < params.indices) { places[i] = place; }
    let miss = row != NONE && place == NONE;
    var nth = 0u;
    if (miss) { nth = atomicAdd(&missed, 1u); }
    if (row != NONE && params.mode == MODE_TRAIN) {
        tally(row, ACCESSES, 1u);
        if (!miss) { tally(row, HITS, 1u); }
    }
    tally_end(lane);
    if (lane == 0u) { missed_before = atomicAdd(&step[STEP_COUNTS + COUNT_MISSED], atomicLoad(&missed)); }
    let before = workgroupUniformLoad(&missed_before);
    if (miss) {
        miss_keys[before + nth] = miss_key(row, params.sets);
        miss_index[before + nth] = i;
    }
}
