//! The memory of the rank that has most rows, by the crate's memory plan.

use super::super::amount::BINDING;
use super::cache::Cache;
use super::wire::Wire;
use hotrow::{Calls, Error, GroupConfig, Layout, MemoryReport, Optimizer, OptimizerKind, WAYS};

/// Bytes of a rank that stay between steps.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Kept {
    /// Rows of the rank.
    pub(super) rows: u64,
    pub(super) records: u64,
    /// FP32 rows of the cache and their state.
    pub(super) cache: u64,
    /// All, with tags, stamps, frequencies and tables.
    pub(super) all: u64,
}

/// Plans rank 0, whose shards have as many rows as any. Each shard is a group of its own.
pub(super) fn of_rank(wire: &Wire, cache: &Cache, optimizer: OptimizerKind, rows: u32) -> Result<Kept, Error> {
    let mut kept = Kept::default();
    let mut known: Option<(u32, Kept)> = None;
    for shard in 0..wire.shards / wire.ranks {
        // Rows shard, shard + V, shard + 2 V ...
        let local = rows.saturating_sub(shard).div_ceil(wire.shards);
        if local == 0 {
            continue;
        }
        let one = match known {
            Some((same, one)) if same == local => one,
            _ => of_shard(wire, cache, optimizer, local)?,
        };
        known = Some((local, one));
        kept.rows += one.rows;
        kept.records += one.records;
        kept.cache += one.cache;
        kept.all += one.all;
    }
    Ok(kept)
}

fn of_shard(wire: &Wire, cache: &Cache, optimizer: OptimizerKind, rows: u32) -> Result<Kept, Error> {
    let slots = cache.sets_of_shard() * WAYS;
    let mut config = GroupConfig::new(&[rows], wire.dim)
        .with_precision(wire.precision)
        .with_policy(cache.policy)
        .with_optimizer(Optimizer::sgd(0.01).with_kind(optimizer));
    // A group refuses a cache of more rows than it has; the slots that are missing are added below.
    config.cache_rows = slots.min(rows);
    let layout = Layout::new(&config, BINDING)?;
    let report = MemoryReport::plan(&config, &layout, Calls::default());
    let more = u64::from(slots - layout.slots());
    let floats = more * layout.row.slot_bytes();
    Ok(Kept {
        rows: rows.into(),
        records: u64::from(rows) * layout.stride(),
        cache: report.cache_weights + report.cache_state + floats,
        // Tag, stamp, frequency and flags.
        all: report.kept() + floats + 16 * more,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotrow::dist::WireOptions;
    use hotrow::{Policy, Pooling, Precision};

    #[test]
    fn shards_add_up_to_the_rows_of_the_rank() {
        let wire = Wire {
            dim: 16,
            precision: Precision::Int8,
            form: WireOptions::default(),
            pooling: Pooling::Sum,
            weighted: false,
            features: 1,
            ranks: 2,
            shards: 8,
        };
        let kept = |rows, cache_rows| {
            let cache = Cache { policy: Policy::Lru, rows: cache_rows, shards: 8 };
            of_rank(&wire, &cache, OptimizerKind::Sgd, rows).unwrap()
        };
        // Of 1,003 rows, shards 0 to 2 have 126, shard 3 has 125. A record has 8 + 16 bytes; 64 slots a shard of 64 bytes.
        let found = kept(1003, 300);
        assert_eq!((found.rows, found.records, found.cache), (503, 503 * 24, 4 * 64 * 64));
        assert!(found.all > found.records + found.cache);
        // Three rows: shards 0 to 2 have one row each, and 32 slots.
        assert_eq!((kept(3, 1).rows, kept(3, 1).cache), (3, 3 * 32 * 64));
        assert_eq!(kept(3, 0).cache, 0);
    }
}
