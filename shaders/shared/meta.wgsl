// The cache's metadata, set by set: 32 tags, 32 stamps, 32 freqs, 32 dirty flags.
const TAG: u32 = 0u;   // linear row, NONE in an empty way
const STAMP: u32 = 1u; // step that last touched it
const FREQ: u32 = 2u;  // the row's frequency (LFU), a copy of its counter
const DIRTY: u32 = 3u; // 1: newer than the table's record

fn way_at(slot: u32, field: u32) -> u32 {
    return (slot / 32u) * 128u + field * 32u + (slot & 31u);
}
