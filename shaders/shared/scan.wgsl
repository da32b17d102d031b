const SCAN_TILE: u32 = 2048u; // elements of a row that a workgroup takes at once
const SCAN_SHORT: u32 = 256u; // a row of at most this many elements is scanned by 32 lanes

struct ScanInfo {
    count: u32,     // the entry of Step.counts with the number of items
    capacity: u32,  // the most items there can be
    per_block: u32, // items of a block; a row has an element for each block of the items there are
    rows: u32,
    clears: u32,    // 1: the rows of `cleared` become zero
}
