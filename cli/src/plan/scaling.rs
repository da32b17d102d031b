//! `--scale`: P3's claim that a table and a batch several times as large communicate little more, by what it may mean.

use super::report::{Scaling, ScalingLine};
use hotrow::Error;
use hotrow::scars::{Formula, Growth, Point, Skew, growth};

/// The largest batch that is tried, 2^40 lookups.
const LARGEST: u32 = 40;

/// The claims (P3 II-B), made for five times: less than so much.
const CLAIMS: [(&str, f64); 3] = [("exponential", 1.5), ("half-normal", 1.5), ("zipf", 2.0)];

/// From a table of `rows` and a batch of `lookups` to `times` as many of both. Exponential and half-normal laws have a scale of a
/// hundredth of the rows, which is held, or grows with them; Zipf's s is 1. `dim`: 4-byte words of a record.
pub(super) fn scaling(times: f64, rows: u64, lookups: u64, dim: f64) -> Result<Scaling, Error> {
    let scale = (rows as f64 / 100.0).max(1.0);
    let mut lines = Vec::new();
    for (name, claimed) in CLAIMS {
        let laws = match name {
            "exponential" => vec![(Formula::Exponential(scale), false), (Formula::Exponential(scale), true)],
            "half-normal" => vec![(Formula::HalfNormal(scale), false), (Formula::HalfNormal(scale), true)],
            // It has no scale.
            _ => vec![(Formula::Zipf(1.0), false)],
        };
        for (formula, grown) in laws {
            let pair = Pair::new(formula, grown, times, rows)?;
            let found = pair.growth(lookups as f64, dim);
            let what = match (name, grown) {
                ("zipf", _) => "zipf, s = 1".to_owned(),
                (_, false) => format!("{name}, scale {scale:.0} held"),
                (_, true) => format!("{name}, scale {scale:.0} grown too"),
            };
            let holds = |lookups: f64| pair.growth(lookups, dim).batch_rows < claimed;
            lines.push(ScalingLine {
                distribution: what,
                claimed,
                batch_growth: found.batch_rows,
                batch_growth_with_indices: found.batch,
                epoch_growth: found.epoch_rows,
                epoch_growth_with_indices: found.epoch,
                holds: holds(lookups as f64),
                holds_from_lookups: (0..=LARGEST).map(|log| 1 << log).find(|&lookups: &u64| holds(lookups as f64)),
            });
        }
    }
    Ok(Scaling { times, rows, lookups, lines })
}

/// A table before and after.
struct Pair {
    times: f64,
    before: Skew,
    after: Skew,
}

impl Pair {
    fn new(formula: Formula, grown: bool, times: f64, rows: u64) -> Result<Self, Error> {
        let stretched = if grown { formula.stretched(times) } else { formula };
        let after = Skew::of(stretched, (rows as f64 * times).round().max(1.0) as u64)?;
        Ok(Self { times, before: Skew::of(formula, rows)?, after })
    }

    fn growth(&self, lookups: f64, dim: f64) -> Growth {
        let before = Point { skew: &self.before, lookups, pinned: 0 };
        growth(before, Point { skew: &self.after, lookups: lookups * self.times, pinned: 0 }, dim)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_claim_holds_where_it_does() {
        let found = scaling(5.0, 1_000_000, 1 << 18, 64.0).unwrap();
        let holds: Vec<bool> = found.lines.iter().map(|line| line.holds).collect();
        // Exponential and half-normal, scale held and grown; Zipf.
        assert_eq!(holds, [true, false, true, false, false]);
        assert!((found.lines[4].batch_growth - 4.604).abs() < 0.005, "{:?}", found.lines[4]);
        assert_eq!(found.lines.iter().map(|line| line.holds_from_lookups.is_some()).collect::<Vec<_>>(), holds);
        for line in &found.lines {
            assert!((line.epoch_growth - line.batch_growth / 5.0).abs() < 1e-12);
        }
        assert!(!scaling(5.0, 1_000_000, 1 << 12, 64.0).unwrap().lines[0].holds, "small batches share little");
    }
}
