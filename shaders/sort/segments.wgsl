// Dedup, last of two stages: writes the `segment` of each sorted key, the `starts` of each distinct key, and their
// counts. A workgroup sums the first keys of the blocks before its own: 4 bytes for each 2,048 keys.
#include "shared/common.wgsl"
#include "shared/dedup.wgsl"
#include "shared/lanes_{rank}.wgsl"

@group(0) @binding(0) var<uniform> info: DedupInfo;
@group(0) @binding(1) var<storage, read_write> step: Step;
@group(0) @binding(2) var<storage, read> keys: array<u32>;
@group(0) @binding(3) var<storage, read> heads: array<u32>; // number of first keys of each block
@group(0) @binding(4) var<storage, read> values: array<u32>; // of the sorted keys; read only with info.by_value
@group(0) @binding(5) var<storage, read_write> segment: array<u32>;
@group(0) @binding(6) var<storage, read_write> starts: array<u32>;

// One word for each key, with a gap after every eighth: an invocation counts along eight neighbours, and 32 invocations
// use 32 banks.
var<workgroup> begun: array<u32, 2304>;
var<workgroup> live: u32;

#include "shared/head.wgsl"

fn begun_at(j: u32) -> u32 { return j + j / 8u; }

// The number of first keys in blocks `first` to `end - 1`. The whole workgroup must call this.
fn heads_between(first: u32, end: u32, lane: Lane) -> u32 {
    var sum = 0u;
    for (var block = first; block < end; block += 256u) {
        let mine = block + lane_index(lane);
        if (mine < end) { sum += heads[mine]; }
    }
    return scan_lanes(sum, lane).total;
}

fn run(group: vec3<u32>, groups: vec3<u32>, lane: Lane) {
    let me = lane_index(lane);
    if (me == 0u) { live = min(step.counts[info.count], info.capacity); }
    let n = workgroupUniformLoad(&live);
    if (me == 0u && flat_group(group, groups) == 0u) {
        if (n == 0u) { step.counts[info.segments] = 0u; }
        var nothing = n == 0u;
        if (!nothing) { nothing = keys[0] == NONE; }
        if (nothing) { step.counts[info.valid] = 0u; }
    }
    let blocks = (n + DEDUP_BLOCK - 1u) / DEDUP_BLOCK;
    var counted = 0u;      // blocks before this one
    var first_keys = 0u;   // and their first keys
    for (var block = flat_group(group, groups); block < blocks; block += groups.x * groups.y) {
        first_keys += heads_between(counted, block, lane);
        counted = block;
        if (me == 0u && block + 1u == blocks) { step.counts[info.segments] = first_keys + heads[block]; }
        let first = block * DEDUP_BLOCK;
        let head = heads_of(first + me, n);
        for (var r = 0u; r < 8u; r++) { begun[begun_at(r * 256u + me)] = (head >> r) & 1u; }
        workgroupBarrier();
        var sum = 0u;
        for (var k = 0u; k < 8u; k++) {
            sum += begun[me * 9u + k];
            begun[me * 9u + k] = sum;
        }
        let before = first_keys + scan_lanes(sum, lane).before;
        for (var k = 0u; k < 8u; k++) { begun[me * 9u + k] += before; }
        workgroupBarrier();
        for (var r = 0u; r < 8u; r++) {
            let i = first + r * 256u + me;
            if (i >= n) { continue; }
            if (keys[i] == NONE) { continue; }
            let here = begun[begun_at(r * 256u + me)] - 1u;
            let begins = ((head >> r) & 1u) == 1u;
            if (info.by_value == 0u) {
                segment[i] = here;
                if (begins) { starts[here] = i; }
            } else {
                let value = values[i];
                segment[value] = info.base + here;
                if (begins) {
                    starts[2u * here] = i;
                    starts[2u * here + 1u] = value;
                }
            }
            var last = true;
            if (i + 1u < n) { last = keys[i + 1u] == NONE; }
            if (last) { step.counts[info.valid] = i + 1u; }
        }
        workgroupBarrier();
    }
}
