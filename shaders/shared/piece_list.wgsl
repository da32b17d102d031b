// Goes over a list of rows. Where only some pieces are bound, a workgroup first lists the entries of a block that concern
// them, so that it spends no turn on rows of others. Needs `params`, shared/piece.wgsl, shared/row_counts.wgsl, and two
// functions: `concerns(i)`, whether entry i concerns the bound pieces, and `handle(i, lane, asked)`, which the whole workgroup
// calls with one entry for each `params.lanes` invocations; NONE for none.
const LISTED: u32 = 2048u; // entries of a block

var<workgroup> listed: array<atomic<u32>, 1024>; // their positions in the block, two in a word, in any order
var<workgroup> listed_next: atomic<u32>;
var<workgroup> listed_count: u32;

// The fields of `params` that branches and loops around barriers ask, read before any other loop. Behind a loop that reads a buffer and that
// invocations leave at different turns, FXC (DX12) takes what they read from that buffer for different, and refuses such barriers.
struct Asked {
    lanes: u32,
    state_bits: u32,
    scalars: u32,
    own_count: u32,
    clip_norm: f32,
}

// Whether the list has rows of pieces that are not bound.
fn is_cut() -> bool {
    return piece.rows < params.total_rows;
}

// Lists the entries from `first` on, below `n`; returns their number. The whole workgroup must call this.
fn list_block(first: u32, n: u32, local: u32) -> u32 {
    workgroupBarrier(); // all invocations have read the list of the last block
    for (var k = 0u; k < 4u; k++) { atomicStore(&listed[k * 256u + local], 0u); }
    if (local == 0u) { atomicStore(&listed_next, 0u); }
    workgroupBarrier();
    let end = first + min(LISTED, n - first);
    for (var turn = first; turn < end; turn += 256u) {
        let i = turn + local;
        if (i < end && concerns(i)) {
            let at = atomicAdd(&listed_next, 1u);
            atomicOr(&listed[at / 2u], (i - first) << (16u * (at & 1u)));
        }
    }
    workgroupBarrier();
    if (local == 0u) { listed_count = atomicLoad(&listed_next); }
    return workgroupUniformLoad(&listed_count);
}

// The position in the block of entry `at`: of the list, or of a block that is not cut.
fn entry_at(at: u32) -> u32 {
    if (!is_cut()) { return at; }
    return (atomicLoad(&listed[at / 2u]) >> (16u * (at & 1u))) & 0xffffu;
}

// Handles the entries from `from_entry` on, below `n`, together with the other workgroups.
fn each_entry(from_entry: u32, n: u32, group: vec3<u32>, groups: vec3<u32>, lane: Lane) {
    let me = lane_index(lane);
    let at_once = 256u / params.lanes;
    let mine = me / params.lanes;
    let block = select(at_once, LISTED, is_cut());
    let begin = from_entry + flat_group(group, groups) * block;
    let asked = Asked(params.lanes, params.state_bits, params.scalars, params.own_count, params.clip_norm);
    if (begin < n) {
        row_counts_begin(me);
        for (var first = begin; first < n; first += groups.x * groups.y * block) {
            var entries = min(at_once, n - first); // a turn
            if (is_cut()) { entries = list_block(first, n, me); }
            for (var turn = 0u; turn < entries; turn += at_once) {
                var i = NONE;
                if (turn + mine < entries) { i = first + entry_at(turn + mine); }
                handle(i, lane, asked);
            }
        }
        row_counts_end(me);
    }
}
