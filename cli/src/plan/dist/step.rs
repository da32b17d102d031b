//! The expected counts of a step whose accesses are drawn independently, and what follows from them: bytes, imbalance and time.

use super::super::amount;
use super::wire::{Asked, PHASES, Wire};
use hotrow::Pooling;
use hotrow_report::object::{Field, Object};
use hotrow_report::options::power;

/// Rows that share a probability. They follow each other from the row `first` on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Class {
    pub(super) first: u64,
    pub(super) rows: u64,
    pub(super) probability: f64,
}

/// Independent accesses in bags.
#[derive(Clone, Debug)]
pub(super) struct Model {
    /// In order of their rows.
    pub(super) classes: Vec<Class>,
    /// Rows, with the share of the steps that ask for them while their slot is dirty.
    pub(super) dirty: Vec<(u32, f64)>,
    /// Lengths of bags, with their shares.
    pub(super) lengths: Vec<(f64, f64)>,
    /// Bags of a batch of all ranks.
    pub(super) batch: u32,
}

/// A step of all ranks. All have parts of one size, so each asks the same of an owner.
#[derive(Clone, Debug)]
pub(super) struct Step {
    wire: Wire,
    /// By owner.
    asked: Vec<Asked>,
    /// Distinct rows of the batch.
    distinct: f64,
}

/// Rates of machines and their network.
#[derive(Clone, Copy, Debug, clap::Args)]
#[group(skip)]
pub(super) struct Speed {
    /// Microseconds of a message
    #[arg(long, value_name = "US", default_value_t = 25.0, allow_negative_numbers = true, value_parser = amount::positive)]
    alpha: f64,
    /// Gbit/s of a machine's network interface, in each direction
    #[arg(long, value_name = "GBIT", default_value_t = 10.0, allow_negative_numbers = true, value_parser = amount::positive)]
    beta: f64,
    /// Ranks on one machine, a power of two; they share its interface and cross none among themselves
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true, value_parser = power(1024))]
    pub(super) per_host: u32,
}

/// The largest probability; that of all rows together may be rounded up to more than 1.
const CERTAIN: f64 = 1.0 - f64::EPSILON;

/// The probability that a row is among so many accesses.
fn seen(probability: f64, accesses: f64) -> f64 {
    -(accesses * (-probability).ln_1p()).exp_m1()
}

impl Model {
    pub(super) fn per_bag(&self) -> f64 {
        self.lengths.iter().map(|(length, share)| length * share).sum()
    }

    /// Sums a value over the rows of each shard; `value` takes the probability of a row.
    fn by_shard(&self, shards: u32, value: impl Fn(f64) -> f64) -> Vec<f64> {
        let all = u64::from(shards);
        let (mut of, mut each) = (vec![0.0; shards as usize], 0.0);
        for class in &self.classes {
            let value = value(class.probability);
            // The rows of a class go round the shards, which takes whole rounds and a rest.
            each += value * (class.rows / all) as f64;
            (0..class.rows % all).for_each(|row| of[((class.first + row) % all) as usize] += value);
        }
        of.iter_mut().for_each(|sum| *sum += each);
        of
    }

    fn probability(&self, row: u32) -> f64 {
        let next = self.classes.partition_point(|class| class.first <= row.into());
        next.checked_sub(1).map_or(0.0, |at| self.classes[at].probability)
    }

    pub(super) fn step(&self, wire: Wire) -> Step {
        let shards = |value: &dyn Fn(f64) -> f64| self.by_shard(wire.shards, value);
        let owners = |of_shard: &[f64]| -> Vec<f64> {
            of_shard.chunks(wire.each() as usize).map(|shards| shards.iter().sum()).collect()
        };
        let bags = f64::from(self.batch) / f64::from(wire.ranks);
        let (accesses, all) = (bags * self.per_bag(), f64::from(self.batch) * self.per_bag());
        let mass_of_shard = shards(&|p| p);
        let (mass, of_shard) = (owners(&mass_of_shard), shards(&|p| seen(p, accesses)));
        // Whole words of one bit a row: one for few rows, if there are any; for many, half of the last word is free on average.
        let words = |(rows, mass): (&f64, &f64)| {
            if *rows < 16.5 { seen(mass.min(CERTAIN), accesses) } else { (rows + 15.5) / 32.0 }
        };
        let bits: Vec<f64> = of_shard.iter().zip(&mass_of_shard).map(words).collect();
        let (rows, bit_words) = (owners(&of_shard), owners(&bits));
        let slices = f64::from(wire.each());
        let sums = owners(&shards(&|p| slices * seen(p, accesses / slices)));
        let mut dirty = vec![0.0; rows.len()];
        for &(row, share) in &self.dirty {
            let p = self.probability(row);
            dirty[(row % wire.shards / wire.each()) as usize] += share * seen(p, accesses) / seen(p, all);
        }
        let asked = |owner: usize| {
            let mass = mass[owner].min(CERTAIN);
            let touched: f64 = self.lengths.iter().map(|&(length, share)| share * seen(mass, length)).sum();
            Asked {
                rows: rows[owner],
                dirty: dirty[owner],
                bit_words: bit_words[owner],
                accesses: accesses * mass,
                bags: if wire.pooling == Pooling::None { accesses * mass } else { bags * touched },
                sums: sums[owner],
            }
        };
        Step { wire, asked: (0..rows.len()).map(asked).collect(), distinct: shards(&|p| seen(p, all)).iter().sum() }
    }
}

