//! A model of cost: what each stage of a step asks of a device, reckoned from the layouts that the kernels use, and the seconds that a machine
//! of `data/machines.csv` needs for it. It needs no device.
//!
//! - A *sector* is 32 bytes, a *line* 128 bytes of memory, both aligned. An access is one instruction of one subgroup of 32 lanes. It asks for
//!   each sector and each line that its lanes touch once; the next access asks for them again. So sectors and lines count requests, of which
//!   caches serve many. Lines are what the first cache takes one a clock; sectors are what comes from the second.
//! - *Bytes* are those that must move through memory however the kernel is written ([`Facts`]).
//! - *Atomics* are read-modify-write operations on storage, and the most on one word. *Barriers* are counted once a workgroup.
//!
//! - A *turn* is one pass of a workgroup through its loop; a *wait* is a load that must end before the next can begin.
//!
//! Counts are expected values: places that the step's data decide count as random. Data that are not even, such as Zipf's law, enter by the
//! counts of [`Facts`].

mod access;
mod machine;
mod predict;
mod stages;
#[cfg(test)]
mod tests;

use super::bytes::Facts;
use hotrow::{Layout, LookupBody};

pub(super) use machine::{Machine, names};
pub(super) use stages::{backward, forward, sort_alone};

/// What the counts of a step depend on beside its rows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Device {
    pub(super) lookup: LookupBody,
    /// Most workgroups of a stage whose work is counted on the device, and of update.
    pub(super) grid: f64,
    pub(super) wide: f64,
    /// Most windows of a cache; storage buffers that they leave bind further shards of a table.
    pub(super) windows: f64,
}

/// A step.
#[derive(Clone, Debug)]
pub(super) struct Work {
    pub(super) facts: Facts,
    pub(super) layout: Layout,
    pub(super) tables: f64,
    /// Whether records lie behind the bus.
    pub(super) mapped: bool,
    pub(super) device: Device,
}

impl Work {
    /// The most distinct rows that the host expects.
    fn most_distinct(&self) -> f64 {
        f64::from(self.layout.most_distinct(self.facts.accesses as u32))
    }
}

/// A phase of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Forward,
    Backward,
    Sort,
}

impl Phase {
    fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::Sort => "sort",
        }
    }
}

/// What a dispatch asks of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Counts {
    pub(super) dispatches: f64,
    pub(super) workgroups: f64,
    pub(super) sectors: f64,
    pub(super) lines: f64,
    pub(super) atomics: f64,
    /// The most atomics on one word.
    pub(super) hottest: f64,
    pub(super) barriers: f64,
    /// Turns of the loops of all workgroups.
    pub(super) turns: f64,
    /// Loads that wait one for another, added up over all turns.
    pub(super) waits: f64,
    /// Bytes over the bus.
    pub(super) link_in: f64,
    pub(super) link_out: f64,
}

impl Counts {
    fn touch(&mut self, touched: access::Touched) {
        self.sectors += touched.sectors;
        self.lines += touched.lines;
    }

    fn atomics(&mut self, all: f64, hottest: f64) {
        self.atomics += all;
        self.hottest = self.hottest.max(hottest);
    }

    fn add(&mut self, other: &Self) {
        self.dispatches += other.dispatches;
        self.workgroups += other.workgroups;
        self.sectors += other.sectors;
        self.lines += other.lines;
        self.atomics += other.atomics;
        self.hottest = self.hottest.max(other.hottest);
        self.barriers += other.barriers;
        self.turns += other.turns;
        self.waits += other.waits;
        self.link_in += other.link_in;
        self.link_out += other.link_out;
    }
}

/// All dispatches of a stage in a phase.
#[derive(Clone, Debug)]
pub(super) struct Stage {
    pub(super) name: &'static str,
    pub(super) phase: Phase,
    /// Bytes that must move.
    pub(super) bytes: f64,
    pub(super) dispatches: Vec<Counts>,
}

impl Stage {
    /// The sum over its dispatches.
    pub(super) fn counts(&self) -> Counts {
        self.dispatches.iter().fold(Counts::default(), |mut sum, one| {
            sum.add(one);
            sum
        })
    }
}
