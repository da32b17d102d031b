//! The counters of all rows: under LFU in as many bits as the configuration says, under Window in a byte.

use std::ops::Range;

use crate::{
    config::{CounterBits, GroupConfig},
    cpu::stages::counters::{count, counter},
    error::Error,
    host::alloc::zeroed,
    table::{
        abi::{CLOCK_WORDS, Field, Params, SINCE, TABLE_WORDS, way_at},
        layout::Layout,
    },
};

/// A word that holds a frequency, of 8, 16 or 32 bits.
pub(crate) trait Frequency: Copy + Into<u32> {
    /// The word of a frequency that it can hold.
    fn of(freq: u32) -> Self;

    #[inline]
    fn get(self) -> u32 {
        self.into()
    }

    /// The frequency after `count` more uses: at most `most`, which the word can hold.
    #[inline]
    fn plus(self, count: u32, most: u32) -> Self {
        Self::of(self.get().saturating_add(count).min(most))
    }
}

macro_rules! frequencies {
    ($($word:ty),+) => {
        $(impl Frequency for $word {
            #[inline]
            fn of(freq: u32) -> Self {
                freq as Self
            }
        })+
    };
}

frequencies!(u8, u16, u32);

/// The counter of every row (LFU, Window); empty under other policies.
#[derive(Debug)]
pub(crate) enum Freqs {
    Eight(Vec<u8>),
    Sixteen(Vec<u16>),
    ThirtyTwo(Vec<u32>),
}

/// Evaluates an expression with the list of frequencies, whatever the width of its words.
macro_rules! in_any_width {
    ($freqs:expr, $words:ident => $body:expr) => {
        match $freqs {
            $crate::cpu::cached::freqs::Freqs::Eight($words) => $body,
            $crate::cpu::cached::freqs::Freqs::Sixteen($words) => $body,
            $crate::cpu::cached::freqs::Freqs::ThirtyTwo($words) => $body,
        }
    };
}
pub(crate) use in_any_width;

/// Number of rows that have a frequency.
fn rows(config: &GroupConfig) -> u64 {
    if config.policy.facts().counts { config.total_rows() } else { 0 }
}

/// The width of a counter.
pub(crate) fn width(config: &GroupConfig) -> CounterBits {
    if config.policy.facts().ages { CounterBits::Eight } else { config.counter_bits }
}

impl Freqs {
    pub(crate) fn new(config: &GroupConfig) -> Result<Self, Error> {
        let rows = rows(config) as usize;
        Ok(match width(config) {
            CounterBits::Eight => Self::Eight(zeroed("freqs", rows)?),
            CounterBits::Sixteen => Self::Sixteen(zeroed("freqs", rows)?),
            CounterBits::ThirtyTwo => Self::ThirtyTwo(zeroed("freqs", rows)?),
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        in_any_width!(self, words => words.is_empty())
    }

    /// The bytes of all frequencies of a group of this configuration.
    pub(crate) fn bytes(config: &GroupConfig) -> u64 {
        rows(config) * u64::from(width(config).bits() / 8)
    }

    /// Halves the counters of neighbouring rows so many times.
    pub(crate) fn halve(&mut self, rows: Range<u32>, times: u32) {
        let rows = rows.start as usize..rows.end as usize;
        in_any_width!(self, words => words[rows].iter_mut().for_each(|word| *word = Frequency::of(word.get() >> times)));
    }

    /// Counts uses of a row, if there are frequencies.
    pub(crate) fn add(&mut self, row: u32, count: u32, most: u32) {
        in_any_width!(self, words => if let Some(word) = words.get_mut(row as usize) {
            *word = word.plus(count, most);
        });
    }

    /// Copies the frequencies of neighbouring rows, from `first` on, into `out`.
    pub(crate) fn read(&self, first: usize, out: &mut [u32]) {
        in_any_width!(self, words => out.iter_mut().zip(&words[first..]).for_each(|(out, word)| *out = word.get()));
    }

    /// Sets the frequencies of neighbouring rows, from `first` on. The words can hold them.
    pub(crate) fn write(&mut self, first: usize, freqs: &[u32]) {
        in_any_width!(self, words => words[first..].iter_mut().zip(freqs).for_each(|(word, &freq)| *word = Frequency::of(freq)));
    }
}

/// Begins a step: the clock goes on. If the step has accesses, the counters of rows are halved where enough accesses have passed (SPEC 3, Window).
pub(crate) fn begin(
    params: &Params,
    layout: &Layout,
    any: bool,
    tables: &mut [u32],
    ways: &mut [u32],
    freqs: &mut Freqs,
) {
    tables[0] = tables[0].wrapping_add(1);
    if !any || !params.ages() {
        return;
    }
    for (table, rows, sets) in layout.ageing() {
        let [low, high] = [SINCE, SINCE + 1].map(|word| CLOCK_WORDS + table * TABLE_WORDS + word);
        let since = u64::from(tables[high]) << 32 | u64::from(tables[low]);
        let every = 32 * sets.len() as u64 * u64::from(layout.ways);
        let halvings = (since / every).min(4) as u32;
        if halvings > 0 {
            freqs.halve(rows, halvings);
            let slots = sets.start * layout.ways..sets.end * layout.ways;
            slots.for_each(|slot| ways[way_at(layout.ways, slot, Field::Freq)] >>= halvings);
        }
        let rest = since % every;
        (tables[low], tables[high]) = (rest as u32, (rest >> 32) as u32);
    }
}

/// Counts accesses to the table of `row` among those since the last halving.
pub(crate) fn pass(params: &Params, layout: &Layout, row: u32, accesses: u32, tables: &mut [u32]) {
    if params.ages()
        && let Some(table) = layout.ages_with(row)
    {
        count(tables, table, counter::SINCE, accesses);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Policy;

    #[test]
    fn frequencies_take_the_bytes_of_their_width_and_stop_at_its_most() {
        for (bits, bytes, most) in
            [(CounterBits::Eight, 3, 255), (CounterBits::Sixteen, 6, 65_535), (CounterBits::ThirtyTwo, 12, 1 << 31)]
        {
            let config = GroupConfig::new(&[2, 1], 4).with_counter_bits(bits);
            let mut none = Freqs::new(&config).unwrap();
            none.add(0, 1, most);
            assert!(none.is_empty() && Freqs::bytes(&config) == 0);
            let config = config.with_policy(Policy::Lfu);
            let mut freqs = Freqs::new(&config).unwrap();
            let allocated = in_any_width!(&freqs, words => size_of_val(words.as_slice()) as u64);
            assert_eq!((allocated, Freqs::bytes(&config), freqs.is_empty()), (bytes, bytes, false));
            freqs.write(1, &[most - 2, 7]);
            let after = |freqs: &mut Freqs, count| {
                let mut all = [9; 3];
                freqs.add(1, count, most);
                freqs.read(0, &mut all);
                all
            };
            assert_eq!(after(&mut freqs, 1), [0, most - 1, 7]);
            assert_eq!(after(&mut freqs, 1), [0, most, 7]);
            assert_eq!(after(&mut freqs, 1 << 30), [0, most, 7]);
            assert_eq!(after(&mut freqs, u32::MAX), [0, most, 7]);
            let mut last = [0];
            freqs.read(2, &mut last);
            assert_eq!(last, [7]);
        }
    }
}
