//! The limits of a run, the trait of a measuring backend, and the list of measured updates and gradients.

use hotrow::robe::{Backward, Config};
use hotrow::{Error, GroupConfig, Optimizer};

use super::shape::Shape;
use crate::bench::suite::Size;
use crate::lab::Stage;
use crate::report::units::Times;

/// The settings and limits of a run.
pub(super) struct Plan<'a> {
    pub(super) size: Size,
    pub(super) shape: Shape,
    /// The most bytes that a table may take.
    pub(super) memory: Option<u64>,
    pub(super) optimizer: Optimizer,
    pub(super) seed: u32,
    /// Once the time is up, the reason to name.
    pub(super) over: &'a dyn Fn() -> Option<String>,
    /// `cpu` or `gpu`.
    pub(super) backend: &'static str,
}

impl Plan<'_> {
    /// Returns an error if an array of `bytes` bytes exceeds the memory limit, or if the time is up.
    pub(super) fn has_room(&self, bytes: u64, of: &str) -> Result<(), String> {
        let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
        match self.memory {
            Some(most) if bytes > most => {
                Err(format!("memory: wanted at most {:.3} GiB {of} (--memory), found {:.3} GiB", gib(most), gib(bytes)))
            }
            _ => (self.over)().map_or(Ok(()), Err),
        }
    }
}

pub(super) trait Runner {
    /// Makes an array of this configuration. If `same`, the existing array gets the configuration; else a new one replaces it.
    fn array(&mut self, config: Config, same: bool) -> Result<(), Error>;
    /// The choice of `Backward::Auto` for a batch whose chunks begin in `starts` distinct places.
    fn auto(&self, starts: u32) -> &'static str;
    /// Times of the forward over the batches in turn, and of the call that follows it.
    fn steps(&mut self, batches: &Batches<'_>, behind: Behind) -> anyhow::Result<[Times; 2]>;
    /// Stages of the last steps, if the device has timestamps.
    fn stages(&mut self) -> Vec<Stage> {
        Vec::new()
    }
    /// Time of the forward of a cached table over the batches in turn, after batches that fill its cache; and the hit rate.
    fn cached(
        &mut self,
        config: &GroupConfig,
        warm: &[Vec<u32>],
        batches: &Batches<'_>,
    ) -> anyhow::Result<(Times, f64)>;
}

/// Rows of one table, in bags of `bag`.
pub(super) struct Batches<'b> {
    pub(super) rows: &'b [Vec<u32>],
    pub(super) bag: u32,
}

impl Batches<'_> {
    pub(super) fn offsets(&self) -> Vec<u32> {
        (0..=self.rows[0].len() as u32).step_by(self.bag as usize).collect()
    }
}

/// The call that follows a forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Behind {
    Nothing,
    /// `backward`: sums and optimiser in one call, without a gradient in memory.
    Update,
    /// The gradient alone, written to memory: ROBE's backward.
    Gradient,
}

/// Updates and gradients with their ways of summing, in the order of measurement.
pub(super) const WAYS: [(&str, Behind, Backward); 5] = [
    ("dense update", Behind::Update, Backward::Dense),
    ("sparse update", Behind::Update, Backward::Sparse),
    ("dense gradient", Behind::Gradient, Backward::Dense),
    ("sparse gradient", Behind::Gradient, Backward::Sparse),
    ("atomic update", Behind::Update, Backward::Atomic),
];
