const SMALL: u32 = 1024u; // the most keys that one workgroup sorts

struct SmallInfo {
    capacity: u32,  // the most keys there can be, at most SMALL
    count: u32,     // the entry of Step.counts with the number of keys
    mask: u32,      // the bits of a key that order it
    positions: u32, // 1: values are the positions themselves
    dedup: u32,     // 1: dedup as well
    segments: u32,  // the entry that gets the number of distinct keys
    valid: u32,     // the entry that gets the number of keys other than NONE
    by_value: u32, // as in DedupInfo
    base: u32,
}
