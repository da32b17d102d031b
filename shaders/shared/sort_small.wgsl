const SMALL: u32 = 1024u; // most keys of a sort that one workgroup does

struct SmallInfo {
    capacity: u32,  // most keys there can be, at most SMALL
    count: u32,     // which of Step.counts tells how many keys there are
    mask: u32,      // the bits of a key that order it
    positions: u32, // 1: values are the positions themselves
    dedup: u32,     // 1: dedup as well
    segments: u32,  // where the number of distinct keys goes
    valid: u32,     // where the number of keys other than NONE goes
    pad0: u32,
}
