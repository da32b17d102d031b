//! The sets of the rows of a group: all rows share them, or each table has its own (SPEC 3).

use crate::table::{
    abi::{NONE, Share},
    hash::Spread,
};

impl Share {
    /// Whether each row of the table has a slot.
    pub(crate) const fn covers(&self) -> bool {
        self.sets > 0 && self.fold == u32::BITS - 1
    }

    /// The sets of the table's rows, as if they were the only ones.
    pub(crate) const fn spread(&self, ways: u32) -> Spread {
        let Self { sets, fold, multiplier, spare, .. } = *self;
        Spread { sets, direct: if self.covers() { ways } else { 0 }, fold, multiplier, spare, gap: NONE }
    }

    /// The share of each table (SPEC 3): `sets[i]` sets for the i-th.
    pub(crate) fn list(tables: &[u32], sets: impl Fn(usize, u32) -> u32, ways: u32) -> Vec<Self> {
        let mut next = Self::default();
        let share = |(table, &rows)| {
            let Spread { sets, fold, multiplier, spare, .. } = Spread::new(rows, sets(table, rows), ways);
            let one = Self { sets, fold, multiplier, spare, ..next };
            next.first_row += rows;
            next.first_set += sets;
            // The last one may end at 2^32.
            next.first_key = next.first_key.wrapping_add(1 << (u32::BITS - spare));
            one
        };
        tables.iter().enumerate().map(share).collect()
    }
}

/// The sets of the rows of a group.
///
/// Example: [`Spread`].
#[derive(Clone, Copy, Debug)]
pub struct Sets<'s> {
    pub(crate) ways: u32,
    /// Of all rows, without shares.
    pub(crate) whole: Spread,
    /// Of each table.
    pub(crate) shares: &'s [Share],
}

impl Sets<'_> {
    /// The set of a row of a group with a cache; NONE for a row of a table without a share.
    #[inline(always)]
    #[must_use]
    pub fn set_of(&self, row: u32) -> u32 {
        if self.shares.is_empty() { self.whole.set_of(row) } else { self.set_in_share(row) }
    }

    fn set_in_share(&self, row: u32) -> u32 {
        let one = &self.shares[self.shares.partition_point(|share| share.first_row <= row) - 1];
        if one.sets == 0 {
            return NONE;
        }
        one.first_set + one.spread(self.ways).set_of(row - one.first_row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_table_has_its_own_sets_and_keys() {
        // 100 rows in 2 sets of 8, none of 30 rows, and 20 rows in sets enough for all.
        let wanted = [2, 0, 3];
        let shares = Share::list(&[100, 30, 20], |table, _| wanted[table], 8);
        let sets = Sets { ways: 8, whole: Spread::new(150, 5, 8), shares: &shares };
        let found: Vec<u32> = (0..150).map(|row| sets.set_of(row)).collect();
        let plain = Spread::new(100, 2, 8);
        assert!((0..100).all(|row| found[row as usize] == plain.set_of(row)));
        assert!(found[100..130].iter().all(|&set| set == NONE));
        assert!((130..150).all(|row| found[row] == 2 + (row as u32 - 130) / 8));
        assert_eq!(shares.iter().map(|share| share.first_key).collect::<Vec<_>>(), [0, 128, 128 + 32]);
        assert_eq!(shares.iter().map(Share::covers).collect::<Vec<_>>(), [false, false, true]);
    }
}