impl Step {
    /// The sum of a count over all pairs of ranks.
    pub(super) fn over_pairs(&self, count: impl Fn(&Asked) -> f64) -> f64 {
        f64::from(self.wire.ranks - 1) * self.asked.iter().map(count).sum::<f64>()
    }

    /// The largest value of an owner, for one requester.
    pub(super) fn largest(&self, value: impl Fn(&Asked) -> f64) -> f64 {
        self.asked.iter().map(value).fold(0.0, f64::max)
    }

    /// Distinct rows of a rank's part of the batch.
    pub(super) fn rows(&self) -> f64 {
        self.asked.iter().map(|asked| asked.rows).sum()
    }

    /// Bytes of each phase over all ranks.
    pub(super) fn phases(&self) -> [f64; 5] {
        std::array::from_fn(|phase| self.over_pairs(|asked| self.wire.bytes(asked)[phase]))
    }

    /// Seconds of each phase: those of the machine that needs longest for its messages and its bytes.
    fn exchange_seconds(&self, speed: &Speed) -> [f64; 5] {
        let each = (speed.per_host as usize).min(self.asked.len());
        let elsewhere = (self.asked.len() - each) as f64;
        let seconds = |phase: usize, here: &[Asked]| {
            let sum = |of: &[Asked], value: &dyn Fn(&Asked) -> f64| of.iter().map(value).sum::<f64>();
            let bytes = |asked: &Asked| self.wire.bytes(asked)[phase];
            // Between the ranks here as requesters and the owners elsewhere, and the other way round.
            let asking = each as f64 * (sum(&self.asked, &bytes) - sum(here, &bytes));
            let asked = elsewhere * sum(here, &bytes);
            // Nothing is sent in a phase without bytes.
            let messages = if asking + asked > 0.0 { elsewhere } else { 0.0 };
            speed.alpha * 1e-6 * messages + asking.max(asked) / (speed.beta * 1e9 / 8.0)
        };
        std::array::from_fn(|phase| self.asked.chunks(each).map(|here| seconds(phase, here)).fold(0.0, f64::max))
    }

    pub(super) fn sums(&self, speed: &Speed) -> Object {
        let (ranks, total) = (self.asked.len() as f64, self.phases().iter().sum::<f64>());
        // A rank sends and receives what all others ask of it and what it asks of each owner.
        let of_owner = |asked: &Asked| self.wire.bytes(asked).iter().sum::<f64>();
        let all: f64 = self.asked.iter().map(of_owner).sum();
        let busiest = self.asked.iter().map(|asked| all + (ranks - 2.0) * of_owner(asked)).fold(0.0, f64::max);
        Object::default()
            .with("total_bytes", total)
            .with("sent_bytes", total / ranks)
            .with("busiest_over_mean", if total > 0.0 { busiest * ranks / (2.0 * total) } else { 1.0 })
            .with("exchange_seconds", self.exchange_seconds(speed).iter().sum::<f64>())
    }

    /// Counts of a step, and the bytes of its phases.
    pub(super) fn details(&self, speed: &Speed) -> Object {
        let (phases, seconds) = (self.phases(), self.exchange_seconds(speed));
        let counts = Object::default()
            .with("distinct_rows", self.distinct)
            .with("asked_rows", self.over_pairs(|asked| asked.rows))
            .with("dirty_rows", self.over_pairs(|asked| asked.dirty))
            .with("far_bags", self.over_pairs(|asked| asked.bags))
            .with("rows_with_requests_bytes", phases[1..4].iter().sum::<f64>());
        let line = |phase: usize| {
            Object::default().with("phase", PHASES[phase]).with("bytes", phases[phase]).with("seconds", seconds[phase])
        };
        Object::default().with("step", counts).with("phases", (0..PHASES.len()).map(line).collect::<Field>())
    }
}
