//! `zipf:rows=..,s=..[,n=..]`: independent ids; id i has probability ~ (i + 1)^-s. `drift:rows=..,s=..,every=..[,n=..]`: as zipf, but
//! after every so many accesses all ids move on by the golden part of the rows, so that other ids are popular. `uniform:rows=..[,n=..]`: every id is equally
//! likely, so a cache cannot help.
//!
//! `meta2021[:rows=..,n=..]`: rows are reused as often as in Meta's published 2021 embedding accesses.
//!
//! The file `locality_stats.txt` of the `dlrm_datasets` repository (MIT) describes 887,017,990 accesses to 128,435,723 rows. It has the
//! share of accesses that go to rows used once, twice, 3-4 times, 5-8 times and so on. The generator gives each row a use count from that
//! histogram and shuffles all uses. So the counts are Meta's and the order is random; there is no locality in time beyond skew. With fewer
//! rows than Meta's the heaviest bins have no row of their own; the accesses of such a bin go to a single row. If `n` exceeds the sum of
//! the uses, further rounds over the same rows follow, each shuffled again; if it is smaller, the round is cut off.

use super::error::TraceError;
use crate::spec::{Kind, Spec, read};
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Zipf};
use rand_pcg::Pcg64;
use std::sync::LazyLock;

/// The kinds, with their keys and an example.
pub(super) const KINDS: [Kind; 4] = [
    ("zipf", &["rows", "s", "n"], "zipf:rows=100000,s=1.05,n=1000000"),
    ("drift", &["rows", "s", "every", "n"], "drift:rows=100000,s=1.05,every=50000,n=1000000"),
    ("uniform", &["rows", "n"], "uniform:rows=100000,n=1000000"),
    ("meta2021", &["rows", "n"], "meta2021:rows=100000"),
];

/// The default number of accesses of a generated trace.
const DEFAULT_ACCESSES: u64 = 1_000_000;

/// An empty vector with capacity for `n` ids; an error instead of an abort if memory is short.
fn room(n: u64) -> Result<Vec<u32>, TraceError> {
    let mut ids = Vec::new();
    match usize::try_from(n).map(|n| ids.try_reserve_exact(n)) {
        Ok(Ok(())) => Ok(ids),
        _ => {
            Err(TraceError::Content(format!("wanted memory for {n} accesses, found too little; ask for fewer with n=")))
        }
    }
}

fn rows(text: &str) -> Result<u64, String> {
    whole(text, u32::MAX - 1)
}

/// As many accesses as offsets can count.
fn accesses(text: &str) -> Result<u64, String> {
    whole(text, u32::MAX)
}

/// A whole number from 1 to `most`, in digits or as 1e9.
fn whole(text: &str, most: u32) -> Result<u64, String> {
    let legal = |number: &f64| number.fract() == 0.0 && (1.0..=most.into()).contains(number);
    Ok(read(text, format_args!("a whole number from 1 to {most}"), legal)? as u64)
}

fn exponent(text: &str) -> Result<f64, String> {
    read(text, "a finite number of 0 or more", |s: &f64| s.is_finite() && *s >= 0.0)
}

pub(super) fn zipf(spec: &Spec<'_>, seed: u64) -> Result<Vec<u32>, TraceError> {
    let rows = spec.required("rows", rows)?;
    let s = spec.required("s", exponent)?;
    let n = spec.number("n", accesses)?.unwrap_or(DEFAULT_ACCESSES);
    let ranks = Zipf::new(rows as f64, s)
        .map_err(|error| format!("wanted a Zipf distribution, found none: {error}; take another s"))?;
    let mut ids = room(n)?;
    let last = (rows - 1) as u32;
    // Ranks run from 1 to `rows`; the minimum guards against rounding.
    ids.extend(ranks.sample_iter(Pcg64::seed_from_u64(seed)).take(n as usize).map(|rank| (rank as u32 - 1).min(last)));
    Ok(ids)
}

pub(super) fn drift(spec: &Spec<'_>, seed: u64) -> Result<Vec<u32>, TraceError> {
    let every = spec.required("every", accesses)? as usize;
    let rows = spec.required("rows", rows)?;
    let mut ids = zipf(spec, seed)?;
    // Any few stretches that follow one another have their popular ids far apart.
    let step = (rows as f64 * 0.618_033_988_749_895) as u64;
    for (stretch, ids) in (0..).zip(ids.chunks_mut(every)) {
        ids.iter_mut().for_each(|id| *id = ((u64::from(*id) + stretch * step) % rows) as u32);
    }
    Ok(ids)
}

pub(super) fn uniform(spec: &Spec<'_>, seed: u64) -> Result<Vec<u32>, TraceError> {
    let rows = spec.required("rows", rows)? as u32;
    let n = spec.number("n", accesses)?.unwrap_or(DEFAULT_ACCESSES);
    let mut random = Pcg64::seed_from_u64(seed);
    let mut ids = room(n)?;
    ids.extend((0..n).map(|_| random.random_range(0..rows)));
    Ok(ids)
}

const DEFAULT_ROWS: u64 = 100_000;

/// Rows with similar use counts: a line of `data/meta2021.csv`. Meta prints shares with three digits; they sum to 1.001. The last bin is
/// open in Meta's table; here it is as wide as the others.
#[derive(Clone, Copy, Debug, serde::Deserialize)]
struct Bin {
    fewest_uses: u32,
    most_uses: u32,
    access_share: f64,
}

