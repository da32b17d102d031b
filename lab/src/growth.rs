//! SCARS' scaling claim: with five times the rows and five times the batch the communication grows by less than 1.5 times (exponential and
//! half-normal) or 2 times (Zipf). The paper does not say whether the scale of a distribution grows with the rows, whether indices count, or
//! whether a batch or an epoch is meant; all are shown, with nothing pinned.

use anyhow::ensure;
use hotrow::Error;
use hotrow::scars::Skew;
use hotrow_cli::report::{self, Record, Setting, Unit};
use serde::Deserialize;

/// The largest batch that is tried: 2^40 lookups.
const LARGEST: u32 = 40;

/// A table and a batch, and how many times as many rows and lookups there are afterwards.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Growth {
    times: f64,
    rows: u64,
    lookups: u64,
    /// Words of a row; an index is one.
    words: f64,
}

/// The paper's distributions: name, the bound that is claimed, and the skew of so many rows by a scale.
type Law = (&'static str, f64, fn(u64, f64) -> Result<Skew, Error>);
const LAWS: [Law; 3] = [
    ("exponential", 1.5, Skew::exponential),
    ("half-normal", 1.5, Skew::half_normal),
    ("Zipf, s = 1", 2.0, |rows, _| Skew::zipf(rows, 1.0)),
];

impl Growth {
    /// A table with a line for each distribution.
    pub(crate) fn table(&self) -> anyhow::Result<(String, Vec<Record>)> {
        let Self { times, rows, lookups, words } = *self;
        ensure!(
            times.is_finite() && times >= 1.0 && rows > 0 && lookups > 0 && words > 0.0,
            "growth: wanted times from 1 on, and rows, lookups and words above 0, found {self:?}"
        );
        let (scale, large) = ((rows as f64 / 100.0).max(1.0), (rows as f64 * times).round() as u64);
        let mut records = Vec::new();
        for (name, claimed, skew) in LAWS {
            let scales: &[(f64, &str)] =
                if name.starts_with("Zipf") { &[(1.0, "")] } else { &[(1.0, "held"), (times, "grown too")] };
            for &(stretch, how) in scales {
                let (before, after) = (skew(rows, scale)?, skew(large, scale * stretch)?);
                let law = if how.is_empty() { name.to_owned() } else { format!("{name}, scale {scale:.0} {how}") };
                let distinct = |lookups: f64| [before.distinct(lookups, 0), after.distinct(lookups * times, 0)];
                let grown = |lookups: f64| {
                    let [before, after] = distinct(lookups);
                    after / before
                };
                let lookups = lookups as f64;
                let [few, many] = distinct(lookups);
                let batch = (lookups * times + words * many) / (lookups + words * few);
                let from = (0..=LARGEST).map(|log| 2f64.powi(log as i32)).find(|&lookups| grown(lookups) < claimed);
                let setting = Setting::default().with("distribution", law).with("claimed below", claimed);
                let setting = setting.with("holds", if grown(lookups) < claimed { "yes" } else { "no" });
                let setting = setting.with("from lookups", from.map_or("never".to_owned(), |from| from.to_string()));
                for (what, value) in [
                    ("batch: rows", grown(lookups)),
                    ("batch: and indices", batch),
                    ("epoch: rows", grown(lookups) / times),
                    ("epoch: and indices", batch / times),
                ] {
                    // As a score it is shown with all its digits.
                    records.push(Record::new(what, "growth", &setting, value, Unit::Score));
                }
            }
        }
        let lines = ["distribution", "claimed below", "holds", "from lookups"];
        let table = report::table(&records, &lines, "what").unwrap_or_default();
        let text = format!(
            "From {rows} rows and {lookups} lookups to {times} times as many; a row is {words} words\n\n{table}"
        );
        Ok((text, records))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn growth(lookups: u64) -> Vec<Record> {
        Growth { times: 5.0, rows: 1_000_000, lookups, words: 64.0 }.table().unwrap().1
    }

    #[test]
    fn where_the_claim_holds() {
        let found = growth(262_144);
        let value = |law: usize, figure: usize| found[4 * law + figure].value;
        // Exponential and half-normal, scale held and grown; Zipf.
        for (law, wanted) in [1.419, 5.0, 1.211, 5.0, 4.604].into_iter().enumerate() {
            assert!((value(law, 0) - wanted).abs() < 0.005, "{:?}", found[4 * law]);
            assert!((value(law, 2) - wanted / 5.0).abs() < 0.001);
        }
        assert!((value(0, 1) - 1.764).abs() < 0.005, "{}", value(0, 1));
        let holds =
            |found: &[Record]| found.iter().step_by(4).map(|record| record.is("holds", "yes")).collect::<Vec<_>>();
        assert_eq!(holds(&found), [true, false, true, false, false]);
        assert_eq!(holds(&growth(4096)), [false; 5], "small batches share little");
        assert!(found[0].is("from lookups", "262144") && found[4].is("from lookups", "never"));
    }
}
