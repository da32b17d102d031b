//! Bytes of a record, a slot and a lookup, computed by the crate's own layout and memory plan, so that no second formula can become wrong.

use crate::{
    config::{GroupConfig, Optimizer, Placement, Policy, Precision, WAYS, setters},
    error::Error,
    memory::{Calls, MemoryReport},
    table::layout::Layout,
};

/// A group of one table that a plan is made for. Its records are in host memory, and its cache holds pinned rows only.
///
/// Example: the [module](crate::scars::sets).
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct PlannedGroup {
    /// Rows of the table.
    pub rows: u32,
    /// Weights of a row.
    pub dim: u32,
    /// The type in which the table stores weights.
    pub precision: Precision,
    /// The update rule. It decides how much state a row has.
    pub optimizer: Optimizer,
    /// Whether batches have a backward; else rows are only read.
    pub training: bool,
    /// Most bytes that one binding of the device can have.
    pub binding: u64,
}

/// Bytes that a planned group takes for each record, slot and lookup.
///
/// Example: the [module](crate::scars::sets).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupBytes {
    /// Bytes of a record, as it crosses the bus.
    pub record: u64,
    /// Device bytes of a slot of the cache: weights, state, metadata and its place in a flush.
    pub slot: u64,
    /// Device bytes that a step allocates for each lookup of a batch.
    pub lookup: u64,
}

/// Number of lookups and of slots from which the bytes of one are derived: large enough to make fixed allocations negligible.
const MANY: u32 = 1 << 16;

setters!(PlannedGroup {
    with_rows rows: u32,
    with_dim dim: u32,
    with_precision precision: Precision,
    with_optimizer optimizer: Optimizer,
    with_training training: bool,
});

impl PlannedGroup {
    /// A group in INT8 that is trained by SGD, on a device whose bindings have at most `binding` bytes.
    #[must_use]
    pub fn new(rows: u32, dim: u32, binding: u64) -> Self {
        Self { rows, dim, precision: Precision::Int8, optimizer: Optimizer::sgd(0.01), training: true, binding }
    }

    /// The group's configuration with a cache of `cache_rows` rows.
    #[must_use]
    pub fn config(&self, cache_rows: u32) -> GroupConfig {
        let mut config = GroupConfig::new(&[self.rows], self.dim);
        config.precision = self.precision;
        config.optimizer = self.optimizer;
        config.policy = Policy::Static;
        config.placement = Placement::Mapped;
        config.cache_rows = cache_rows;
        config
    }

    /// Device bytes of the group with a cache of `cache_rows` rows and batches of `lookups` lookups. Its records are in host memory.
    ///
    /// # Errors
    /// [`Error::Config`] for an illegal configuration.
    pub fn device_bytes(&self, cache_rows: u32, lookups: u32) -> Result<u64, Error> {
        let config = self.config(cache_rows);
        let layout = Layout::new(&config, self.binding)?;
        let lookups = (lookups > 0).then_some(lookups);
        let calls = if self.training {
            Calls { train: lookups, flush: true, in_flight: 1, ..Calls::default() }
        } else {
            Calls { frozen: lookups, in_flight: 1, ..Calls::default() }
        };
        Ok(MemoryReport::plan(&config, &layout, calls).device())
    }

    /// Sets of the largest legal cache: it has no more rows than the table, and its parts fit a binding.
    #[must_use]
    pub fn most_sets(&self) -> u32 {
        let takes = |sets: u32| {
            let slots = u64::from(sets) * u64::from(WAYS);
            let config = self.config(slots.min(self.rows.into()) as u32);
            Layout::new(&config, self.binding).is_ok()
        };
        let (mut few, mut many) = (0, self.rows.div_ceil(WAYS));
        while few < many {
            let middle = many - (many - few) / 2;
            if takes(middle) { few = middle } else { many = middle - 1 }
        }
        few
    }

    /// Bytes of a record, a slot and a lookup.
    ///
    /// # Errors
    /// [`Error::Config`] for an illegal configuration.
    pub fn bytes(&self) -> Result<GroupBytes, Error> {
        // A table so large that each lookup can have a row of its own.
        let large = Self { rows: self.rows.max(2 * MANY), ..*self };
        let bare = large.device_bytes(0, 0)?;
        let share = |bytes: u64| (bytes - bare).div_ceil(u64::from(MANY));
        Ok(GroupBytes {
            record: Layout::new(&self.config(0), self.binding)?.stride(),
            slot: share(large.device_bytes(MANY, 0)?),
            lookup: share(large.device_bytes(0, MANY)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_cache_is_one_that_the_crate_takes() {
        let most = |rows| {
            let group = PlannedGroup::new(rows, 4, (1 << 31) - 256);
            let sets = group.most_sets();
            let slots = (u64::from(sets) * u64::from(WAYS)).min(rows.into()) as u32;
            assert!(group.device_bytes(slots, 1).is_ok(), "{rows}");
            sets
        };
        assert_eq!([most(1), most(32), most(33)], [1, 1, 2]);
        assert_eq!(most(4_294_967_294), 1 << 26, "2^31 rows are the most");
    }
}
