struct Shard {
    index: u32,     // its place in `range`
    first_row: u32, // the linear row of its first record
    pad0: u32,
    pad1: u32,
}
