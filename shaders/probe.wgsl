// Looks each distinct row up in its set: 32 lanes, one for each way (SPEC 3.2, and the stamps of 3.3).
#include "shared/common.wgsl"
#include "shared/hash.wgsl"
#include "shared/meta.wgsl"

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> step: Step;
@group(0) @binding(2) var<storage, read> keys: array<u32>;   // sorted linear rows
@group(0) @binding(3) var<storage, read> starts: array<u32>; // of each distinct row in them
@group(0) @binding(4) var<storage, read_write> unique: array<Unique>;
@group(0) @binding(5) var<storage, read_write> rows: array<u32>;     // the distinct rows once more, for the shards
@group(0) @binding(6) var<storage, read_write> set_keys: array<u32>; // set of a missing row, NONE for a hit
@group(0) @binding(7) var<storage, read_write> ways: array<u32>;
@group(0) @binding(8) var<storage, read_write> tables: array<atomic<u32>>;

#include "shared/tables.wgsl"
#include "shared/find_way.wgsl"

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, lane: Lane) {
    let u = flat_group(group, groups) * 8u + lane_row(lane);
    let way = lane_way(lane);
    let live = u < step.counts[COUNT_UNIQUE];
    var row = NONE;
    var home = 0u;
    if (live) {
        row = keys[starts[u]];
        if (params.sets > 0u) { home = fmix32(row) % params.sets; }
    }
    var tag = NONE;
    if (live && params.sets > 0u) { tag = ways[way_at(home * 32u + way, TAG)]; }
    let found = find_way(tag == row && row != NONE, lane);
    if (!live || way != 0u) { return; }

    var end = step.counts[COUNT_VALID];
    if (u + 1u < step.counts[COUNT_UNIQUE]) { end = starts[u + 1u]; }
    let occurrences = end - starts[u];
    let hit = found != NONE;
    unique[u] = Unique(row, occurrences, occurrences, select(NONE, home * 32u + found, hit));
    rows[u] = row;
    set_keys[u] = select(home, NONE, hit);
    if (params.mode != MODE_TRAIN) { return; }
    let table = table_of(row);
    count(table, ACCESSES, occurrences);
    count(table, UNIQUE, 1u);
    if (hit) {
        ways[way_at(home * 32u + found, STAMP)] = step.t;
        count(table, HITS, occurrences);
    } else {
        count(table, UNIQUE_MISSES, 1u);
    }
}
