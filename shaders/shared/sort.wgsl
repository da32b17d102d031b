// Number of keys in a block: 12 for each invocation, three times four loads in flight. In a pass a block reads and
// writes 60 KiB of pairs, and 4 KiB for its column of 256 counts. Ordering a block takes 12 KiB of the 16 KiB of shared
// memory that every device has, and leaves runs of 12 neighbours (48 bytes) for each digit to write.
const SORT_BLOCK: u32 = 3072u;
const SORT_ROUNDS: u32 = 12u;

// Counts of digits lie at digit * digit_stride(capacity) + block.
fn digit_stride(capacity: u32) -> u32 {
    return (capacity + SORT_BLOCK - 1u) / SORT_BLOCK;
}

struct Pass {
    shift: u32,     // lowest bit of this pass's digit
    mask: u32,      // mask of the digit after the shift: 255, or less in the last pass
    count: u32,     // the entry of Step.counts with the number of keys
    capacity: u32,  // the most keys there can be
    positions: u32, // 1: values are the positions themselves
    next_mask: u32, // mask of the next pass's digit, which begins 8 bits higher; 0 in the last pass
}