static BINS: LazyLock<Vec<Bin>> = LazyLock::new(|| {
    let data = include_str!("../../data/meta2021.csv");
    csv::Reader::from_reader(data.as_bytes()).deserialize().flatten().collect()
});

impl Bin {
    /// The i-th of k use counts in the bin, evenly spaced in the logarithm. This reproduces the published shares of rows (0.139 for 3-4,
    /// 0.112 for 5-8, ..) from the shares of accesses.
    fn spaced(self, i: u64, k: u64) -> u32 {
        let (from, to) = (f64::from(self.fewest_uses) - 0.5, f64::from(self.most_uses) + 0.5);
        let at = (i as f64 + 0.5) / k as f64;
        ((from * (to / from).powf(at)).round() as u32).clamp(self.fewest_uses, self.most_uses)
    }

    /// Mean uses of the bin's rows.
    fn mean_uses(self) -> f64 {
        const POINTS: u64 = 64;
        (0..POINTS).map(|i| f64::from(self.spaced(i, POINTS))).sum::<f64>() / POINTS as f64
    }
}

/// The sum of the shares of all bins.
fn all_shares() -> f64 {
    BINS.iter().map(|bin| bin.access_share).sum()
}

/// Mean accesses of a row, 6.9 in the original.
fn mean_reuse() -> f64 {
    all_shares() / BINS.iter().map(|bin| bin.access_share / bin.mean_uses()).sum::<f64>()
}

/// The use counts of `rows` rows, the most used first.
fn use_counts(rows: usize) -> Vec<u32> {
    let accesses = rows as f64 * mean_reuse() / all_shares();
    let mut counts = Vec::new();
    for bin in BINS.iter().skip(1).rev() {
        let share = bin.access_share * accesses;
        let k = (share / bin.mean_uses()).round() as u64;
        if k > 0 {
            counts.extend((0..k).rev().map(|i| bin.spaced(i, k)));
        } else if share >= 1.0 {
            counts.push(share as u32);
        }
    }
    counts.sort_unstable_by(|a, b| b.cmp(a));
    // The remaining rows are used once.
    counts.resize(rows, 1);
    counts
}

pub(super) fn meta2021(spec: &Spec<'_>, seed: u64) -> Result<Vec<u32>, TraceError> {
    let wanted = spec.number("n", accesses)?;
    let rows = match (spec.number("rows", rows)?, wanted) {
        (Some(rows), _) => rows,
        (None, Some(n)) => ((n as f64 / mean_reuse()).round() as u64).max(1),
        (None, None) => DEFAULT_ROWS,
    };
    if rows as f64 * mean_reuse() > f64::from(u32::MAX) {
        let wanted = "wanted rows whose uses number at most 4294967295 (6.9 a row)";
        return Err(format!("{wanted}, found {rows} rows; give fewer").into());
    }
    let mut random = Pcg64::seed_from_u64(seed);
    let mut counts = use_counts(rows as usize);
    // Shuffled, so that ids are independent of use counts.
    counts.shuffle(&mut random);
    let deal: u64 = counts.iter().map(|&count| u64::from(count)).sum();
    let n = wanted.unwrap_or(deal);
    let mut ids = room(n.max(deal))?;
    let mut round = room(deal)?;
    for (id, &count) in counts.iter().enumerate() {
        round.extend(std::iter::repeat_n(id as u32, count as usize));
    }
    while (ids.len() as u64) < n {
        round.shuffle(&mut random);
        let missing = usize::try_from(n).unwrap_or(usize::MAX) - ids.len();
        ids.extend_from_slice(&round[..missing.min(round.len())]);
    }
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The shares of rows in each bin were published too, in another column of the same file.
    #[test]
    fn rows_by_reuse_are_as_published() {
        let counts = use_counts(1_000_000);
        let accesses: f64 = counts.iter().map(|&count| f64::from(count)).sum();
        let published = [0.473, 0.152, 0.139, 0.112, 0.072, 0.032, 0.011, 0.005];
        let of_bin = |bin: &Bin| {
            let uses = bin.fewest_uses..=bin.most_uses;
            counts.iter().copied().filter(move |count| uses.contains(count))
        };
        assert_eq!(BINS.len(), 17);
        for (bin, share) in BINS.iter().zip(published) {
            let rows = of_bin(bin).count();
            assert!((rows as f64 / 1e6 - share).abs() < 0.007, "{bin:?}: {rows} rows, published {share}");
        }
        for bin in BINS.iter() {
            let here = of_bin(bin).map(f64::from).sum::<f64>() / accesses;
            assert!((here - bin.access_share).abs() < 0.004, "{bin:?}: {here}");
        }
        assert!((accesses / 1e6 - 6.9).abs() < 0.2, "mean reuse {}", accesses / 1e6);
    }

    #[test]
    fn numbers_are_as_asked() {
        let make = |text: &str| meta2021(&Spec::parse(text, &KINDS, "").unwrap(), 1).unwrap();
        assert_eq!(make("meta2021:rows=1000,n=50").len(), 50);
        for rows in [1, 2, 10, 100] {
            let counts = use_counts(rows);
            assert!(counts.len() == rows && counts.iter().all(|&count| count > 0));
            let long = make(&format!("meta2021:rows={rows},n=5000"));
            assert!(long.len() == 5000 && long.iter().all(|&id| (id as usize) < rows));
        }
        let whole = make("meta2021:rows=5000");
        let mut seen = vec![false; 5000];
        whole.iter().for_each(|&id| seen[id as usize] = true);
        assert!(seen.into_iter().all(|seen| seen), "a whole deal names every row");
    }
}
