const DEDUP_BLOCK: u32 = 2048u; // sorted keys that a workgroup takes at once

struct DedupInfo {
    capacity: u32, // the most keys there can be
    count: u32,    // the entry of Step.counts with the number of keys
    segments: u32, // the entry that gets the number of distinct keys
    valid: u32,    // the entry that gets the number of keys other than NONE
    by_value: u32, // 1: `segment` lies by the values of the keys, and `starts` has the value of the first key beside its position
    base: u32,     // then the number of the first distinct key
}
