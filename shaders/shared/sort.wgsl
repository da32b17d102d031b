const SORT_ROUNDS: u32 = 8u;   // keys each invocation ranks
const SORT_BLOCK: u32 = 2048u; // keys of one workgroup

struct Pass {
    shift: u32,  // lowest bit of this pass's digit
    count: u32,  // which of Step.counts tells how many keys there are
    blocks: u32, // blocks the dispatch covers
    first: u32,  // 1: the first pass, values are the positions themselves
}
