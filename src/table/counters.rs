//! Counters of steps (SPEC 6).

use bytemuck::{Pod, Zeroable};

use crate::table::abi::{CLOCK_WORDS, TABLE_WORDS};

/// Words of a table's counters: 12 of two words.
pub(crate) const COUNTER_WORDS: usize = 24;
/// Counters of one table, or of a whole group (SPEC 6). Training steps count; frozen steps do not.
///
/// Example: [`CpuGroup`](crate::CpuGroup).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Pod, Zeroable)]
#[repr(C)]
pub struct Counters {
    /// Indices looked up, repeated ones included.
    pub accesses: u64,
    /// Accesses to rows that were resident before the step.
    pub hits: u64,
    /// Distinct rows of each batch, summed over batches.
    pub unique: u64,
    /// Distinct rows that were not resident.
    pub unique_misses: u64,
    /// Missed rows that got a slot.
    pub admitted: u64,
    /// Missed rows that found no way.
    pub conflicts: u64,
    /// Rows that lost their slot to another row.
    pub evictions: u64,
    /// Dirty rows written from a slot to the table, by eviction or flush.
    pub write_backs: u64,
    /// Records read for rows used without a slot.
    pub bypass_reads: u64,
    /// Records written for rows updated without a slot.
    pub bypass_writes: u64,
    /// Bytes read from the table's memory: records x stride.
    pub bytes_read: u64,
    /// Bytes written to the table's memory: records x stride.
    pub bytes_written: u64,
    /// Rows that stayed as they were because a value was not finite.
    pub skipped_rows: u64,
    /// Indices outside their table.
    pub out_of_range: u64,
    /// Indices that are the padding id of their table.
    pub padding: u64,
}

impl Counters {
    /// Share of the accesses that were hits, 0 to 1; 0 without accesses.
    #[must_use]
    pub fn hit_rate(&self) -> f64 {
        if self.accesses == 0 { 0.0 } else { self.hits as f64 / self.accesses as f64 }
    }

    /// Bytes that crossed to and from the table's memory.
    #[must_use]
    pub const fn bus_bytes(&self) -> u64 {
        self.bytes_read.saturating_add(self.bytes_written)
    }

    /// Reads the counters of every table from the `tables` buffer; `stride` is the bytes of a record.
    pub(crate) fn from_words(words: &[u32], stride: u64) -> Vec<Self> {
        words[CLOCK_WORDS..].chunks_exact(TABLE_WORDS).map(|table| Self::from_table(&table[2..], stride)).collect()
    }

    /// Reads the counters of every table from the words of [`Part::Counters`](crate::state::Part::Counters); `stride` is the bytes of a record.
    #[doc(hidden)]
    #[must_use]
    pub fn from_part(words: &[u32], stride: u64) -> Vec<Self> {
        words.chunks_exact(COUNTER_WORDS).map(|table| Self::from_table(table, stride)).collect()
    }

    /// Checks words of [`Part::Counters`](crate::state::Part::Counters) for counts that no group has: more rows admitted than missed, or a count that 2^32
    /// steps do not reach.
    #[cfg(feature = "checkpoint")]
    pub(crate) fn check_part(words: &[u32]) -> Result<(), String> {
        for table in words.chunks_exact(COUNTER_WORDS) {
            let count = |at: usize| u64::from(table[2 * at]) | u64::from(table[2 * at + 1]) << 32;
            let most = (0..COUNTER_WORDS / 2).map(count).max().unwrap_or(0);
            if most > 1 << 62 {
                return Err(format!("a count of {most}"));
            }
            if count(4) > count(3) {
                return Err(format!("{} rows admitted of {} that missed", count(4), count(3)));
            }
        }
        Ok(())
    }

    /// The words of [`Part::Counters`](crate::state::Part::Counters).
    #[doc(hidden)]
    #[must_use]
    pub fn to_part(counters: &[Self]) -> Vec<u32> {
        let mut words = Vec::with_capacity(counters.len() * COUNTER_WORDS);
        for c in counters {
            let values = [
                c.accesses,
                c.hits,
                c.unique,
                c.unique_misses,
                c.admitted,
                c.evictions,
                c.write_backs,
                c.bypass_reads,
                c.bypass_writes,
                c.skipped_rows,
                c.out_of_range,
                c.padding,
            ];
            words.extend(values.into_iter().flat_map(|value| [value as u32, (value >> 32) as u32]));
        }
        words
    }

    fn from_table(words: &[u32], stride: u64) -> Self {
        let get = |counter: usize| u64::from(words[2 * counter]) | u64::from(words[2 * counter + 1]) << 32;
        let (unique_misses, admitted, bypass_reads) = (get(3), get(4), get(7));
        let (write_backs, bypass_writes) = (get(6), get(8));
        Self {
            accesses: get(0),
            hits: get(1),
            unique: get(2),
            unique_misses,
            admitted,
            conflicts: unique_misses.saturating_sub(admitted),
            evictions: get(5),
            write_backs,
            bypass_reads,
            bypass_writes,
            bytes_read: admitted.saturating_add(bypass_reads).saturating_mul(stride),
            bytes_written: write_backs.saturating_add(bypass_writes).saturating_mul(stride),
            skipped_rows: get(9),
            out_of_range: get(10),
            padding: get(11),
        }
    }
}

impl Counters {
    /// Each count of two tables, by `of`.
    fn each(a: Self, b: Self, of: impl Fn(u64, u64) -> u64) -> Self {
        let (a, b): ([u64; 15], [u64; 15]) = (bytemuck::cast(a), bytemuck::cast(b));
        bytemuck::cast(std::array::from_fn::<_, 15, _>(|count| of(a[count], b[count])))
    }
}

impl std::ops::Sub for Counters {
    type Output = Self;

    /// The counts since `earlier`.
    fn sub(self, earlier: Self) -> Self {
        Self::each(self, earlier, |now, before| now - before)
    }
}

impl std::iter::Sum for Counters {
    fn sum<I: Iterator<Item = Self>>(counters: I) -> Self {
        counters.fold(Self::default(), |a, b| Self::each(a, b, u64::saturating_add))
    }
}
