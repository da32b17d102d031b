//! What a run is given, what measures it, and the ways that it measures.

use hotrow::robe::{Backward, Config};
use hotrow::{Error, GroupConfig, Optimizer};

use super::shape::Shape;
use crate::bench::suite::Size;
use crate::lab::Stage;
use crate::report::units::Times;

/// What a run is given.
pub(super) struct Plan<'a> {
    pub(super) size: Size,
    pub(super) shape: Shape,
    /// Most bytes of a table.
    pub(super) memory: Option<u64>,
    pub(super) optimizer: Optimizer,
    pub(super) seed: u32,
    /// Whether the time is up, and what to say then.
    pub(super) over: &'a dyn Fn() -> Option<String>,
    /// `cpu` or `gpu`.
    pub(super) backend: &'static str,
}

impl Plan<'_> {
    /// Why something of so many bytes is not begun.
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

/// A backend that measures.
pub(super) trait Runner {
    /// An array of this configuration: if `same` the last one under it, else a new one in the last one's place.
    fn array(&mut self, config: Config, same: bool) -> Result<(), Error>;
    /// The choice of `Backward::Auto` for an update of the array, whose batch has so many distinct starts.
    fn auto(&self, starts: u32) -> &'static str;
    /// Times of the forward of the array over the batches in turn, and of what comes behind it.
    fn steps(&mut self, batches: &Batches<'_>, behind: Behind) -> anyhow::Result<[Times; 2]>;
    /// Stages of the last steps, on a device that stamps them.
    fn stages(&mut self) -> Vec<Stage> {
        Vec::new()
    }
    /// Forward of a cached table over the batches in turn, after others that fill its cache; and the hit rate.
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

/// What comes behind a forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Behind {
    Nothing,
    /// The sums and the optimiser in one: `backward`. No gradient lies in memory.
    Update,
    /// The gradient alone, into memory: ROBE's backward.
    Gradient,
}

/// Updates and gradients, and how they come by their sums; in the order in which they are measured.
pub(super) const WAYS: [(&str, Behind, Backward); 5] = [
    ("dense update", Behind::Update, Backward::Dense),
    ("sparse update", Behind::Update, Backward::Sparse),
    ("dense gradient", Behind::Gradient, Backward::Dense),
    ("sparse gradient", Behind::Gradient, Backward::Sparse),
    ("atomic update", Behind::Update, Backward::Atomic),
];
