//! The bytes of a step by phase and pair of ranks, and what follows from them: sums, imbalance, time.

use super::wire::{Asked, Phase, Wire};

/// Rates of machines and their network.
#[derive(Clone, Copy, Debug)]
pub(super) struct Speed {
    /// Seconds of a message.
    pub(super) alpha: f64,
    /// Bytes a second through one machine's interface, in each direction.
    pub(super) beta: f64,
    /// Logical bytes a second of a rank's own work.
    pub(super) gamma: f64,
    /// Ranks on one machine. What they send each other crosses no interface.
    pub(super) per_host: u32,
}

/// The rows that could be replicated: those of one range of the hottest.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Hot {
    /// Requests for such a row by a rank that does not hold it.
    pub(super) asked: f64,
    /// Those of them for a row whose slot is dirty.
    pub(super) dirty: f64,
    /// Distinct rows that any rank uses.
    pub(super) used: f64,
}

/// A step, or the mean of several.
#[derive(Clone, Debug)]
pub(super) struct Bill {
    pub(super) wire: Wire,
    /// Bytes of each phase: from rank `p / ranks` to rank `p mod ranks`.
    pub(super) bytes: [Vec<f64>; 5],
    /// Whether requester `p / ranks` asks rank `p mod ranks` for anything; the probability of it.
    any: Vec<f64>,
    /// The sums over all pairs.
    pub(super) asked: Asked,
    /// Distinct rows that ranks read of their own shards.
    pub(super) own_rows: f64,
    /// Distinct rows of the batch.
    pub(super) distinct: f64,
    /// Accesses of each rank's part.
    pub(super) part: Vec<f64>,
    /// Output rows of each rank's part.
    pub(super) outputs: Vec<f64>,
    /// Accesses to each rank's rows.
    pub(super) owned: Vec<f64>,
    /// By ranges of the hottest rows.
    pub(super) hot: Vec<Hot>,
}

impl Bill {
    /// Nothing.
    pub(super) fn new(wire: Wire, hot: usize) -> Self {
        let ranks = wire.ranks as usize;
        Self {
            wire,
            bytes: std::array::from_fn(|_| vec![0.0; ranks * ranks]),
            any: vec![0.0; ranks * ranks],
            asked: Asked::default(),
            own_rows: 0.0,
            distinct: 0.0,
            part: vec![0.0; ranks],
            outputs: vec![0.0; ranks],
            owned: vec![0.0; ranks],
            hot: vec![Hot::default(); hot],
        }
    }

    pub(super) const fn ranks(&self) -> usize {
        self.wire.ranks as usize
    }

    /// Adds what `requester` asks of another rank.
    pub(super) fn ask(&mut self, requester: usize, owner: usize, asked: &Asked) {
        let ranks = self.ranks();
        let bytes = self.wire.bytes(asked);
        for ((phase, all), bytes) in Phase::ALL.iter().zip(&mut self.bytes).zip(bytes) {
            let (from, to) = if phase.is_answer() { (owner, requester) } else { (requester, owner) };
            all[from * ranks + to] += bytes;
        }
        self.any[requester * ranks + owner] += asked.any;
        self.asked.add(asked);
    }

    /// Adds a step to a sum of steps.
    pub(super) fn add(&mut self, step: &Self) {
        let sum = |into: &mut [f64], from: &[f64]| into.iter_mut().zip(from).for_each(|(into, from)| *into += from);
        for (into, from) in self.bytes.iter_mut().zip(&step.bytes) {
            sum(into, from);
        }
        sum(&mut self.any, &step.any);
        sum(&mut self.part, &step.part);
        sum(&mut self.outputs, &step.outputs);
        sum(&mut self.owned, &step.owned);
        self.asked.add(&step.asked);
        self.own_rows += step.own_rows;
        self.distinct += step.distinct;
        for (into, from) in self.hot.iter_mut().zip(&step.hot) {
            *into = Hot { asked: into.asked + from.asked, dirty: into.dirty + from.dirty, used: into.used + from.used };
        }
    }

