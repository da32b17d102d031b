struct DedupInfo {
    capacity: u32, // keys the dispatch covers
    count: u32,    // which of Step.counts tells how many keys there are
    segments: u32, // where the number of distinct keys goes
    valid: u32,    // where the number of keys other than NONE goes
}
