//! SCARS' scaling claim: with five times the rows and five times the batch the communication grows by less than 1.5 times (exponential and
//! half-normal) or 2 times (Zipf). The paper does not say whether the scale of a distribution grows with the rows, whether indices count, or
//! whether a batch or an epoch is meant; all are shown, with nothing pinned.

use hotrow::Error;
use hotrow::scars::Skew;
use hotrow_cli::report::{self, Record, Setting, Unit};
use serde::Deserialize;

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

/// A distribution: its name, the bound that is claimed, and the skew of so many rows by a scale.
type Law = (&'static str, f64, fn(u64, f64) -> Result<Skew, Error>);
const LAWS: [Law; 3] = [
    ("exponential", 1.5, Skew::exponential),
    ("half-normal", 1.5, Skew::half_normal),
    ("Zipf, s = 1", 2.0, |rows, _| Skew::zipf(rows, 1.0)),
];

impl Growth {
    /// A table with a line for each distribution whose scale is held, or grows too.
    pub(crate) fn table(&self) -> anyhow::Result<String> {
        let Self { times, rows, lookups, words } = *self;
        let lines = ["distribution", "claimed below", "holds", "from lookups"];
        let table = report::table(&self.records()?, &lines, "what").unwrap_or_default();
        Ok(format!(
            "From {rows} rows and {lookups} lookups to {times} times as many; a row is {words} words\n\n{table}"
        ))
    }

    fn records(&self) -> anyhow::Result<Vec<Record>> {
        let Self { times, rows, lookups, words } = *self;
        let (scale, lookups, mut records) = ((rows as f64 / 100.0).max(1.0), lookups as f64, Vec::new());
        for (name, claimed, skew) in LAWS {
            for (how, stretch) in
                [("held", 1.0), ("grown too", times)].into_iter().take(if claimed < 2.0 { 2 } else { 1 })
            {
                let (before, after) =
                    (skew(rows, scale)?, skew((rows as f64 * times).round() as u64, scale * stretch)?);
                let crossing =
                    |skew: &Skew, lookups: f64, indices: f64| indices * lookups + words * skew.distinct(lookups, 0);
                let grown =
                    |lookups, indices| crossing(&after, lookups * times, indices) / crossing(&before, lookups, indices);
                // The first power of two from which it holds, up to 2^40.
                let from = (0..=40).map(|log| 2f64.powi(log)).find(|&lookups| grown(lookups, 0.0) < claimed);
                let setting = Setting::default().with("distribution", format!("{name}, scale {scale:.0} {how}"));
                let setting = setting.with("claimed below", claimed);
                let setting = setting.with("holds", if grown(lookups, 0.0) < claimed { "yes" } else { "no" });
                let setting = setting.with("from lookups", from.map_or("never".to_owned(), |from| from.to_string()));
                for (what, value) in [("rows", grown(lookups, 0.0)), ("and indices", grown(lookups, 1.0))] {
                    // As scores they are shown with their digits.
                    records.push(Record::new(format!("batch: {what}"), "growth", &setting, value, Unit::Score));
                    records.push(Record::new(format!("epoch: {what}"), "growth", &setting, value / times, Unit::Score));
                }
            }
        }
        Ok(records)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_the_claim_holds() {
        let found = Growth { times: 5.0, rows: 1_000_000, lookups: 262_144, words: 64.0 }.records().unwrap();
        let rows: Vec<&Record> = found.iter().step_by(4).collect();
        // Exponential and half-normal, scale held and grown; Zipf.
        for (record, wanted) in rows.iter().zip([1.419, 5.0, 1.211, 5.0, 4.604]) {
            assert!((record.value - wanted).abs() < 0.005, "{record:?}");
            assert!(record.is("holds", if wanted < 1.5 { "yes" } else { "no" }), "{record:?}");
        }
        assert!((found[2].value - 1.764).abs() < 0.005, "{:?}", found[2]);
        assert!(rows[0].is("from lookups", "262144") && rows[1].is("from lookups", "never"));
    }
}
