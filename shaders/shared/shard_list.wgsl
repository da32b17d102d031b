// Lists the entries of a block that concern the bound shards, so that a workgroup spends no turn on rows of others.
// Needs `params`, shared/shard.wgsl and a function `concerns(i)`: whether entry i is such an entry.
const LISTED: u32 = 2048u; // entries of a block

var<workgroup> listed: array<atomic<u32>, 1024>; // their positions in the block, two in a word, in any order
var<workgroup> listed_next: atomic<u32>;
var<workgroup> listed_count: u32;

// Whether the list has rows of shards that are not bound.
fn is_cut() -> bool {
    return shard.rows < params.total_rows;
}

// Lists the entries from `first` on, below `n`; returns their number. The whole workgroup must call this.
fn list_block(first: u32, n: u32, local: u32) -> u32 {
    workgroupBarrier(); // all invocations have read the list of the last block
    for (var k = 0u; k < 4u; k++) { atomicStore(&listed[k * 256u + local], 0u); }
    if (local == 0u) { atomicStore(&listed_next, 0u); }
    workgroupBarrier();
    for (var k = local; k < min(LISTED, n - first); k += 256u) {
        if (concerns(first + k)) {
            let at = atomicAdd(&listed_next, 1u);
            atomicOr(&listed[at / 2u], k << (16u * (at & 1u)));
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
