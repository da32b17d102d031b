//! The number of pinned rows that find a way. Rows are hashed into sets, and some sets get more rows than they hold.

use crate::{error::Error, scars::refused, table::hash::fmix32};

/// Returns the rows that find no way when `rows` are pinned in this order: a row is left out if its set has `ways` pinned
/// rows already. The order is kept.
///
/// Exact, with the cache's own hash, `set = fmix32(row) mod sets`. A row listed twice counts twice. Without sets, all
/// rows are returned.
#[must_use]
pub fn left_out(rows: &[u32], sets: u32, ways: u32) -> Vec<u32> {
    let mut taken = vec![0u32; sets as usize];
    let mut out = Vec::new();
    for &row in rows {
        match fmix32(row).checked_rem(sets).map(|set| &mut taken[set as usize]) {
            Some(taken) if *taken < ways => *taken += 1,
            _ => out.push(row),
        }
    }
    out
}

/// The probability that a row finds a way after `before` others, that is, that fewer than `ways` of them are in its
/// set.
///
/// Hashes are taken as independent and uniform over the sets: `Binomial(before, 1/sets) < ways`. Hotter rows come
/// earlier and fit more surely.
#[must_use]
pub fn fits(before: u64, sets: u32, ways: u32) -> f64 {
    let mut sum = 0.0;
    binomial(before, sets, ways, |_, probability| sum += probability);
    sum.min(1.0)
}

/// The expected number of `rows` rows that find a way: `sets E[min(X, ways)]`, where X, the rows of a set, is
/// `Binomial(rows, 1/sets)`, or a Poisson variable where sets are many.
#[must_use]
pub fn expected_fit(rows: u64, sets: u32, ways: u32) -> f64 {
    let mut short = 0.0;
    binomial(rows, sets, ways, |taken, probability| short += f64::from(ways - taken) * probability);
    (f64::from(sets) * (f64::from(ways) - short)).clamp(0.0, rows as f64)
}

/// The fewest sets in which at least `share` of `rows` rows are expected to find a way, if at most `ways` of each set
/// are pinned.
///
/// # Errors
/// [`Error::Scars`] if `ways` is 0, if `share` is not above 0 and below 1 (no number of sets fits all rows for sure),
/// or if 2^32 - 1 sets are too few.
pub fn sets_for(rows: u64, ways: u32, share: f64) -> Result<u32, Error> {
    if ways == 0 {
        return Err(refused("ways to pin", "1 or more", &0, "let rows be pinned in some ways of a set"));
    }
    if !(share > 0.0 && share < 1.0) {
        return Err(refused("share of rows that fit", "above 0 and below 1", &share, "give a share such as 0.99"));
    }
    let enough = |sets| expected_fit(rows, sets, ways) >= share * rows as f64;
    if !enough(u32::MAX) {
        return Err(refused(
            "rows to pin",
            "rows that 2^32 - 1 sets hold",
            &rows,
            "pin fewer rows, or more ways of a set",
        ));
    }
    let (mut few, mut many) = (0, u32::MAX);
    while many - few > 1 {
        let middle = few + (many - few) / 2;
        if enough(middle) { many = middle } else { few = middle }
    }
    Ok(many)
}

