//! Checks the cache's metadata (tags, stamps, frequencies, flags) before a group loads it.

use crate::{
    config::GroupConfig,
    error::Error,
    table::{
        abi::{DIRTY, Field, NONE, PINNED, RECENT, way_at},
        layout::Layout,
        shares::Sets,
    },
};

/// Checks neighbouring sets, from `first_set` on, of a group at step `t`: each slot is empty, or holds a row of its set
/// that no other way of the set holds. Under [`Policy::Static`] that row must be pinned; under [`Policy::Lfu`] and [`Policy::Window`] its
/// frequency must be one that the counters can hold, and under the latter each set has its number of ways for recent rows.
pub(crate) fn check(config: &GroupConfig, layout: &Layout, t: u32, first_set: u32, ways: &[u32]) -> Result<(), Error> {
    let sets = layout.sets_of_rows();
    let slots = (ways.len() / 4) as u32;
    (0..slots).try_for_each(|slot| check_slot(&sets, config, layout, t, first_set, ways, slot))
}

/// Checks the words from `first_word` on of the accesses since the counters were halved, of which devices divide multiples of 32 in 32 bits.
pub(crate) fn check_since(first_word: u64, words: &[u32]) -> Result<(), Error> {
    let mut high = words.iter().skip((first_word + 1) as usize % 2).step_by(2);
    match high.find(|&&high| high >= 1 << 5) {
        Some(high) => {
            let wanted = "fewer than 2^37 accesses since a halving".into();
            Err(Error::Config { field: "since", wanted, found: format!("{high} x 2^32 or more") })
        }
        None => Ok(()),
    }
}

/// Checks the frequencies of neighbouring rows, from `first_row` on: the counters can hold them.
pub(crate) fn check_frequencies(config: &GroupConfig, first_row: u64, freqs: &[u32]) -> Result<(), Error> {
    let most = config.most_uses();
    match (first_row..).zip(freqs).find(|&(_, &freq)| freq > most) {
        None => Ok(()),
        Some((row, freq)) => Err(Error::Config {
            field: if config.policy.facts().ages { "policy" } else { "counter_bits" },
            wanted: format!("frequencies of at most {most}"),
            found: format!("{freq} for row {row}"),
        }),
    }
}

fn check_slot(
    sets: &Sets<'_>,
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
    let set = first_set + slot / width;
    let recent = if layout.recent_ways(set) > 0 { RECENT } else { 0 };
    if flags & !(DIRTY | PINNED | recent) != 0
        || flags & (PINNED | recent) == PINNED | RECENT
        || (tag == NONE && flags & !recent != 0)
    {
        let recent = if recent == 0 { "" } else { ", or 8 (for recent rows), unless it is pinned" };
        let wanted = format!("{DIRTY} (dirty), {PINNED} (pinned) or both, and 0 in an empty slot{recent}");
        return fail("flags", wanted, flags);
    }
    if slot.is_multiple_of(width) && recent != 0 {
        let with = |flag| (slot..slot + width).filter(|&slot| word(slot, Field::Flags) & flag != 0).count() as u32;
        let wanted = layout.recent_ways(set).min(width - with(PINNED));
        if with(RECENT) != wanted {
            return fail("flags", format!("{wanted} ways of the set for recent rows"), with(RECENT));
        }
    }
    if tag == NONE {
        return Ok(());
    }
    if !config.policy.facts().admits && flags & PINNED == 0 {
        let wanted = format!("{PINNED} (pinned): with policy {} nothing else is resident", config.policy);
        return fail("flags", wanted, flags);
    }
    if tag >= layout.total_rows || sets.set_of(tag) != set {
        return fail("tag", format!("one of the {} rows that belongs to set {set}", layout.total_rows), tag);
    }
    if (slot - slot % width..slot).any(|other| word(other, Field::Tag) == tag) {
        return fail("tag", "each row in one way".into(), tag);
    }
    if word(slot, Field::Stamp) > t {
        return fail("stamp", format!("at most the step number {t}"), word(slot, Field::Stamp));
    }
    let (freq, most) = (word(slot, Field::Freq), config.most_uses());
    if config.policy.facts().counts && freq > most {
        return fail("frequency", format!("at most {most}, which the counters can hold"), freq);
    }
    Ok(())
}
