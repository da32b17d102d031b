//! The parts of a group's state. Any range of a part can be read or written without a copy of the whole.

use std::ops::Range;

use crate::{
    config::GroupConfig,
    error::Error,
    table::{
        abi::{CLOCK_WORDS, SINCE, TABLE_WORDS},
        counters::COUNTER_WORDS,
        layout::Layout,
    },
};

/// A part of the state that a group keeps between steps, in words of 32 bits. All parts together are a
/// [`Snapshot`](crate::state::Snapshot).
///
/// ```
/// use hotrow::{Bags, CpuGroup, GroupConfig, Mode, prelude::*, state::Part};
///
/// let mut group = CpuGroup::new(GroupConfig::new(&[100], 4).with_cache_rows(32))?;
/// group.forward(Bags::new(&[5], &[0, 1]), Mode::Train)?;
/// let mut clock = [0];
/// group.read_part(Part::Clock, 0, &mut clock)?;
/// assert_eq!(clock, [1]); // one step
/// # Ok::<(), hotrow::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// One word: the step number.
    Clock,
    /// 12 counters for each table, two words each, low word first: accesses, hits, unique, unique misses, admitted,
    /// evictions, write-backs, bypass reads, bypass writes, skipped rows, out of range, padding.
    Counters,
    /// The cache's metadata, set by set: a tag for each way, then a stamp for each, a frequency for each, a word of
    /// flags for each ([`DIRTY`](crate::table::abi::DIRTY), [`PINNED`](crate::table::abi::PINNED)).
    Ways,
    /// The slots: dim weights, then the state, as the bits of FP32 values.
    Cache,
    /// Every record, row by row.
    Records,
    /// The counter of every row; empty unless the policy is LFU or Window.
    Frequencies,
    /// Two words for each share of the cache, low word first: the accesses since the counters were halved; empty unless the policy is Window.
    Since,
}

impl Part {
    /// Every part, in an order in which a group can load them: the clock before the ways, which are checked against it.
    pub const ALL: [Self; 7] =
        [Self::Clock, Self::Counters, Self::Ways, Self::Cache, Self::Records, Self::Frequencies, Self::Since];

    /// Number of words of this part in a group of this configuration.
    #[doc(hidden)]
    #[must_use]
    pub fn words(self, config: &GroupConfig, layout: &Layout) -> u64 {
        let (slots, rows) = (u64::from(layout.slots()), u64::from(layout.total_rows));
        match self {
            Self::Clock => 1,
            Self::Counters => (config.tables.len() * COUNTER_WORDS) as u64,
            Self::Ways => 4 * slots,
            Self::Cache => slots * u64::from(layout.row.row_words),
            Self::Records => rows * u64::from(layout.row.record_words),
            Self::Frequencies if config.policy.facts().counts => rows,
            Self::Since if config.policy.facts().ages => 2 * layout.counts_since() as u64,
            Self::Frequencies | Self::Since => 0,
        }
    }

    /// The numbers that the words of [`Part::Since`] are.
    pub(crate) fn since(words: &[u32]) -> Vec<u64> {
        words.chunks_exact(2).map(|one| u64::from(one[1]) << 32 | u64::from(one[0])).collect()
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Clock => "words of the clock",
            Self::Counters => "words of the counters",
            Self::Ways => "words of the ways",
            Self::Cache => "words of the cache",
            Self::Records => "words of the records",
            Self::Frequencies => "words of the frequencies",
            Self::Since => "words of the accesses since a halving",
        }
    }

    /// Returns the range of `words` words from `first_word` on, or an error if the part is shorter.
    pub(crate) fn range(
        self,
        config: &GroupConfig,
        layout: &Layout,
        first_word: u64,
        words: usize,
    ) -> Result<Range<u64>, Error> {
        let (wanted, end) = (self.words(config, layout), first_word.saturating_add(words as u64));
        if end > wanted {
            return Err(Error::Length { what: self.name(), wanted, found: end });
        }
        Ok(first_word..end)
    }

    /// The positions of this part's words in their buffers.
    pub(crate) fn spacing(self, layout: &Layout) -> Spacing {
        match self {
            // A table's base and number of rows come from the configuration and are not in this part.
            Self::Counters => {
                let (width, stride) = (COUNTER_WORDS as u64, TABLE_WORDS as u64);
                Spacing { first: CLOCK_WORDS as u64 + 2, width, stride }
            }
            Self::Cache => {
                let (width, stride) = (u64::from(layout.row.row_words), u64::from(layout.slot_words()));
                Spacing { first: 0, width, stride }
            }
            Self::Since => Spacing { first: (CLOCK_WORDS + SINCE) as u64, width: 2, stride: TABLE_WORDS as u64 },
            _ => Spacing { first: 0, width: 1, stride: 1 },
        }
    }
}

/// Rows of `width` words that begin `stride` words apart; the first one at word `first` of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spacing {
    first: u64,
    width: u64,
    stride: u64,
}

