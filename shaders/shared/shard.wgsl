const PACK: u32 = 1u;   // FP32 rows to records
const UNPACK: u32 = 2u; // records to FP32 rows

struct Shard {
    first_row: u32, // the linear row of its first record
    rows: u32,
    phases: u32,    // PACK, UNPACK or both
    pad0: u32,
}

fn in_shard(row: u32) -> bool { // false for NONE too
    return row - shard.first_row < shard.rows;
}
