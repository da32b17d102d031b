//! Which rows to keep in which precision, so that a number of bytes goes where rows are used most.

use hotrow::{GroupConfig, Precision, internals::Layout};

use crate::error::{Error, refused};

/// A precision of rows of one dim and update rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kind {
    /// The precision.
    pub precision: Precision,
    /// The bytes of a row's record.
    pub bytes: u64,
    /// The mean squared error of a rounding, for weights between 0 and 1.
    pub error: f64,
}

impl Kind {
    /// A precision of rows as this configuration has them.
    ///
    /// # Errors
    /// [`Error::Hotrow`] for an illegal configuration.
    pub fn new(config: &GroupConfig, precision: Precision) -> Result<Self, Error> {
        let config = config.clone().with_precision(precision);
        config.check()?;
        let step = match precision {
            Precision::Fp32 => 2f64.powi(-24),
            Precision::Fp16 => 2f64.powi(-11),
            _ => 1.0 / f64::from((1u32 << precision.bits()) - 1),
        };
        Ok(Self { precision, bytes: Layout::new(&config, u64::MAX)?.stride(), error: step * step / 12.0 })
    }
}

/// Gives each row, by its `uses`, one of the kinds, which are ordered by their bytes, most first. Returns the number of each row's kind.
///
/// ```
/// use hotrow::{GroupConfig, Precision};
/// use hotrow_plan::precision::{Kind, by_use};
///
/// let config = GroupConfig::new(&[1], 64);
/// let kinds = [Precision::Fp16, Precision::Int4].map(|precision| Kind::new(&config, precision).unwrap());
/// // 128 bytes for a row of FP16, 40 for one of INT4.
/// assert_eq!(by_use(&[3, 90, 5, 4], &kinds, 128 + 3 * 40)?, [1, 0, 1, 1]);
/// # Ok::<(), hotrow_plan::Error>(())
/// ```
///
/// # Errors
/// [`Error::Argument`] for kinds in another order, or if the rows do not even fit in the last kind.
pub fn by_use(uses: &[u64], kinds: &[Kind], most: u64) -> Result<Vec<u32>, Error> {
    if let Some([one, other]) = kinds.windows(2).find(|two| two[0].bytes <= two[1].bytes) {
        let found = format!("{} of {} B before {} of {} B", one.precision, one.bytes, other.precision, other.bytes);
        return Err(refused("precisions", "rows of different sizes, the largest first", &found, "leave one out"));
    }
    let least = (uses.len() as u64).saturating_mul(kinds.last().map_or(u64::MAX, |kind| kind.bytes));
    if least > most {
        let wanted = format!("at least {least}, those of {} rows in the smallest precision", uses.len());
        return Err(refused("bytes", wanted, &most, "add a smaller precision, or more bytes"));
    }
    let mut order: Vec<usize> = (0..uses.len()).collect();
    order.sort_by_key(|&row| std::cmp::Reverse(uses[row]));
    let sorted: Vec<u64> = order.iter().map(|&row| uses[row]).collect();
    let (mut found, mut rows) = (vec![0; uses.len()], order.into_iter());
    for (kind, count) in (0..).zip(cut(&sorted, kinds, most)) {
        rows.by_ref().take(count).for_each(|row| found[row] = kind);
    }
    Ok(found)
}

