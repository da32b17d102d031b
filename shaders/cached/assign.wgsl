// Writes rows: the caller's FP32 values replace the weights of the listed rows, in slot or scratch; the state stays, but for states that follow from weights.
// Lists the swaps that write bypassed rows to the table. A row with a value that is not finite stays as it is and is
// counted. params.lanes invocations share a row.
//
// Bytes moved per row: 8, 4 dim in (twice, the second time from L1) and out, 16.
#include "shared/common.wgsl"
#include "shared/meta.wgsl"
#include "shared/swap.wgsl"
#include "shared/quad{width}.wgsl"
#include "shared/rate.wgsl"

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> keys: array<u32>;    // linear rows, ascending
@group(0) @binding(2) var<storage, read> places: array<u32>;
@group(0) @binding(3) var<storage, read> values: array<Bits>; // the values of each row, as bits
@group(0) @binding(4) var<storage, read_write> cache: array<Quad>;
@group(0) @binding(5) var<storage, read_write> scratch: array<Quad>;
@group(0) @binding(6) var<storage, read_write> ways: array<u32>;
@group(0) @binding(7) var<storage, read_write> swaps: array<Swap>; // the swaps of the bypassed rows
@group(0) @binding(8) var<storage, read_write> tables: array<atomic<u32>>;
@group(0) @binding(9) var<uniform> rate: Rate;

#include "shared/tables.wgsl"
#include "shared/slots.wgsl"
#include "shared/store.wgsl"
#include "shared/correction.wgsl"
#include "shared/rule.wgsl"

var<workgroup> bad: array<atomic<u32>, 64>; // for each row: a value is not finite

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
    let lane = local & (params.lanes - 1u);
    let mine = local / params.lanes;
    let i = flat_group(group, groups) * (256u / params.lanes) + mine;
    let live = i < params.indices;
    if (lane == 0u) { atomicStore(&bad[mine], 0u); }
    workgroupBarrier();
    if (live) {
        for (var q = lane; q < weight_quads(); q += params.lanes) {
            if (!is_finite(values[i * weight_quads() + q])) { atomicStore(&bad[mine], 1u); }
        }
    }
    workgroupBarrier();
    if (!live) { return; }
    let place = places[i];
    let bypass = place >= params.slots;
    let refused = atomicLoad(&bad[mine]) != 0u;
    if (!refused) {
        for (var q = lane; q < weight_quads(); q += params.lanes) {
            let w = bitcast<Quad>(values[i * weight_quads() + q]);
            store_quad(place, q, w);
            if (params.begins == 1u) {
                let second = 2u * weight_quads() + q;
                let e = begun(Element(Quad(0.0), w, load_quad(place, weight_quads() + q), load_quad(place, second)), numbers_at(0u));
                store_quad(place, second, e.second);
            }
        }
    }
    if (lane != 0u) { return; }
    // The look-up made a swap for each missing row. This swap replaces it.
    if (bypass) { swaps[place - params.slots] = Swap(select(place, NONE, refused), NONE, keys[i], WRITE); }
    if (refused) {
        count(table_of(keys[i]), SKIPPED_ROWS, 1u);
    } else if (!bypass) {
        ways[way_at(place, FLAGS)] |= DIRTY;
    }
}
