//! The set of each row (SPEC 3 and 11).

use crate::simulate::geometry::GeometryError;
use hotrow::internals::hash::Spread;

/// No cache has more rows, so no larger table is covered.
const MOST_COVERED: u32 = 1 << 31;

/// The sets of `rows` rows, divided among virtual shards.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    pub(crate) rows: u32,
    pub(crate) shards: u32,
    /// Sets of a shard.
    pub(crate) each: u32,
    ways: u32,
    /// Of the first shards, which have one row more, and of the others.
    spreads: [Spread; 2],
}

impl Places {
    pub(crate) fn new(rows: u32, sets: u32, ways: u32, shards: u32) -> Result<Self, GeometryError> {
        if rows == 0 || rows == u32::MAX {
            return Err(GeometryError::Rows(rows.into()));
        }
        if shards == 0 || !sets.is_multiple_of(shards) {
            return Err(GeometryError::Shards { sets, shards });
        }
        let (each, fewer) = (sets / shards, rows / shards);
        let spreads = [fewer + 1, fewer].map(|rows| Spread::new(rows, each, ways));
        Ok(Self { rows, shards, each, ways, spreads })
    }

    /// The set of a row.
    ///
    /// # Panics
    /// If there is no such row.
    pub(crate) fn set_of(&self, row: u32) -> u32 {
        assert!(row < self.rows, "row {row}: wanted one below {}, the rows of the simulated tables", self.rows);
        let shard = row % self.shards;
        let spread = &self.spreads[usize::from(shard >= self.rows % self.shards)];
        self.each * shard + spread.set_of(row / self.shards)
    }

    pub(crate) const fn shard_of(&self, set: u32) -> u32 {
        if self.shards == 1 { 0 } else { set / self.each }
    }

    /// Whether a shard has a slot for each of its rows.
    pub(crate) fn covers(&self, shard: u32) -> bool {
        let rows = self.rows / self.shards + u32::from(shard < self.rows % self.shards);
        rows <= MOST_COVERED && u64::from(rows) <= self.slots()
    }

    /// Slots of a shard.
    pub(crate) fn slots(&self) -> u64 {
        u64::from(self.each) * u64::from(self.ways)
    }
}
