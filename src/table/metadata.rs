//! Checks the cache's metadata (tags, stamps, frequencies, flags) before a group loads it.

use crate::{
    config::{GroupConfig, Policy},
    error::Error,
    table::{
        abi::{DIRTY, Field, NONE, PINNED, way_at},
        layout::Layout,
    },
};

/// Checks neighbouring sets, from `first_set` on, of a group at step `t`: each slot is empty, or holds a row of its set
/// that no other way of the set holds. Under [`Policy::Static`] that row must be pinned; under [`Policy::Lfu`] its frequency must be one that
/// the counters can hold.
pub(crate) fn check(config: &GroupConfig, layout: &Layout, t: u32, first_set: u32, ways: &[u32]) -> Result<(), Error> {
    let spread = layout.spread();
    check_by(&|row| spread.set_of(row), config, layout, t, first_set, ways)
}

/// [`check`] with another rule for the set of a row.
pub(crate) fn check_by(
    set_of: &dyn Fn(u32) -> u32,
    config: &GroupConfig,
    layout: &Layout,
    t: u32,
    first_set: u32,
    ways: &[u32],
) -> Result<(), Error> {
    let slots = (ways.len() / 4) as u32;
    (0..slots).try_for_each(|slot| check_slot(set_of, config, layout, t, first_set, ways, slot))
}

/// Checks the frequencies of neighbouring rows, from `first_row` on: the counters can hold them.
pub(crate) fn check_frequencies(config: &GroupConfig, first_row: u64, freqs: &[u32]) -> Result<(), Error> {
    let most = config.counter_bits.most();
    match (first_row..).zip(freqs).find(|&(_, &freq)| freq > most) {
        None => Ok(()),
        Some((row, freq)) => Err(Error::Config {
            field: "counter_bits",
            wanted: format!("frequencies of at most {most}"),
            found: format!("{freq} for row {row}"),
        }),
    }
}

fn check_slot(
    set_of: &dyn Fn(u32) -> u32,
    config: &GroupConfig,
    layout: &Layout,
    t: u32,
    first_set: u32,
    ways: &[u32],
    slot: u32,
) -> Result<(), Error> {
    let width = layout.ways;
    let word = |slot, field| ways[way_at(width, slot, field)];
    let tag = word(slot, Field::Tag);
    let fail =
        |what, wanted: String, found| Err(Error::Snapshot { what, wanted, found, slot: first_set * width + slot });
    let flags = word(slot, Field::Flags);
    if flags & !(DIRTY | PINNED) != 0 || (tag == NONE && flags != 0) {
        let wanted = format!("{DIRTY} (dirty), {PINNED} (pinned) or both, and 0 in an empty slot");
        return fail("flags", wanted, flags);
    }
    if tag == NONE {
        return Ok(());
    }
    let set = first_set + slot / width;
    if config.policy == Policy::Static && flags & PINNED == 0 {
        return fail("flags", format!("{PINNED} (pinned): with policy static nothing else is resident"), flags);
    }
    if tag >= layout.total_rows || set_of(tag) != set {
        return fail("tag", format!("one of the {} rows that belongs to set {set}", layout.total_rows), tag);
    }
    if (slot - slot % width..slot).any(|other| word(other, Field::Tag) == tag) {
        return fail("tag", "each row in one way".into(), tag);
    }
    if word(slot, Field::Stamp) > t {
        return fail("stamp", format!("at most the step number {t}"), word(slot, Field::Stamp));
    }
    let (freq, most) = (word(slot, Field::Freq), config.counter_bits.most());
    if config.policy == Policy::Lfu && freq > most {
        return fail("frequency", format!("at most {most}, which the counters can hold"), freq);
    }
    Ok(())
}
