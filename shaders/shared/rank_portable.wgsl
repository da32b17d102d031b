// Ranks a key among the keys of its digit in the block, through shared memory, for subgroups of any size.
//
// A round ranks 256 neighbouring keys. Each digit has a mask of 256 bits, one for each invocation that holds the digit.
// The rank of a key is the number of lower bits in its digit's mask. Word w of a mask lies at w * 256 + digit, so that
// digits spread over the banks. Needs `block_words` and `digit_words` of scatter.

fn rank_at(round: u32, lane: Lane) -> u32 { return round * 256u + lane.index; }

fn rank_clear(lane: Lane) {
    for (var word = 0u; word < 8u; word++) { atomicStore(&block_words[word * 256u + lane.index], 0u); }
    digit_words[lane.index] = 0u; // keys of each digit in earlier rounds
    workgroupBarrier();
}

fn rank(digit: u32, lane: Lane) -> u32 {
    let own = (lane.index / 32u) * 256u + digit;
    let bit = 1u << (lane.index & 31u);
    atomicOr(&block_words[own], bit);
    workgroupBarrier();
    let earlier = digit_words[digit];
    var lower = countOneBits(atomicLoad(&block_words[own]) & (bit - 1u));
    var all = 0u;
    for (var word = 0u; word < 8u; word++) {
        let held = countOneBits(atomicLoad(&block_words[word * 256u + digit]));
        all += held;
        lower += select(0u, held, word < lane.index / 32u);
    }
    workgroupBarrier();
    atomicStore(&block_words[own], 0u); // each invocation clears the word it set, so all words are clear again
    if (lower + 1u == all) { digit_words[digit] = earlier + all; }
    workgroupBarrier();
    return earlier + lower;
}

// After the last round: the number of keys in the block with the digit `lane_index(lane)`.
fn rank_count(lane: Lane) -> u32 { return digit_words[lane.index]; }

// Number of earlier keys with this digit that the ranks of this invocation do not count.
fn rank_base(digit: u32, lane: Lane) -> u32 { return 0u; }
