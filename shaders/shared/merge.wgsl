const MERGE_TILE: u32 = 32u; // sorted accesses a workgroup sums, whatever rows they belong to
