//! What a row, a slot and a lookup take: asked of the crate's own layout and memory plan, so that no formula here can go stale.

use super::memory::BINDING;
use crate::failure::Failure;
use crate::names::{OptimizerName, PrecisionName};
use hotrow::internals::layout::WAYS;
use hotrow::{Calls, GroupConfig, Layout, MemoryReport, Placement, Policy};

/// The group that is planned for, but for its cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) rows: u32,
    pub(super) dim: u32,
    pub(super) precision: PrecisionName,
    pub(super) optimizer: OptimizerName,
    pub(super) inference: bool,
}

/// Bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sizes {
    /// A record, as it crosses the bus.
    pub(super) record: u64,
    /// A slot of the cache on the device: weights, state, metadata and its place in a flush.
    pub(super) slot: u64,
    /// What a step allocates for each lookup of a batch.
    pub(super) lookup: u64,
}

/// Lookups and slots over which the shares of one are taken: many, so that what a group allocates once is spread thin.
const MANY: u32 = 1 << 16;

impl Shape {
    /// The configuration: nothing but pinned rows in the cache, the records in host memory.
    pub(super) fn config(&self, cache_rows: u32) -> GroupConfig {
        let mut config = GroupConfig::new(&[self.rows], self.dim);
        config.precision = self.precision.precision();
        config.optimizer = self.optimizer.optimizer(0.01);
        config.policy = Policy::Static;
        config.placement = Placement::Mapped;
        config.cache_rows = cache_rows;
        config
    }

    fn calls(&self, lookups: u32) -> Calls {
        let lookups = (lookups > 0).then_some(lookups);
        if self.inference {
            Calls::default().with_frozen(lookups).with_in_flight(1)
        } else {
            Calls::default().with_train(lookups).with_flush(true).with_in_flight(1)
        }
    }

    /// All that the group takes on the device with a cache of so many rows and batches of so many lookups, its records aside.
    pub(super) fn device(&self, cache_rows: u32, lookups: u32) -> Result<u64, Failure> {
        let config = self.config(cache_rows);
        let layout = layout(&config)?;
        Ok(MemoryReport::plan(&config, &layout, self.calls(lookups)).device())
    }

    /// Sets of the largest cache that the crate takes: it has no more rows than the table, and its parts fit a binding.
    pub(super) fn most_sets(&self) -> u32 {
        let takes = |sets: u32| {
            let slots = u64::from(sets) * u64::from(WAYS);
            let config = self.config(slots.min(self.rows.into()) as u32);
            Layout::new(&config, BINDING).is_ok()
        };
        let (mut few, mut many) = (0, self.rows.div_ceil(WAYS));
        while few < many {
            let middle = many - (many - few) / 2;
            if takes(middle) { few = middle } else { many = middle - 1 }
        }
        few
    }

    pub(super) fn sizes(&self) -> Result<Sizes, Failure> {
        // A table of so many rows that each lookup may meet another one.
        let large = Self { rows: self.rows.max(2 * MANY), ..*self };
        let bare = large.device(0, 0)?;
        let share = |bytes: u64| (bytes - bare).div_ceil(u64::from(MANY));
        Ok(Sizes {
            record: layout(&self.config(0))?.stride(),
            slot: share(large.device(MANY, 0)?),
            lookup: share(large.device(0, MANY)?),
        })
    }
}

/// What a group refuses is bad usage here.
fn layout(config: &GroupConfig) -> Result<Layout, Failure> {
    Layout::new(config, BINDING).map_err(|error| Failure::Usage(error.to_string()))
}

/// Slots of a cache for `rows` rows: whole sets.
pub(super) const fn slots(rows: u64) -> u64 {
    rows.div_ceil(WAYS as u64) * WAYS as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_cache_is_one_that_the_crate_takes() {
        let (precision, optimizer) = (PrecisionName::Int8, OptimizerName::Sgd);
        let most = |rows| {
            let shape = Shape { rows, dim: 4, precision, optimizer, inference: false };
            let sets = shape.most_sets();
            let slots = (u64::from(sets) * u64::from(WAYS)).min(rows.into()) as u32;
            assert!(shape.device(slots, 1).is_ok(), "{rows}");
            sets
        };
        assert_eq!([most(1), most(32), most(33)], [1, 1, 2]);
        assert_eq!(most(4_294_967_294), 1 << 26, "2^31 rows are the most");
    }
}