    /// The mean of so many steps, of which this is the sum.
    pub(super) fn mean(mut self, steps: f64) -> Self {
        let lists = self.bytes.iter_mut().chain([&mut self.any, &mut self.part, &mut self.outputs, &mut self.owned]);
        lists.flatten().for_each(|value| *value /= steps);
        self.asked = self.asked.times(1.0 / steps);
        self.own_rows /= steps;
        self.distinct /= steps;
        for hot in &mut self.hot {
            *hot = Hot { asked: hot.asked / steps, dirty: hot.dirty / steps, used: hot.used / steps };
        }
        self
    }

    /// Bytes of a phase over all ranks.
    pub(super) fn phase(&self, phase: Phase) -> f64 {
        self.bytes[phase as usize].iter().sum()
    }

    /// Bytes over all ranks and phases.
    pub(super) fn total(&self) -> f64 {
        Phase::ALL.iter().map(|&phase| self.phase(phase)).sum()
    }

    /// Messages of a phase over all ranks.
    pub(super) fn messages(&self, phase: Phase) -> f64 {
        self.pairs().map(|(from, to)| self.messages_of(phase, from, to)).sum()
    }

    fn messages_of(&self, phase: Phase, from: usize, to: usize) -> f64 {
        let (requester, owner) = if phase.is_answer() { (to, from) } else { (from, to) };
        self.wire.messages(phase, self.any[requester * self.ranks() + owner])
    }

    /// All pairs of a sender and a receiver.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let ranks = self.ranks();
        (0..ranks).flat_map(move |from| (0..ranks).filter(move |&to| to != from).map(move |to| (from, to)))
    }

    /// Bytes from one rank to another, of all phases.
    pub(super) fn pair(&self, from: usize, to: usize) -> f64 {
        self.bytes.iter().map(|bytes| bytes[from * self.ranks() + to]).sum()
    }

    /// The pair with most bytes of a list of phases, and its bytes.
    pub(super) fn largest_pair(&self, phases: &[Phase]) -> Option<((usize, usize), f64)> {
        let ranks = self.ranks();
        let bytes = |(from, to)| phases.iter().map(|&phase| self.bytes[phase as usize][from * ranks + to]).sum::<f64>();
        // Of equal pairs the first.
        self.pairs().map(|pair| (pair, bytes(pair))).reduce(|best, one| if one.1 > best.1 { one } else { best })
    }

    /// Bytes that each rank sends and receives.
    pub(super) fn through(&self) -> Vec<f64> {
        let mut through = vec![0.0; self.ranks()];
        for (from, to) in self.pairs() {
            let bytes = self.pair(from, to);
            through[from] += bytes;
            through[to] += bytes;
        }
        through
    }

    /// The most bytes that a rank sends and receives in one phase.
    pub(super) fn largest_message(&self) -> f64 {
        let ranks = self.ranks();
        let of_rank = |bytes: &[f64], rank: usize| -> f64 {
            (0..ranks).map(|other| bytes[rank * ranks + other] + bytes[other * ranks + rank]).sum()
        };
        let all = self.bytes.iter().flat_map(|bytes| (0..ranks).map(move |rank| of_rank(bytes, rank)));
        all.fold(0.0, f64::max)
    }

    /// Seconds of each phase: those of the machine that needs longest for its messages and its bytes.
    pub(super) fn exchange_seconds(&self, speed: &Speed) -> [f64; 5] {
        let each = (speed.per_host as usize).min(self.ranks());
        let hosts = self.ranks() / each;
        Phase::ALL.map(|phase| {
            // Bytes out of a machine and into it; messages that each rank sends and receives.
            let (mut out, mut into) = (vec![0.0; hosts], vec![0.0; hosts]);
            let (mut sent, mut received) = (vec![0.0; self.ranks()], vec![0.0; self.ranks()]);
            for (from, to) in self.pairs().filter(|&(from, to)| from / each != to / each) {
                let bytes = self.bytes[phase as usize][from * self.ranks() + to];
                out[from / each] += bytes;
                into[to / each] += bytes;
                let messages = self.messages_of(phase, from, to);
                sent[from] += messages;
                received[to] += messages;
            }
            let most = |list: &[f64]| list.iter().copied().fold(0.0, f64::max);
            let seconds = |host: usize| {
                let ranks = host * each..(host + 1) * each;
                let messages = most(&sent[ranks.clone()]).max(most(&received[ranks]));
                speed.alpha * messages + out[host].max(into[host]) / speed.beta
            };
            (0..hosts).map(seconds).fold(0.0, f64::max)
        })
    }

    /// Seconds of the own work of the rank that has most: the logical bytes of its part's forward, and of the backward of its rows.
    pub(super) fn own_seconds(&self, speed: &Speed) -> f64 {
        let row = self.wire.row_bytes();
        let bytes = |rank: usize| {
            let [outputs, part, owned] = [self.outputs[rank], self.part[rank], self.owned[rank]].map(|n| n * row);
            (outputs + part) + 2.0 * (outputs + owned)
        };
        (0..self.ranks()).map(bytes).fold(0.0, f64::max) / speed.gamma
    }
}

