// Sorts and dedups up to 1,024 keys in one workgroup and one dispatch. The result has the bits of histogram, scan,
// scatter, heads, scan and segments. It is a bitonic network in shared memory over (key, position), so equal keys keep
// their order.
#include "shared/common.wgsl"
#include "shared/sort_small.wgsl"
#include "shared/lanes_{rank}.wgsl"

@group(0) @binding(0) var<uniform> info: SmallInfo;
@group(0) @binding(1) var<storage, read_write> step: Step;
@group(0) @binding(2) var<storage, read> keys_in: array<u32>;
@group(0) @binding(3) var<storage, read> values_in: array<u32>;
@group(0) @binding(4) var<storage, read_write> keys_out: array<u32>;
@group(0) @binding(5) var<storage, read_write> values_out: array<u32>;
@group(0) @binding(6) var<storage, read_write> segment: array<u32>;
@group(0) @binding(7) var<storage, read_write> starts: array<u32>;

var<workgroup> pairs: array<vec2<u32>, SMALL>; // key, position
var<workgroup> live: u32;

fn behind(a: vec2<u32>, b: vec2<u32>) -> bool {
    let x = a.x & info.mask;
    let y = b.x & info.mask;
    return x > y || (x == y && a.y > b.y);
}

fn exchange(t: u32, reach: u32, size: u32) {
    let i = 2u * t - (t & (reach - 1u));
    let a = pairs[i];
    let b = pairs[i + reach];
    if (behind(a, b) == ((i & size) == 0u)) {
        pairs[i] = b;
        pairs[i + reach] = a;
    }
}

// Writes the segments of the sorted keys, four neighbours for each invocation. The whole workgroup must call this.
fn write_segments(n: u32, lane: Lane) {
    let me = lane_index(lane);
    var head = 0u;
    for (var k = 0u; k < 4u; k++) {
        let i = me * 4u + k;
        if (i >= n) { break; }
        let key = pairs[i].x;
        var begins = key != NONE;
        if (i > 0u) { begins = begins && pairs[i - 1u].x != key; }
        head |= select(0u, 1u << k, begins);
    }
    let scan = scan_lanes(countOneBits(head), lane);
    var here = scan.before;
    for (var k = 0u; k < 4u; k++) {
        let i = me * 4u + k;
        if (i >= n) { break; }
        if (pairs[i].x == NONE) { continue; }
        let begins = ((head >> k) & 1u) == 1u;
        if (info.by_value == 0u) {
            if (begins) { starts[here] = i; }
            here += select(0u, 1u, begins);
            segment[i] = here - 1u;
        } else {
            let value = values_in[pairs[i].y];
            if (begins) {
                starts[2u * here] = i;
                starts[2u * here + 1u] = value;
            }
            here += select(0u, 1u, begins);
            segment[value] = info.base + here - 1u;
        }
        var last = true;
        if (i + 1u < n) { last = pairs[i + 1u].x == NONE; }
        if (last) { step.counts[info.valid] = i + 1u; }
    }
    if (me == 0u) {
        step.counts[info.segments] = scan.total;
        var nothing = n == 0u;
        if (!nothing) { nothing = pairs[0].x == NONE; }
        if (nothing) { step.counts[info.valid] = 0u; }
    }
}

fn run(group: vec3<u32>, groups: vec3<u32>, lane: Lane) {
    let me = lane_index(lane);
    if (me == 0u) { live = min(step.counts[info.count], info.capacity); }
    let n = workgroupUniformLoad(&live);
    // Filled up to a power of two with pairs that sort last: all key bits set, and a later position.
    var length = 1u;
    while (length < n) { length *= 2u; }
    for (var turn = 0u; turn < length; turn += 256u) {
        let i = turn + me;
        var key = NONE;
        if (i < n) { key = keys_in[i]; }
        if (i < length) { pairs[i] = vec2<u32>(key, i); }
    }
    workgroupBarrier();
    for (var size = 2u; size <= length; size *= 2u) {
        for (var reach = size / 2u; reach > 0u; reach /= 2u) {
            for (var turn = 0u; turn < length / 2u; turn += 256u) {
                if (turn + me < length / 2u) { exchange(turn + me, reach, size); }
            }
            workgroupBarrier();
        }
    }
    for (var i = me; i < n; i += 256u) {
        let one = pairs[i];
        keys_out[i] = one.x;
        if (info.positions == 1u) { values_out[i] = one.y; } else { values_out[i] = values_in[one.y]; }
    }
    if (info.dedup == 1u) { write_segments(n, lane); }
}
