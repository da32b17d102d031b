const DEDUP_BLOCK: u32 = 2048u; // sorted keys a workgroup takes at once

struct DedupInfo {
    capacity: u32, // most keys there can be
    count: u32,    // which of Step.counts tells how many keys there are
    segments: u32, // where the number of distinct keys goes
    valid: u32,    // where the number of keys other than NONE goes
}
