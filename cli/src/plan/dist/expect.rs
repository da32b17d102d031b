//! The expected bytes of a step whose accesses are drawn independently from a distribution of rows. Row i is the i-th hottest.

use super::bill::{Bill, Hot};
use super::cache::DirtyShare;
use super::deal::share;
use super::wire::{Asked, Wire};
use hotrow::Pooling;
use hotrow::scars::Skew;
use std::collections::HashMap;

/// Above this mean the remainder of a count modulo 32 is as good as even.
const EVEN: f64 = 200.0;

/// Independent accesses in bags of equal length.
#[derive(Clone, Copy, Debug)]
pub(super) struct Model<'a> {
    pub(super) skew: &'a Skew,
    pub(super) dirty: &'a DirtyShare,
    /// Bags of a batch of all ranks.
    pub(super) batch: u32,
    /// Accesses of a bag.
    pub(super) lookups: u32,
    /// The ascending ends of the ranges of the hottest rows.
    pub(super) ends: &'a [u32],
}

impl Model<'_> {
    pub(super) fn bill(&self, wire: Wire) -> Bill {
        let mut bill = Bill::new(wire, self.ends.len());
        bill.distinct = self.skew.distinct(f64::from(self.batch) * f64::from(self.lookups), 0);
        let samples = self.batch / wire.features;
        let bags_of = |rank| wire.features * share(samples, rank, wire.ranks).len() as u32;
        let mass = of_owners(wire, &self.by_shard(wire.shards, |p| p));
        // Parts have at most two sizes.
        let mut sizes: HashMap<u32, Vec<Asked>> = HashMap::new();
        for rank in 0..wire.ranks {
            let bags = bags_of(rank);
            let asked = sizes.entry(bags).or_insert_with(|| self.asked(wire, bags, &mass));
            let outputs = if wire.pooling == Pooling::None { self.lookups } else { 1 };
            bill.outputs[rank as usize] = f64::from(bags) * f64::from(outputs);
            bill.part[rank as usize] = f64::from(bags) * f64::from(self.lookups);
            for (owner, asked) in asked.iter().enumerate() {
                bill.owned[owner] += asked.accesses;
                if owner == rank as usize {
                    bill.own_rows += asked.rows;
                } else {
                    bill.ask(rank as usize, owner, asked);
                }
            }
        }
        self.add_hot(&mut bill, bags_of);
        bill
    }

    /// Sums a value over the rows of each shard; `value` takes the probability of a row.
    fn by_shard(&self, shards: u32, value: impl Fn(f64) -> f64) -> Vec<f64> {
        let all = u64::from(shards);
        let (mut of, mut each, mut start) = (vec![0.0; shards as usize], 0.0, 0);
        for bin in self.skew.bins() {
            let value = value(bin.probability);
            // The rows of a bin go round the shards, which takes whole rounds and a rest.
            each += value * (bin.rows / all) as f64;
            (0..bin.rows % all).for_each(|row| of[((start + row) % all) as usize] += value);
            start += bin.rows;
        }
        of.iter_mut().for_each(|sum| *sum += each);
        of
    }

    /// What a part of so many bags asks of each rank. `mass` is the probability that an access is to a rank's rows.
    fn asked(&self, wire: Wire, bags: u32, mass: &[f64]) -> Vec<Asked> {
        let accesses = f64::from(bags) * f64::from(self.lookups);
        let seen = |probability: f64| -(accesses * (-probability).ln_1p()).exp_m1();
        let of_shard = self.by_shard(wire.shards, seen);
        let rows = of_owners(wire, &of_shard);
        let variance = self.by_shard(wire.shards, |p| seen(p) * (1.0 - seen(p)));
        // The logarithm of the probability that no row of the shard is seen.
        let none = self.by_shard(wire.shards, |p| accesses * (-p).ln_1p());
        let of_shard = of_shard.iter().zip(&variance).zip(&none);
        let of_shard: Vec<f64> = of_shard.map(|((&mean, &variance), none)| words(mean, variance, none.exp())).collect();
        let bit_words = of_owners(wire, &of_shard);
        let mut dirty = vec![0.0; wire.ranks as usize];
        for &(row, share) in self.dirty {
            dirty[wire.owner(row % wire.shards) as usize] += share * seen(self.skew.probability(row.into()));
        }
        let sums = if wire.form.summed { self.sums(wire, bags) } else { vec![0.0; wire.ranks as usize] };
        // The logarithm of how much likelier an even number of rows is than an odd one.
        let even = self.by_shard(wire.shards, |p| (1.0 - 2.0 * seen(p)).abs().max(1e-30).ln());
        let even = of_owners(wire, &even);
        let asked = |owner: usize| {
            let mass = mass[owner];
            let there = accesses * mass;
            let touched = -(f64::from(self.lookups) * (-mass).ln_1p()).exp_m1();
            // The expected half of an odd number of accesses fills a word.
            let odd = 0.5 - 0.5 * (1.0 - 2.0 * mass).powi(accesses as i32);
            Asked {
                rows: rows[owner],
                dirty: dirty[owner],
                bit_words: bit_words[owner],
                accesses: there,
                half_words: 0.5 * (there + odd),
                bags: if wire.pooling == Pooling::None { there } else { f64::from(bags) * touched },
                sums: sums[owner],
                row_words: 0.5 * (rows[owner] + 0.5 * (1.0 - even[owner].exp())),
                any: seen(mass),
            }
        };
        (0..wire.ranks as usize).map(asked).collect()
    }

    /// The pairs of a row and a slice of a part of so many bags. Slices have at most two sizes.
    fn sums(&self, wire: Wire, bags: u32) -> Vec<f64> {
        let samples = self.batch / wire.features;
        let (small, slices) = (samples / wire.shards, wire.slices());
        let larger = bags / wire.features - small * slices;
        let of = |bags: u32| {
            let accesses = f64::from(bags) * f64::from(wire.features) * f64::from(self.lookups);
            of_owners(wire, &self.by_shard(wire.shards, |p| -(accesses * (-p).ln_1p()).exp_m1()))
        };
        let pairs = of(small).into_iter().zip(of(small + 1));
        pairs.map(|(small, large)| f64::from(slices - larger) * small + f64::from(larger) * large).collect()
    }

    /// Adds the hottest rows: who asks for them, and who uses them.
    fn add_hot(&self, bill: &mut Bill, bags_of: impl Fn(u32) -> u32) {
        let wire = bill.wire;
        let mut parts: HashMap<u32, f64> = HashMap::new();
        (0..wire.ranks).for_each(|rank| *parts.entry(bags_of(rank)).or_default() += 1.0);
        let dirty: HashMap<u32, f64> = self.dirty.iter().copied().collect();
        let most = self.skew.rows().min(self.ends.last().map_or(0, |&end| end.into())) as u32;
        for row in 0..most {
            let log = (-self.skew.probability(row.into())).ln_1p();
            let seen = |bags: u32| -(f64::from(bags) * f64::from(self.lookups) * log).exp_m1();
            let home = wire.owner(row % wire.shards);
            let asked = parts.iter().map(|(&bags, ranks)| ranks * seen(bags)).sum::<f64>() - seen(bags_of(home));
            let hot = &mut bill.hot[self.ends.partition_point(|&end| end <= row)];
            let share = dirty.get(&row).copied().unwrap_or(0.0);
            *hot =
                Hot { asked: hot.asked + asked, dirty: hot.dirty + asked * share, used: hot.used + seen(self.batch) };
        }
    }
}

