//! Communication in the words of SCARS: words that cross, where an index is one word and a row is d.

use crate::scars::skew::Skew;

/// Words of a batch of b lookups that sends indices, and each row once (SCARS, eq. 3): `b + d sum 1 - (1 - P)^b`,
/// summed over the rows after the `pinned` hottest. The paper's eq. 3 has d = 1 and no pinned rows.
#[must_use]
pub fn batch(skew: &Skew, lookups: f64, dim: f64, pinned: u64) -> f64 {
    lookups + dim * skew.distinct(lookups, pinned)
}

/// Words of an epoch of Q lookups that sends each row as often as it is looked up (SCARS, eq. 4): `Q d`.
#[must_use]
pub fn epoch_uncoalesced(epoch: f64, dim: f64) -> f64 {
    epoch * dim
}

/// Words of an epoch of Q lookups in batches of b (SCARS, eq. 6; eq. 5 if nothing is pinned):
/// `Q + Q/b d sum 1 - (1 - P)^b`, summed over the rows after the `pinned` hottest. As in the paper, `Q/b` may be any
/// real number.
#[must_use]
pub fn epoch(skew: &Skew, epoch: f64, lookups: f64, dim: f64, pinned: u64) -> f64 {
    epoch / lookups * batch(skew, lookups, dim, pinned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        // P = 1/2, 1/4, 1/4 and two lookups: distinct = 3/4 + 2 * 7/16 = 13/8.
        let skew = Skew::from_counts([2, 1, 1]).unwrap();
        let near = |found: f64, wanted: f64| assert!((found - wanted).abs() < 1e-12, "{found}, wanted {wanted}");
        near(batch(&skew, 2.0, 1.0, 0), 2.0 + 13.0 / 8.0);
        near(batch(&skew, 2.0, 8.0, 1), 2.0 + 8.0 * 7.0 / 8.0);
        near(epoch(&skew, 100.0, 2.0, 8.0, 0), 100.0 + 50.0 * 13.0);
        near(epoch(&skew, 100.0, 2.0, 8.0, 1), 100.0 + 50.0 * 7.0);
        near(epoch(&skew, 100.0, 2.0, 8.0, 3), 100.0);
        near(epoch_uncoalesced(100.0, 8.0), 800.0);
        // Batches of one lookup coalesce nothing: eq. 4, plus the indices.
        near(epoch(&skew, 100.0, 1.0, 8.0, 0), 100.0 + epoch_uncoalesced(100.0, 8.0));
        assert!(
            (epoch(&skew, 100.0, 2.0, 8.0, 0) - (100.0 + epoch_uncoalesced(100.0, 8.0))).abs() > 1.0,
            "coalescing is seen"
        );
    }
}
