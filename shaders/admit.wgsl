// Admission, one workgroup a set (SPEC 3.4): the l-th candidate by (key descending, row ascending) takes the l-th victim
// by (value ascending, way ascending), an empty way before any other.
#include "shared/common.wgsl"
#include "shared/hash.wgsl"
#include "shared/meta.wgsl"

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> step: Step;
@group(0) @binding(2) var<storage, read_write> unique: array<Unique>;
@group(0) @binding(3) var<storage, read> order: array<u32>;  // the missing rows' places in `unique`, set by set
@group(0) @binding(4) var<storage, read> starts: array<u32>; // of each set in `order`
@group(0) @binding(5) var<storage, read_write> ways: array<u32>;
@group(0) @binding(6) var<storage, read_write> victim_rows: array<u32>;  // for each of `order`: dirty row to write back, or NONE
@group(0) @binding(7) var<storage, read_write> victim_slots: array<u32>; // and the slot it is in
@group(0) @binding(8) var<storage, read_write> tables: array<atomic<u32>>;

#include "shared/tables.wgsl"

var<workgroup> segment: vec2<u32>;          // this set's part of `order`
var<workgroup> best_key: array<u32, 64>;    // the best 32 candidates so far, then the next 32
var<workgroup> best_row: array<u32, 64>;
var<workgroup> best_at: array<u32, 64>;     // place in `order`, NONE where there is none
var<workgroup> way_value: array<u32, 32>;   // 0 for an empty way, else the value + 1
var<workgroup> way_by_rank: array<u32, 32>; // victims in order

fn before(a: u32, b: u32) -> bool {
    if (best_at[a] == NONE || best_at[b] == NONE) {
        if (best_at[a] == NONE && best_at[b] == NONE) { return a < b; }
        return best_at[b] == NONE;
    }
    if (best_key[a] != best_key[b]) { return best_key[a] > best_key[b]; }
    return best_row[a] < best_row[b];
}

fn rank(a: u32) -> u32 {
    var r = 0u;
    for (var b = 0u; b < 64u; b++) {
        if (b != a && before(b, a)) { r++; }
    }
    return r;
}

@compute @workgroup_size(32)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let s = flat_group(group, groups);
    if (lane == 0u) {
        segment = vec2<u32>(0u);
        let sets = step.counts[COUNT_SETS];
        if (s < sets) {
            var end = step.counts[COUNT_MISSES];
            if (s + 1u < sets) { end = starts[s + 1u]; }
            segment = vec2<u32>(starts[s], end);
        }
    }
    let bounds = workgroupUniformLoad(&segment);
    if (bounds.x == bounds.y) { return; }
    let home = fmix32(unique[order[bounds.x]].row) % params.sets;
    let t = step.t;

    // The first 32 candidates. The order is total, so which chunk a candidate comes in does not matter.
    best_at[lane] = NONE;
    best_key[lane] = 0u;
    best_row[lane] = NONE;
    for (var chunk = bounds.x; chunk < bounds.y; chunk += 32u) {
        let at = chunk + lane;
        best_at[lane + 32u] = NONE;
        best_key[lane + 32u] = 0u;
        best_row[lane + 32u] = NONE;
        if (at < bounds.y) {
            let one = unique[order[at]];
            best_at[lane + 32u] = at;
            best_key[lane + 32u] = one.key;
            best_row[lane + 32u] = one.row;
            victim_rows[at] = NONE;
            victim_slots[at] = NONE;
        }
        workgroupBarrier();
        let low = vec4<u32>(rank(lane), best_key[lane], best_row[lane], best_at[lane]);
        let high = vec4<u32>(rank(lane + 32u), best_key[lane + 32u], best_row[lane + 32u], best_at[lane + 32u]);
        workgroupBarrier();
        if (low.x < 32u) { best_key[low.x] = low.y; best_row[low.x] = low.z; best_at[low.x] = low.w; }
        if (high.x < 32u) { best_key[high.x] = high.y; best_row[high.x] = high.z; best_at[high.x] = high.w; }
        workgroupBarrier();
    }

    // The victims, as they stand before the set's first admission.
    let slot_of_lane = home * 32u + lane;
    let field = select(STAMP, FREQ, params.policy == LFU);
    let empty = ways[way_at(slot_of_lane, TAG)] == NONE;
    way_value[lane] = select(ways[way_at(slot_of_lane, field)] + 1u, 0u, empty);
    workgroupBarrier();
    var place = 0u;
    for (var other = 0u; other < 32u; other++) {
        if (way_value[other] < way_value[lane] || (way_value[other] == way_value[lane] && other < lane)) { place++; }
    }
    way_by_rank[place] = lane;
    storageBarrier();
    workgroupBarrier();

    if (best_at[lane] == NONE) { return; }
    let way = way_by_rank[lane];
    let slot = home * 32u + way;
    let occupied = way_value[way] != 0u;
    if (occupied) {
        let value = way_value[way] - 1u;
        if (params.policy == LFU) {
            if (value >= best_key[lane]) { return; }
        } else if (value == t) {
            return;
        }
        let victim = ways[way_at(slot, TAG)];
        count(table_of(victim), EVICTIONS, 1u);
        if (ways[way_at(slot, DIRTY)] == 1u) {
            victim_rows[best_at[lane]] = victim;
            victim_slots[best_at[lane]] = slot;
        }
    }
    count(table_of(best_row[lane]), ADMITTED, 1u);
    ways[way_at(slot, TAG)] = best_row[lane];
    ways[way_at(slot, STAMP)] = t;
    ways[way_at(slot, FREQ)] = select(0u, best_key[lane], params.policy == LFU);
    ways[way_at(slot, DIRTY)] = 0u;
    unique[order[best_at[lane]]].slot = slot;
}