/// The largest of a list over its mean; 1 for a list of zeros.
pub(super) fn imbalance(list: &[f64]) -> f64 {
    let mean = list.iter().sum::<f64>() / list.len() as f64;
    if mean > 0.0 { list.iter().copied().fold(0.0, f64::max) / mean } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotrow::dist::WireOptions;
    use hotrow::{Pooling, Precision};

    fn bill(ranks: u32) -> Bill {
        let wire = Wire {
            dim: 4,
            precision: Precision::Fp32,
            form: WireOptions::default(),
            pooling: Pooling::Sum,
            weighted: false,
            features: 1,
            ranks,
            shards: ranks,
        };
        Bill::new(wire, 0)
    }

    #[test]
    fn an_answer_goes_the_other_way() {
        let mut bill = bill(2);
        let asked = Asked { rows: 3.0, accesses: 5.0, half_words: 3.0, bags: 2.0, any: 1.0, ..Asked::default() };
        bill.ask(0, 1, &asked);
        assert_eq!(bill.bytes[Phase::Requests as usize], [0.0, 24.0, 0.0, 0.0]);
        assert_eq!(bill.bytes[Phase::Rows as usize], [0.0, 0.0, 48.0, 0.0]);
        // Counts 4 * 5, requests 24; gradients 4 * (1 + 8 + 3).
        assert_eq!((bill.pair(0, 1), bill.pair(1, 0), bill.total()), (92.0, 48.0, 140.0));
        assert_eq!(bill.largest_pair(&Phase::ALL), Some(((0, 1), 92.0)));
        assert_eq!(bill.largest_pair(&[Phase::Rows]), Some(((1, 0), 48.0)));
        assert_eq!(bill.through(), [140.0, 140.0]);
        assert_eq!((bill.messages(Phase::Requests), bill.messages(Phase::Counts)), (1.0, 2.0));
    }

    #[test]
    fn the_slowest_machine_decides_a_phase() {
        let mut bill = bill(4);
        let ranks = 4;
        // 300 bytes leave machine 0 (ranks 0 and 1); 1,000 stay inside.
        bill.bytes[Phase::Rows as usize][2] = 200.0;
        bill.bytes[Phase::Rows as usize][ranks + 3] = 100.0;
        bill.bytes[Phase::Rows as usize][1] = 1000.0;
        bill.any[2 * ranks] = 1.0;
        bill.any[3 * ranks] = 1.0;
        let mut speed = Speed { alpha: 1.0, beta: 100.0, gamma: 10.0, per_host: 2 };
        let rows = |bill: &Bill, speed: &Speed| bill.exchange_seconds(speed)[Phase::Rows as usize];
        // Rank 0 sends two messages.
        assert_eq!(rows(&bill, &speed), 2.0 + 3.0);
        speed.per_host = 1;
        assert_eq!(rows(&bill, &speed), 2.0 + 12.0);
        speed.per_host = 8;
        assert_eq!(bill.exchange_seconds(&speed), [0.0; 5]);
        (bill.part[1], bill.outputs[1], bill.owned[2]) = (5.0, 1.0, 4.0);
        // Rank 1: (1 + 5 + 2) rows of 16 bytes; rank 2: 8.
        assert_eq!(bill.own_seconds(&speed), 12.8);
        assert_eq!((imbalance(&[1.0, 3.0]), imbalance(&[0.0, 0.0])), (1.5, 1.0));
    }
}