/// How many of the rows, most used first, each of the kinds takes: so that the sum of uses times error is least within `most` bytes.
///
/// The sum is least where each row takes the kind with the least `uses * error + price * bytes`, for one price of a byte. A row with more uses then never has a
/// kind of fewer bytes, and the lowest price that fits is found by halves.
fn cut(uses: &[u64], kinds: &[Kind], most: u64) -> Vec<usize> {
    let best = |uses: u64, price: f64| {
        let cost = |kind: &Kind| uses as f64 * kind.error + price * kind.bytes as f64;
        let all = kinds.iter().enumerate().min_by(|(_, a), (_, b)| cost(a).total_cmp(&cost(b)));
        all.map_or(0, |(at, _)| at)
    };
    let counts = |price: f64| -> Vec<usize> {
        let end = |kind: usize| uses.partition_point(|&uses| best(uses, price) <= kind);
        (0..kinds.len()).map(|kind| end(kind) - kind.checked_sub(1).map_or(0, end)).collect()
    };
    let bytes = |counts: &[usize]| counts.iter().zip(kinds).map(|(&rows, kind)| rows as u64 * kind.bytes).sum::<u64>();
    // At a price above any use each row takes the last kind.
    let (mut low, mut high) = (0.0, 1.0 + uses.first().map_or(0.0, |&uses| uses as f64));
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        if bytes(&counts(middle)) <= most { high = middle } else { low = middle }
    }
    // Rows of equal use change at one price: row by row the bytes that are left go where they help most.
    let mut counts = counts(high);
    loop {
        let left = most - bytes(&counts);
        let more = |at: usize| kinds[at - 1].bytes - kinds[at].bytes;
        let gain = |at: usize| {
            let first = counts[..at].iter().sum::<usize>();
            uses[first] as f64 * (kinds[at].error - kinds[at - 1].error) / more(at) as f64
        };
        let fits = (1..kinds.len()).filter(|&at| counts[at] > 0 && more(at) <= left);
        let Some(at) = fits.max_by(|&a, &b| gain(a).total_cmp(&gain(b))) else { return counts };
        counts[at] -= 1;
        counts[at - 1] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds() -> Vec<Kind> {
        let kind = |precision, bytes, error| Kind { precision, bytes, error };
        vec![kind(Precision::Fp16, 8, 0.0), kind(Precision::Int8, 4, 0.01), kind(Precision::Int4, 2, 1.0)]
    }

    /// Every way to give six rows one of three kinds: none has a smaller sum of uses times error within the bytes less those of one row.
    #[test]
    fn bytes_go_where_rows_are_used_most() {
        let uses = [90, 20, 20, 7, 1, 0];
        let error =
            |of: &[usize]| of.iter().zip(uses).map(|(&kind, uses)| uses as f64 * kinds()[kind].error).sum::<f64>();
        let bytes = |of: &[usize]| of.iter().map(|&kind| kinds()[kind].bytes).sum::<u64>();
        let all: Vec<Vec<usize>> =
            (0..729).map(|k: usize| (0..6).map(|row| k / 3usize.pow(row) % 3).collect()).collect();
        for most in 12..=50 {
            let counts = cut(&uses, &kinds(), most);
            let found: Vec<usize> = counts.iter().enumerate().flat_map(|(kind, &rows)| vec![kind; rows]).collect();
            assert!(found.len() == 6 && bytes(&found) <= most, "{most}: {counts:?}");
            let within =
                |most: u64| all.iter().filter(|of| bytes(of) <= most).map(|of| error(of)).fold(f64::MAX, f64::min);
            assert!(error(&found) <= within(most - (most - 12).min(6)) + 1e-12, "{most}: {counts:?}");
        }
        assert_eq!(cut(&uses, &kinds(), 48), [6, 0, 0]);
        assert_eq!(cut(&uses, &kinds(), 12), [0, 0, 6]);
        assert_eq!(cut(&uses, &kinds(), 14), [0, 1, 5], "the row with most uses first");
        assert_eq!(by_use(&[1, 9, 0, 9], &kinds(), 12).unwrap(), [2, 1, 2, 1]);
        assert_eq!(by_use(&[1, 9, 0, 9], &kinds(), 10).unwrap(), [2, 1, 2, 2], "of equal rows the first");
        let refused = [by_use(&uses, &kinds(), 11), by_use(&uses, &[kinds()[1], kinds()[0]], 99)];
        let refused = refused.map(|found| found.unwrap_err().to_string());
        assert!(refused[0].contains("wanted at least 12, those of 6 rows"), "{refused:?}");
        assert!(by_use(&uses, &[], u64::MAX - 1).is_err() && by_use(&[], &[], 0).unwrap().is_empty(), "no kinds");
        assert!(refused[1].contains("int8 of 4 B before fp16 of 8 B"), "{refused:?}");
    }
}
