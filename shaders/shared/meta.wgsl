// The cache's metadata, set by set: 32 tags, 32 stamps, 32 frequencies, 32 words of flags.
const TAG: u32 = 0u;   // linear row; NONE in an empty way
const STAMP: u32 = 1u; // step that last touched it
const FREQ: u32 = 2u;  // the row's counter (COUNTS), copied from `freqs`
const FLAGS: u32 = 3u; // DIRTY, PINNED, COMING, RECENT; 0 or RECENT in an empty way

const DIRTY: u32 = 1u;  // newer than the record in the table
const PINNED: u32 = 2u; // never a victim
const COMING: u32 = 4u; // another row is admitted to the slot; until exchange brings it, it stands in place of the stamp
const RECENT: u32 = 8u; // for recent rows (RECENTS)

fn way_at(slot: u32, field: u32) -> u32 {
    return (slot / 32u) * 128u + field * 32u + (slot & 31u);
}
