//! Bytes of a record, a slot and a lookup, computed by the crate's own layout and memory plan, so that no second formula can become wrong.

use hotrow::{Calls, Error, GroupConfig, MemoryReport, Placement, Policy, WAYS, internals::Layout};

/// A group that a plan is made for, and the bytes that it takes. Its records are in host memory, and its cache holds pinned rows only.
///
/// Example: the [module](crate::scars).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PlannedGroup {
    /// The configuration, without its cache.
    pub config: GroupConfig,
    /// Whether batches have a backward; else rows are only read.
    pub training: bool,
    /// Most bytes that one binding of the device can have.
    pub binding: u64,
    /// Bytes of a record, as it crosses the bus.
    pub record: u64,
    /// Device bytes of a slot of the cache: weights, state, metadata and its place in a flush.
    pub slot: u64,
    /// Device bytes that a step allocates for each lookup of a batch.
    pub lookup: u64,
    /// Sets of the largest legal cache: it has no more rows than the tables, and its parts fit a binding.
    pub most_sets: u32,
}

/// Number of lookups and of slots from which the bytes of one are derived: large enough to make fixed allocations negligible.
const MANY: u32 = 1 << 16;

impl PlannedGroup {
    /// A group of this configuration, but with a cache for pinned rows, on a device whose bindings have at most `binding` bytes.
    ///
    /// # Errors
    /// [`Error::Config`] for an illegal configuration.
    pub fn new(config: GroupConfig, training: bool, binding: u64) -> Result<Self, Error> {
        let config = config.with_policy(Policy::Static).with_placement(Placement::Mapped).with_cache_rows(0);
        let stride = Layout::new(&config, binding)?.stride();
        let bare = Self { config, training, binding, record: stride, slot: 0, lookup: 0, most_sets: 0 };
        // A table so large that each lookup can have a row of its own.
        let rows = bare.rows().max(2 * MANY);
        let mut large = bare.clone();
        (large.config.tables, large.config.features) = (vec![rows], vec![0]);
        let fixed = large.device_bytes(0, 0)?;
        let share = |bytes: u64| (bytes - fixed).div_ceil(u64::from(MANY));
        let (slot, lookup) = (share(large.device_bytes(MANY, 0)?), share(large.device_bytes(0, MANY)?));
        Ok(Self { slot, lookup, most_sets: bare.largest(), ..bare })
    }

    /// Rows of all tables.
    #[must_use]
    pub fn rows(&self) -> u32 {
        self.config.tables.iter().sum()
    }

    /// The group's configuration with a cache of `cache_rows` rows.
    #[must_use]
    pub fn with_cache(&self, cache_rows: u32) -> GroupConfig {
        self.config.clone().with_cache_rows(cache_rows)
    }

    /// Device bytes of the group with a cache of `cache_rows` rows and batches of `lookups` lookups. Its records are in host memory.
    ///
    /// # Errors
    /// [`Error::Config`] for an illegal configuration.
    pub fn device_bytes(&self, cache_rows: u32, lookups: u32) -> Result<u64, Error> {
        let config = self.with_cache(cache_rows);
        let layout = Layout::new(&config, self.binding)?;
        let lookups = (lookups > 0).then_some(lookups);
        let mut calls = Calls::default().with_in_flight(1);
        if self.training {
            (calls.train, calls.flush) = (lookups, true);
        } else {
            calls.frozen = lookups;
        }
        Ok(MemoryReport::planned(&config, &layout, calls).device())
    }

    fn largest(&self) -> u32 {
        let takes = |sets: u32| {
            let slots = u64::from(sets) * u64::from(WAYS);
            Layout::new(&self.with_cache(slots.min(self.rows().into()) as u32), self.binding).is_ok()
        };
        let (mut few, mut many) = (0, self.rows().div_ceil(WAYS));
        while few < many {
            let middle = many - (many - few) / 2;
            if takes(middle) { few = middle } else { many = middle - 1 }
        }
        few
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_cache_is_one_that_the_crate_takes() {
        let most = |tables: &[u32]| {
            let group = PlannedGroup::new(GroupConfig::new(tables, 4), true, (1 << 31) - 256).unwrap();
            let slots = (u64::from(group.most_sets) * u64::from(WAYS)).min(group.rows().into()) as u32;
            assert!(group.device_bytes(slots, 1).is_ok(), "{tables:?}");
            group.most_sets
        };
        assert_eq!([most(&[1]), most(&[32]), most(&[33]), most(&[30, 2, 1])], [1, 1, 2, 2]);
        assert_eq!(most(&[4_294_967_294]), 1 << 26, "2^31 rows are the most");
    }
}
