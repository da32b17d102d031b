//! Samples of 26 lookups, one in each table, by SCARS's law of Criteo's Terabyte set, the half-normal distribution.

use anyhow::Context as _;
use rand::RngExt;
use rand_distr::{Distribution, StandardNormal};
use rand_pcg::Pcg64;

use super::shapes::{Batch, fitting, shuffle, shuffled};

pub(super) const TABLES: usize = 26;

/// An index for each table.
pub(super) type Sample = [u32; TABLES];

/// The law of all tables: the probability of the row of rank r is proportional to exp(-(r / scale)^2 / 2).
#[derive(Clone, Copy, Debug)]
pub(super) struct Law {
    /// The number of rows in each table.
    pub(super) rows: u32,
    scale: f64,
}

impl Law {
    /// A law by which the `hot` hottest rows of all tables take the share of lookups that lies within `deviations` standard deviations:
    /// 2.576 for 0.99, 1.96 for 0.95.
    pub(super) fn new(rows: u32, hot: u32, deviations: f64) -> Self {
        Self { rows, scale: f64::from(hot) / TABLES as f64 / deviations }
    }

    fn rank(&self, below: u32, random: &mut Pcg64) -> u32 {
        loop {
            let normal: f64 = StandardNormal.sample(random);
            let rank = (normal.abs() * self.scale) as u32;
            if rank < below {
                return rank;
            }
        }
    }

    fn index(&self, rank: u32) -> u32 {
        shuffled(u64::from(rank), u64::from(self.rows)) as u32
    }

    pub(super) fn sample(&self, random: &mut Pcg64) -> Sample {
        std::array::from_fn(|_| self.index(self.rank(self.rows, random)))
    }

    /// Linear rows of these ranks, rank by rank over all tables.
    pub(super) fn ranks(&self, ranks: std::ops::Range<u32>) -> impl Iterator<Item = u32> + '_ {
        ranks.flat_map(move |rank| (0..TABLES as u32).map(move |table| table * self.rows + self.index(rank)))
    }
}

pub(super) fn linear(rows: u32, sample: &Sample) -> impl Iterator<Item = u32> + '_ {
    sample.iter().zip(0..).map(move |(&index, table): (_, u32)| table * rows + index)
}

/// A batch of these samples in bags of one.
pub(super) fn batch(samples: &[Sample]) -> Batch {
    let feature = |table: usize| samples.iter().map(|sample| sample[table]).collect();
    Batch { features: (0..TABLES).map(feature).collect(), bag: 1 }
}

/// Batches with one hit rate in every cache: 95 % of the lookups go to rows that the smallest cache holds, the others to rows that no cache holds.
pub(super) struct Even {
    law: Law,
    /// The hot rows of each table, hottest first.
    hot: Vec<Vec<u32>>,
}

impl Even {
    /// `slots` is the size of the smallest cache.
    pub(super) fn new(law: Law, slots: u32) -> Self {
        let mut hot = vec![Vec::new(); TABLES];
        for row in fitting(law.ranks(0..Self::wanted(slots)), slots) {
            hot[(row / law.rows) as usize].push(row % law.rows);
        }
        let fewest = hot.iter().map(Vec::len).min().unwrap_or(0);
        Self { law: Law { scale: fewest as f64 / 1.96, ..law }, hot }
    }

    /// The number of ranks that fill most sets of a cache of `slots` slots.
    pub(super) fn wanted(slots: u32) -> u32 {
        (slots / 4 * 5).div_ceil(TABLES as u32)
    }

    /// Returns the rows that a cache of `slots` slots pins: the hot rows, then rows that are never looked up.
    pub(super) fn pins(&self, slots: u32) -> Vec<u32> {
        let of_table =
            |(table, rows): (u32, &Vec<u32>)| rows.iter().map(move |row| table * self.law.rows + row).collect();
        let hot: Vec<Vec<u32>> = (0..).zip(&self.hot).map(of_table).collect();
        let never = self.law.ranks(self.law.rows / 8 * 5..self.law.rows);
        fitting(hot.concat().into_iter().chain(never), slots)
    }

    pub(super) fn batch(&self, samples: usize, random: &mut Pcg64) -> anyhow::Result<Batch> {
        let lookups = samples * TABLES;
        let cold = lookups / 20;
        let mut is_cold: Vec<u32> = (0..lookups).map(|i| u32::from(i < cold)).collect();
        shuffle(&mut is_cold, random);
        let rows = self.law.rows;
        let one = |(table, is_cold): (usize, &[u32])| -> anyhow::Result<Vec<u32>> {
            let hot = self.hot.get(table).filter(|hot| !hot.is_empty()).context("a cache too small for 26 tables")?;
            Ok(is_cold
                .iter()
                .map(|&is_cold| match is_cold {
                    0 => hot[self.law.rank(hot.len() as u32, random) as usize],
                    _ => self.law.index(random.random_range(rows / 2..rows / 8 * 5)),
                })
                .collect())
        };
        let features = is_cold.chunks(samples).enumerate().map(one).collect::<anyhow::Result<_>>()?;
        Ok(Batch { features, bag: 1 })
    }
}

#[cfg(test)]
mod tests {
    use super::super::shapes::random;
    use super::*;
    use hotrow::scars::HotRows;

    const ROWS: u32 = 5000;
    const SLOTS: u32 = 4096;

    fn share(batch: &Batch, pinned: &HotRows) -> f64 {
        let rows = (0..).zip(&batch.features).flat_map(|(table, rows)| rows.iter().map(move |row| table * ROWS + row));
        let hits = rows.filter(|&row| pinned.has(row)).count();
        hits as f64 / batch.indices().len() as f64
    }

    #[test]
    fn the_hot_rows_take_their_share() {
        let law = Law::new(ROWS, SLOTS, 2.576);
        let hottest: Vec<u32> = law.ranks(0..SLOTS / 26).collect();
        let mut random = random(1, 1);
        let samples: Vec<Sample> = (0..2000).map(|_| law.sample(&mut random)).collect();
        let found = share(&batch(&samples), &HotRows::new(&hottest));
        assert!((found - 0.99).abs() < 0.003, "{found}");
        let hot = HotRows::new(&hottest);
        let all = samples.iter().filter(|sample| hot.has_all(linear(ROWS, sample))).count() as f64 / 2000.0;
        assert!((all - found.powi(26)).abs() < 0.04, "{all}");
        let half = HotRows::new(&hottest[..hottest.len() / 2]);
        assert!(share(&batch(&samples), &half) < 0.9);
    }

    #[test]
    fn the_share_is_the_same_in_every_cache() {
        let even = Even::new(Law::new(ROWS, SLOTS, 2.576), SLOTS);
        let mut random = random(1, 2);
        let batch = even.batch(200, &mut random).unwrap();
        for slots in [SLOTS, 2 * SLOTS, 8 * SLOTS] {
            let pins = even.pins(slots);
            assert!(pins.len() > slots as usize * 9 / 10 && pins.len() <= slots as usize, "{} of {slots}", pins.len());
            assert_eq!(fitting(pins.iter().copied(), slots), pins, "each finds a way");
            assert_eq!(share(&batch, &HotRows::new(&pins)), 0.95);
        }
        assert!(share(&batch, &HotRows::new(&even.pins(SLOTS)[..1000])) < 0.9);
    }
}
