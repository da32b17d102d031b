//! The state that a group of cached rows keeps between steps.

use crate::{
    config::GroupConfig,
    error::Error,
    table::{counters::Counters, layout::Layout, metadata, parts::Part},
};

/// The state that a group keeps between steps, bit by bit.
///
/// ```
/// use hotrow::{Bags, CpuGroup, Error, GroupConfig, Mode, prelude::*};
///
/// let mut group = CpuGroup::new(GroupConfig::new(&[100], 4).with_cache_rows(32))?;
/// let before = group.snapshot()?;
/// group.forward(Bags::new(&[5], &[0, 1]), Mode::Train)?;
/// assert_eq!((before.t, group.snapshot()?.t), (0, 1));
/// group.restore(&before)?;
/// assert_eq!(group.snapshot()?, before);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// The step number.
    pub t: u32,
    /// The cache's metadata, set by set: a tag for each way, then a stamp, a frequency and a word of flags
    /// ([`DIRTY`](crate::table::abi::DIRTY), [`PINNED`](crate::table::abi::PINNED)) for each.
    pub ways: Vec<u32>,
    /// Slots: dim weights, then the state.
    pub cache: Vec<f32>,
    /// Every record, row by row.
    pub records: Vec<u32>,
    /// The counter of every row; empty unless the policy is LFU or Window.
    pub freqs: Vec<u32>,
    /// The accesses since the counters were halved, for each share of the cache; empty unless the policy is Window.
    pub since: Vec<u64>,
    /// The counters of each table.
    pub counters: Vec<Counters>,
}

impl Snapshot {
    /// The words of [`Part::Since`].
    pub(crate) fn since_words(&self) -> Vec<u32> {
        self.since.iter().flat_map(|&since| [since as u32, (since >> 32) as u32]).collect()
    }

    /// Checks that each part has the size that `layout` says, and holds what a group can have.
    pub(crate) fn check(&self, config: &GroupConfig, layout: &Layout) -> Result<(), Error> {
        let slots = layout.slots() as usize;
        let rows = layout.total_rows as usize;
        let parts = [
            ("snapshot's ways", 4 * slots, self.ways.len()),
            ("snapshot's cache", slots * layout.row.row_words as usize, self.cache.len()),
            ("snapshot's records", rows * layout.row.record_words as usize, self.records.len()),
            ("snapshot's freqs", if config.policy.facts().counts { rows } else { 0 }, self.freqs.len()),
            ("snapshot's counters", config.tables.len(), self.counters.len()),
            ("snapshot's since", Part::Since.words(config, layout) as usize / 2, self.since.len()),
        ];
        if let Some((what, wanted, found)) = parts.into_iter().find(|(_, wanted, found)| wanted != found) {
            return Err(Error::Length { what, wanted: wanted as u64, found: found as u64 });
        }
        metadata::check(config, layout, self.t, 0, &self.ways)?;
        metadata::check_since(0, &self.since_words())?;
        metadata::check_frequencies(config, 0, &self.freqs)
    }
}
