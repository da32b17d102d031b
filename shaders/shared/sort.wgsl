// Keys of a block: 12 an invocation, three times four loads in flight. What a block costs beside its keys is a column of 256
// counts, 4 KiB to and fro a pass against 60 KiB of pairs; in order it takes 12 of the 16 KiB of shared memory that every
// device has, and leaves runs of 12 neighbours (48 bytes) a digit to write.
const SORT_BLOCK: u32 = 3072u;
const SORT_ROUNDS: u32 = 12u;

struct Pass {
    shift: u32,     // lowest bit of this pass's digit
    mask: u32,      // of the digit, after the shift: 255, or less in the last pass
    count: u32,     // which of Step.counts tells how many keys there are
    capacity: u32,  // most keys there can be
    positions: u32, // 1: values are the positions themselves
}
