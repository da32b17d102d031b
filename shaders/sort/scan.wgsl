// Replaces rows with their exclusive prefix sums; the sum of each row goes to `totals`. A row has room for the blocks of
// `capacity` items. Clears as many rows of another array if asked. A workgroup scans whole rows, eight at a time where they are short, and needs no sum of
// another workgroup.
#include "shared/common.wgsl"
#include "shared/scan.wgsl"
#include "shared/lanes_{rank}.wgsl"

@group(0) @binding(0) var<uniform> info: ScanInfo;
@group(0) @binding(1) var<storage, read_write> step: Step;
@group(0) @binding(2) var<storage, read_write> data: array<u32>;
@group(0) @binding(3) var<storage, read_write> totals: array<u32>;
@group(0) @binding(4) var<storage, read_write> cleared: array<u32>; // the digits that the next scatter counts

var<workgroup> live: u32;
var<workgroup> begins: array<u32, 8>; // of each of eight short rows, the sum of those before it

// Words `i` to `i + 3` of a row that ends before `end`; 0 behind the end.
fn load4(i: u32, end: u32) -> vec4<u32> {
    let at = i + vec4<u32>(0u, 1u, 2u, 3u);
    let near = min(at, vec4<u32>(end - 1u));
    return select(vec4<u32>(0u), vec4<u32>(data[near.x], data[near.y], data[near.z], data[near.w]), at < vec4<u32>(end));
}

fn store4(i: u32, end: u32, before: u32, values: vec4<u32>) {
    if (i < end) { data[i] = before; }
    if (i + 1u < end) { data[i + 1u] = before + values.x; }
    if (i + 2u < end) { data[i + 2u] = before + values.x + values.y; }
    if (i + 3u < end) { data[i + 3u] = before + values.x + values.y + values.z; }
}

fn clear4(i: u32, end: u32) {
    if (info.clears == 0u) { return; }
    for (var k = i; k < min(i + 4u, end); k++) { cleared[k] = 0u; }
}

fn sum4(values: vec4<u32>) -> u32 { return values.x + values.y + values.z + values.w; }

fn run(group: vec3<u32>, groups: vec3<u32>, lane: Lane) {
    let me = lane_index(lane);
    if (me == 0u) { live = min(step.counts[info.count], info.capacity); }
    let n = workgroupUniformLoad(&live);
    let length = (n + info.per_block - 1u) / info.per_block;
    let stride = (info.capacity + info.per_block - 1u) / info.per_block;
    let first_row = flat_group(group, groups);
    let all = groups.x * groups.y;
    if (length <= SCAN_SHORT) { // 32 lanes for each row, and eight neighbours for each lane
        for (var first = first_row * 8u; first < info.rows; first += all * 8u) {
            let row = first + me / 32u;
            let end = select(0u, row * stride + length, row < info.rows);
            let i = row * stride + (me & 31u) * 8u;
            var a = vec4<u32>(0u);
            var b = vec4<u32>(0u);
            if (i < end) {
                a = load4(i, end);
                b = load4(i + 4u, end);
            }
            let own = sum4(a) + sum4(b);
            let before = scan_lanes(own, lane).before;
            if ((me & 31u) == 0u) { begins[me / 32u] = before; }
            workgroupBarrier();
            let carry = before - begins[me / 32u];
            if (i < end) {
                store4(i, end, carry, a);
                store4(i + 4u, end, carry + sum4(a), b);
                clear4(i, end);
                clear4(i + 4u, end);
            }
            if ((me & 31u) == 31u && row < info.rows) { totals[row] = carry + own; }
        }
    } else { // one row for each workgroup
        for (var row = first_row; row < info.rows; row += all) {
            let end = row * stride + length;
            var carry = 0u;
            for (var first = row * stride; first < end; first += SCAN_TILE) {
                let i = first + me * 8u;
                var a = vec4<u32>(0u);
                var b = vec4<u32>(0u);
                if (i < end) {
                    a = load4(i, end);
                    b = load4(i + 4u, end);
                }
                let scan = scan_lanes(sum4(a) + sum4(b), lane);
                if (i < end) {
                    store4(i, end, carry + scan.before, a);
                    store4(i + 4u, end, carry + scan.before + sum4(a), b);
                    clear4(i, end);
                    clear4(i + 4u, end);
                }
                carry += scan.total;
            }
            if (me == 0u) { totals[row] = carry; }
        }
    }
}
