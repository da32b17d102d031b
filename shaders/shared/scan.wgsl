const SCAN_TILE: u32 = 2048u; // elements of a row that a workgroup takes at once
const SCAN_SHORT: u32 = 16u;  // a row of so many is one invocation's work

struct ScanInfo {
    count: u32,     // which of Step.counts tells how many things there are
    capacity: u32,  // most there can be
    per_block: u32, // things of a block; a row has an element a block
    rows: u32,
}