/// Calls `each` with 0, 1, .. up to `ways - 1` and the probability that so many of `rows` rows are in one set. Computed
/// by logarithms, because the probability of 0 may underflow where later ones do not.
fn binomial(rows: u64, sets: u32, ways: u32, mut each: impl FnMut(u32, f64)) {
    if sets < 2 {
        // With one set, all rows are in it.
        if sets == 1 && rows < u64::from(ways) {
            each(rows as u32, 1.0);
        }
        return;
    }
    let mut log = rows as f64 * (-1.0 / f64::from(sets)).ln_1p();
    for taken in 0..ways {
        each(taken, log.exp());
        let left = rows.saturating_sub(u64::from(taken)) as f64;
        log += (left / (f64::from(taken) + 1.0) / (f64::from(sets) - 1.0)).ln();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected fit from the distribution of one set's load, updated row by row.
    fn slow(rows: usize, sets: u32, ways: u32) -> f64 {
        let mut load = vec![0.0; rows + 2];
        load[0] = 1.0;
        for _ in 0..rows {
            for taken in (0..=rows).rev() {
                let from_below = if taken > 0 { load[taken - 1] } else { 0.0 };
                load[taken] = load[taken] * (1.0 - 1.0 / f64::from(sets)) + from_below / f64::from(sets);
            }
        }
        f64::from(sets) * (0..=rows).map(|taken| load[taken] * taken.min(ways as usize) as f64).sum::<f64>()
    }

    #[test]
    fn expected_rows_are_those_of_a_set_filled_row_by_row() {
        for sets in [1, 2, 3, 10, 1000] {
            for ways in [0, 1, 2, 31, 32, 900] {
                for rows in [0u64, 1, 5, 40, 200] {
                    let (found, wanted) = (expected_fit(rows, sets, ways), slow(rows as usize, sets, ways));
                    assert!(
                        (found - wanted).abs() < 1e-8 * (1.0 + wanted),
                        "{rows} {sets} {ways}: {found}, wanted {wanted}"
                    );
                    let one_by_one: f64 = (0..rows).map(|before| fits(before, sets, ways)).sum();
                    assert!(
                        (found - one_by_one).abs() < 1e-8 * (1.0 + wanted),
                        "{rows} {sets} {ways}: one by one {one_by_one}"
                    );
                }
            }
        }
        assert_eq!((expected_fit(9, 0, 4), fits(0, 0, 4), fits(3, 1, 4), fits(4, 1, 4)), (0.0, 0.0, 1.0, 0.0));
        assert!((expected_fit(40, 3, 2) - slow(40, 3, 3)).abs() > 1.0, "a way more is seen");
        assert!((expected_fit(5, 10, 1) - slow(6, 10, 1)).abs() > 0.1, "a row more is seen");
        // Where sets get thousands of rows, the probability of an empty set underflows.
        assert!((expected_fit(2_000_000, 1000, 1024) - 1_024_000.0).abs() < 1e-3);
        assert!(
            (expected_fit(1_000_000, 1000, 1000) - 987_393.0).abs() < 3.0,
            "{}",
            expected_fit(1_000_000, 1000, 1000)
        );
    }

    #[test]
    fn hashed_rows_fit_as_expected() {
        for (sets, ways, rows) in [(1000u32, 32u32, 30_000u32), (1000, 16, 20_000), (333, 32, 9000), (4096, 4, 10_000)]
        {
            let rows: Vec<u32> = (0..rows).collect();
            let out = left_out(&rows, sets, ways);
            let fit = (rows.len() - out.len()) as f64;
            let expected = expected_fit(rows.len() as u64, sets, ways);
            // Six standard deviations, each at most ways/2 for a set; the sets are negatively correlated.
            let spread = 6.0 * f64::from(sets).sqrt() * f64::from(ways).sqrt() / 2.0;
            assert!((fit - expected).abs() < spread, "{sets} {ways}: {fit}, expected {expected} to {spread}");
            assert!(
                (fit - expected_fit(rows.len() as u64, sets, ways / 2)).abs() > spread,
                "half the ways would be noticed"
            );
            // Each row left out comes after `ways` rows of its set.
            let set = |row: &u32| fmix32(*row) % sets;
            for row in out.iter().take(20) {
                let before =
                    rows.iter().take_while(|other| *other != row).filter(|other| set(other) == set(row)).count();
                assert!(before >= ways as usize);
            }
        }
        assert_eq!(left_out(&[5, 5, 6], 1, 2), [6]);
        assert_eq!(left_out(&[5, 6], 0, 2), [5, 6]);
        assert_eq!(left_out(&[5, 6], 7, 0), [5, 6]);
    }

    #[test]
    fn sets_for_a_share_are_the_fewest() {
        for (rows, ways, share) in
            [(100_000, 32, 0.99), (100_000, 16, 0.999_9), (10, 32, 0.5), (1_000_000, 1, 0.9), (3_000_000_000, 32, 0.95)]
        {
            let sets = sets_for(rows, ways, share).unwrap();
            assert!(expected_fit(rows, sets, ways) >= share * rows as f64, "{rows}: {sets}");
            assert!(sets == 1 || expected_fit(rows, sets - 1, ways) < share * rows as f64, "{rows}: {sets}");
        }
        assert_eq!(sets_for(0, 32, 0.9).unwrap(), 1);
        for refused in [
            sets_for(10, 0, 0.5),
            sets_for(10, 32, 1.0),
            sets_for(10, 32, f64::NAN),
            sets_for(10, 32, 0.0),
            sets_for(u64::MAX, 32, 0.9),
        ] {
            assert!(matches!(refused, Err(Error::Scars { .. })));
        }
    }
}
