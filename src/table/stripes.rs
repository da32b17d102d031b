//! The virtual shards of a group (SPEC 11).

use crate::{
    config::{GroupConfig, OutOfRange, Pooling},
    error::Error,
    stripe::Stripe,
};

/// The configurations of the virtual shards of a group: `shards` of them, a power of two. Shard s has the linear rows g with `g mod shards = s`, its
/// row l is row `shards l + s`, and it has its part of the cache. A shard without a row is `None`. `config` may itself describe a shard, with the tables
/// and the cache of the whole group put in.
///
/// ```
/// use hotrow::{GroupConfig, ranks::shards};
///
/// let config = GroupConfig::new(&[10, 3], 4).with_cache_rows(13);
/// let shards = shards(&config, 4)?;
/// let of = |shard: usize| shards[shard].as_ref().unwrap();
/// assert_eq!(of(0).tables, [3, 1]); // rows 0, 4, 8 and 12
/// assert_eq!(of(3).tables, [2, 1]); // rows 3, 7 and 11
/// assert_eq!(of(0).cache_rows, 32); // four sets in all, one a shard
/// # Ok::<(), hotrow::Error>(())
/// ```
///
/// # Errors
/// [`Error::Config`] as [`GroupConfig::check`], and for a number of shards that is no power of two.
pub fn shards(config: &GroupConfig, shards: u32) -> Result<Vec<Option<GroupConfig>>, Error> {
    let config = &GroupConfig { stripe: Stripe::ALL, ..config.clone() };
    config.check()?;
    config.precision.check_trains("over ranks")?;
    if !shards.is_power_of_two() || shards > 1 << 16 {
        let wanted = "a power of two, at most 65536".into();
        return Err(Error::Config { field: "shards", wanted, found: shards.to_string() });
    }
    let ways = config.ways;
    let cache_rows = u64::from(ways) * u64::from(config.cache_rows).div_ceil(u64::from(ways) * u64::from(shards));
    let shift = shards.trailing_zeros();
    Ok((0..shards).map(|first| shard(config, Stripe { shift, first }, cache_rows as u32)).collect())
}

fn shard(config: &GroupConfig, stripe: Stripe, cache_rows: u32) -> Option<GroupConfig> {
    let mut end = 0;
    let mut below = stripe.below(0);
    let rows = |&rows: &u32| {
        end += u64::from(rows);
        let before = std::mem::replace(&mut below, stripe.below(end));
        below - before
    };
    let tables: Vec<u32> = config.tables.iter().map(rows).collect();
    (tables.iter().any(|&rows| rows > 0)).then(|| GroupConfig {
        tables,
        // Indices are checked, and bags are pooled, before rows are asked for.
        features: Vec::new(),
        pooling: Pooling::Sum,
        out_of_range: OutOfRange::Error,
        padding: Vec::new(),
        // One shard has the configuration of the group, which it is.
        cache_rows: if stripe == Stripe::ALL { config.cache_rows } else { cache_rows },
        stripe,
        ..config.clone()
    })
}
