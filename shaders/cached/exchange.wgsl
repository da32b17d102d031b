// Moves rows between the table and FP32 (SPEC 3, step 5): evictions, fetches, flushes, bypassed rows. Each swap packs
// the row that leaves a place and then unpacks the row that comes. A dispatch binds as many pieces of the table as the
// device allows. If it binds all, it does both. If not, all dispatches that pack come before those that unpack, and a
// workgroup first lists the swaps of a block that concern the bound pieces.
//
// Bytes moved per swap: 16, a slot row each way (4 dim + state), a record each way (stride); per row that comes to a slot:
// 16 (flags, tag, stamp); per workgroup: 4 for each of up to 64 tables.
#include "shared/common.wgsl"
#include "shared/meta.wgsl"
#include "shared/quad{width}.wgsl"
#include "shared/piece.wgsl"
#include "shared/swap.wgsl"

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<uniform> piece: Piece;
@group(0) @binding(2) var<storage, read_write> step: Step;
@group(0) @binding(3) var<storage, read> swaps: array<Swap>;
@group(0) @binding(4) var<storage, read_write> records: array<Item>;
@group(0) @binding(5) var<storage, read_write> cache: array<Quad>;
@group(0) @binding(6) var<storage, read_write> scratch: array<Quad>;
@group(0) @binding(7) var<storage, read_write> ways: array<u32>;
@group(0) @binding(8) var<storage, read_write> tables: array<atomic<u32>>;

#include "shared/tables.wgsl"
#include "shared/row_counts.wgsl"
#include "shared/row_{rank}.wgsl"
#include "shared/piece_list.wgsl"
#include "shared/half.wgsl"
#include "shared/rng.wgsl"
#include "shared/slots.wgsl"
#include "shared/store.wgsl"
#include "shared/pack.wgsl"
#include "shared/unpack{width}.wgsl"

var<workgroup> length: u32;

// Unpacks a record.
fn unpack_row(record: Record, row: u32, place: u32, part: u32) {
    let weights = weight_quads();
    for (var q = part; q < weights; q += params.lanes) { store_quad(place, q, record_weights(record, q)); }
    for (var q = part; q < params.row_quads - weights; q += params.lanes) {
        store_quad(place, weights + q, record_state(record, q));
    }
    if (part == 0u && place >= params.slots && params.mode == MODE_TRAIN) { count_row(row, BYPASS_READS); }
}

// Gives an admitted row, which is in its slot now, the tag and the stamp.
fn publish(slot: u32, row: u32) {
    let flags = ways[way_at(slot, FLAGS)];
    if ((flags & COMING) == 0u) { return; }
    ways[way_at(slot, TAG)] = row;
    ways[way_at(slot, STAMP)] = step.t;
    ways[way_at(slot, FLAGS)] = flags & ~COMING;
}

fn concerns(i: u32) -> bool {
    let one = swaps[i];
    if (one.place == NONE) { return false; }
    let packs = (piece.phases & PACK) != 0u && (one.flags & WRITE) != 0u && in_piece(one.victim);
    let keeps = (one.flags & KEEP) != 0u && in_piece(one.victim);
    return packs || ((piece.phases & UNPACK) != 0u && (in_piece(one.row) || keeps));
}

// Carries out swap i; NONE for none. The whole workgroup must call this.
fn handle(i: u32, lane: Lane, asked: Asked) {
    let part = lane_index(lane) & (params.lanes - 1u);
    let j = i - piece.first_swap;
    var one = Swap(NONE, NONE, NONE, 0u);
    if (i != NONE) { one = swaps[i]; }
    let here = one.place != NONE;
    if ((piece.phases & PACK) != 0u) {
        let leaves = here && (one.flags & WRITE) != 0u && in_piece(one.victim);
        let slot = leaves && one.place < params.slots;
        var live = leaves;
        if (slot) { live = (ways[way_at(one.place, FLAGS)] & DIRTY) != 0u; }
        let packed = pack_row(live, one.place, one.victim, j, lane, asked);
        if (packed && part == 0u && params.mode == MODE_TRAIN) {
            count_row(one.victim, select(WRITE_BACKS, BYPASS_WRITES, one.place >= params.slots));
        }
        // All lanes have read the place, and the record is written, before the flags change or the place is
        // overwritten.
        storageBarrier();
        workgroupBarrier();
        if (slot && part == 0u) { ways[way_at(one.place, FLAGS)] &= ~DIRTY; }
    }
    if ((piece.phases & UNPACK) != 0u && here) {
        let transferred = piece.swaps != 0u;
        if (in_piece(one.row)) {
            var record = own_record(one.row);
            if (transferred) { record = arrived(j); }
            unpack_row(record, one.row, one.place, part);
            if (part == 0u && one.place < params.slots) { publish(one.place, one.row); }
        }
        if ((one.flags & KEEP) != 0u && in_piece(one.victim)) {
            var record = own_record(one.victim);
            if (transferred) { record = kept_in_transfer(j); }
            unpack_row(record, one.victim, params.slots + i, part);
        }
    }
}

fn run(group: vec3<u32>, groups: vec3<u32>, lane: Lane) {
    let me = lane_index(lane);
    if (me == 0u) {
        length = select(0u, step.counts[COUNT_SWAPS], step.number == step.wanted);
        if (piece.swaps != 0u) { length = min(length, piece.first_swap + piece.swaps); }
    }
    let n = workgroupUniformLoad(&length);
    pack_step = step.t;
    each_entry(piece.first_swap, n, group, groups, lane);
}