impl Spacing {
    const fn at(self, word: u64) -> u64 {
        self.first + word / self.width * self.stride + word % self.width
    }

    /// The range of buffer words from the first to the last of `words`. `words` is not empty.
    pub(crate) const fn range(self, words: &Range<u64>) -> Range<u64> {
        self.at(words.start)..self.at(words.end - 1) + 1
    }

    /// Splits `words` into runs that are neighbours in the buffer too; each with the buffer position of its first word.
    pub(crate) fn runs(self, words: Range<u64>) -> impl Iterator<Item = (Range<u64>, u64)> {
        let width = if self.width == self.stride { u64::MAX } else { self.width };
        let mut next = words.start;
        std::iter::from_fn(move || {
            let run = next..words.end.min((next / width + 1).saturating_mul(width));
            next = run.end;
            (!run.is_empty()).then(|| (run.clone(), self.at(run.start)))
        })
    }
}

/// Splits `range` at the borders of buffers that hold `lengths` words one behind the other; yields the buffer and the
/// words in it.
pub(crate) fn cut(
    lengths: impl IntoIterator<Item = u64>,
    range: Range<u64>,
) -> impl Iterator<Item = (usize, Range<u64>)> {
    let mut first = 0;
    lengths.into_iter().enumerate().filter_map(move |(which, words)| {
        let (base, end) = (first, first + words);
        first = end;
        let (from, to) = (range.start.max(base), range.end.min(end));
        (from < to).then(|| (which, from - base..to - base))
    })
}

/// Refuses a range of ways that is not made of whole sets: only whole sets can be checked for a row that is in two
/// ways.
pub(crate) fn whole_sets(layout: &Layout, words: &Range<u64>) -> Result<Range<u32>, Error> {
    let set = layout.set_words();
    if words.start.is_multiple_of(set) && words.end.is_multiple_of(set) {
        return Ok((words.start / set) as u32..(words.end / set) as u32);
    }
    let found = words.end - words.start;
    Err(Error::Length { what: "ways, in whole sets", wanted: found.next_multiple_of(set).max(set), found })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Optimizer;

    #[test]
    fn runs_are_the_words_one_by_one() {
        for (first, width, stride) in [(0, 1, 1), (6, 22, 28), (0, 5, 8), (3, 4, 4)] {
            let spacing = Spacing { first, width, stride };
            for words in [0..0, 0..1, 3..100, 21..23, 44..66] {
                let expected: Vec<u64> =
                    words.clone().map(|word| first + word / width * stride + word % width).collect();
                let found: Vec<u64> = spacing
                    .runs(words.clone())
                    .flat_map(|(run, at)| (at..).take((run.end - run.start) as usize))
                    .collect();
                assert_eq!(found, expected, "{spacing:?} {words:?}");
                if let (Some(first), Some(last)) = (expected.first(), expected.last()) {
                    assert_eq!(spacing.range(&words), *first..last + 1);
                }
            }
        }
        assert_eq!(Spacing { first: 3, width: 4, stride: 4 }.runs(1..1000).count(), 1, "without gaps one run does");
    }

    #[test]
    fn cuts_cover_a_range() {
        let lengths = [5, 0, 3, 9];
        for start in 0..=17 {
            for end in start..=17 {
                let bases = [0, 5, 5, 8];
                let found: Vec<u64> = cut(lengths, start..end)
                    .flat_map(|(which, words)| words.map(move |word| bases[which] + word))
                    .collect();
                assert_eq!(found, (start..end).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn words_of_a_cache_leave_its_padding_out() {
        let row_wise = Optimizer::row_wise_adagrad(0.1);
        for (optimizer, dim, quads, lanes) in [
            (row_wise, 1, 2, 4),
            (row_wise, 4, 2, 4),
            (row_wise, 5, 6, 8),
            (row_wise, 64, 17, 16),
            (row_wise, 132, 34, 32),
            (Optimizer::adagrad(0.1), 128, 64, 32),
            (Optimizer::sgd(0.1), 65, 65, 32),
        ] {
            let config = GroupConfig { optimizer, cache_rows: 9, ..GroupConfig::new(&[9], dim) };
            let layout = Layout::new(&config, 1 << 20).unwrap();
            assert_eq!((layout.row.row_quads, layout.row.lanes), (quads, lanes), "dim {dim}");
            let words = Part::Cache.words(&config, &layout);
            assert_eq!(words, 32 * u64::from(dim + layout.row.state));
            let mut slots = vec![0; 32 * layout.slot_words() as usize];
            for (run, at) in Part::Cache.spacing(&layout).runs(0..words) {
                slots[at as usize..][..(run.end - run.start) as usize].fill(1);
            }
            assert_eq!(slots.iter().sum::<u64>(), words, "each word has a place of its own");
            let rows = slots.chunks(layout.slot_words() as usize);
            assert!(rows.into_iter().all(|slot| slot[..layout.row.row_words as usize].iter().all(|&word| word == 1)));
        }
    }
}