/// Sums a value of each shard over the shards of each rank.
fn of_owners(wire: Wire, of_shard: &[f64]) -> Vec<f64> {
    of_shard.chunks((wire.shards / wire.ranks) as usize).map(|shards| shards.iter().sum()).collect()
}

/// The expected words of one bit a row for the rows of a shard that are asked for. `none` is the probability that there are none. Beside
/// that their number is taken as a constant and a Poisson variable of its mean and variance.
fn words(mean: f64, variance: f64, none: f64) -> f64 {
    if variance > EVEN {
        return (mean + 15.5) / 32.0;
    }
    let constant = (mean - variance).max(0.0).floor();
    let rest = mean - constant;
    let (mut sum, mut probability) = (1.0 - none, (-rest).exp());
    // Beyond three times the largest mean nothing is left.
    for number in 0..(3.0 * EVEN) as u32 {
        if number > 0 {
            probability *= rest / f64::from(number);
        }
        sum += probability * (((constant + f64::from(number)) / 32.0).ceil() - 1.0).max(0.0);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds up the distribution of the number of rows, row by row.
    fn exact(seen: &[f64]) -> f64 {
        let mut of = vec![1.0];
        for &one in seen {
            of.push(0.0);
            for number in (1..of.len()).rev() {
                of[number] = of[number] * (1.0 - one) + of[number - 1] * one;
            }
            of[0] *= 1.0 - one;
        }
        (0_u32..).zip(of).map(|(number, probability)| probability * f64::from(number.div_ceil(32))).sum()
    }

    #[test]
    fn words_of_bits_are_those_of_the_distribution_row_by_row() {
        for (rows, power, scale) in
            [(50, 1.0, 0.01), (50, 1.0, 1.0), (400, 0.5, 3.0), (2000, 0.2, 1.0), (3000, 1.0, 40.0), (900, 0.1, 0.9)]
        {
            let seen: Vec<f64> = (1..=rows).map(|row| (scale * f64::from(row).powf(-power)).min(0.999)).collect();
            let mean = seen.iter().sum();
            let variance = seen.iter().map(|one| one * (1.0 - one)).sum();
            let none = seen.iter().map(|one| 1.0 - one).product();
            let (found, wanted) = (words(mean, variance, none), exact(&seen));
            assert!((found / wanted - 1.0).abs() < 0.005, "{rows} {power} {scale}: {found}, wanted {wanted}");
        }
        assert_eq!(words(0.0, 0.0, 1.0), 0.0);
    }
}
