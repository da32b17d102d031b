//! How large everything is: for a GPU, or so small that a software driver gets through in two minutes.

use crate::lab::Rounds;
use clap::ValueEnum;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Size {
    /// What a software driver gets through in two minutes
    Small,
    /// The shapes of the goals
    Full,
}

impl Size {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Full => "full",
        }
    }

    pub(crate) fn is_full(self) -> bool {
        self == Self::Full
    }

    /// Seconds after which no further part is begun.
    pub(crate) fn seconds(self) -> u64 {
        if self.is_full() { 240 } else { 90 }
    }

    /// Rounds timed as a whole, rounds whose stages are timed, and the time after which three of the former are enough.
    pub(crate) fn rounds(self) -> Rounds {
        let (whole, detailed, seconds) = if self.is_full() { (15, 5, 3) } else { (3, 1, 1) };
        Rounds { whole, detailed, slice: Duration::from_secs(seconds) }
    }

    /// 1 GiB: seventeen times the L2 of an H200, the largest there is.
    pub(crate) fn copy_bytes(self) -> u64 {
        if self.is_full() { 1 << 30 } else { 32 << 20 }
    }

    /// Indices, and bytes of slots: the goal's.
    pub(crate) fn resident(self) -> (usize, u64) {
        if self.is_full() { (1 << 20, 4 << 30) } else { (4096, 8 << 20) }
    }

    /// Indices of the skewed batch: the goal's million.
    pub(crate) fn skewed(self) -> usize {
        if self.is_full() { 1_000_000 } else { 5_000 }
    }

    /// B, T, E.
    pub(crate) fn tbe(self) -> (u32, u32, u32) {
        if self.is_full() { (512, 32, 100_000) } else { (8, 8, 2_000) }
    }

    /// Lookups, rows of each of ten tables. NVIDIA's smaller setting, where its cached figures have 26.8 M rows: making 34 GB of packed rows
    /// would take most of the suite's time, and a step moves the same.
    pub(crate) fn nvidia(self) -> (u32, u32) {
        if self.is_full() { (1_048_570, 1_680_000) } else { (10_480, 20_000) }
    }

    /// Indices and rows of the table over the bus.
    pub(crate) fn mapped(self) -> (usize, u32) {
        if self.is_full() { (1 << 19, 8_000_000) } else { (2048, 40_000) }
    }

    /// Indices and rows of the staged table: 4.4 GB of INT8 records.
    pub(crate) fn staged(self) -> (usize, u32) {
        if self.is_full() { (1 << 19, 32_000_000) } else { (1200, 40_000) }
    }

    /// Steps until a cache of twice the indices is full at 95 % hits, stretches that are timed, steps of each.
    pub(crate) fn pace(self) -> (usize, usize, usize) {
        if self.is_full() { (24, 6, 8) } else { (22, 2, 4) }
    }

    /// The divisor of SCARS's caches, batches and tables.
    pub(crate) fn pinned(self) -> u32 {
        if self.is_full() { 1 } else { 512 }
    }

    /// Bytes of a cache larger than a binding, and of what is taken for a binding where the device's own is larger than that cache.
    pub(crate) fn windows(self) -> (u64, u64) {
        if self.is_full() { (5 << 30, 2 << 30) } else { (10 << 20, 4 << 20) }
    }

    /// Distinct rows of the steps of time against work.
    pub(crate) fn distinct(self) -> &'static [usize] {
        if self.is_full() {
            &[1_000, 10_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000]
        } else {
            &[100, 300, 1_000, 3_000, 10_000, 30_000]
        }
    }

    /// Pairs and key bits of the sorts; 2^24 by 32 bits is the goal's, 22 bits order four million slots.
    pub(crate) fn sorts(self) -> &'static [(u32, u32)] {
        if self.is_full() {
            &[
                (10_000, 32),
                (100_000, 32),
                (1 << 20, 32),
                (1 << 20, 22),
                (10_000_000, 32),
                (1 << 24, 32),
                (100_000_000, 32),
            ]
        } else {
            &[(1_000, 32), (10_000, 32), (100_000, 32), (100_000, 16)]
        }
    }
}
