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
    lookups: f64,
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
        let lines = ["distribution", "claimed below", "holds"];
        let table = report::table(&self.records()?, &lines, "what").unwrap_or_default();
        Ok(format!(
            "From {rows} rows and {lookups} lookups to {times} times as many; a row is {words} words\n\n{table}"
        ))
    }

    fn records(&self) -> anyhow::Result<Vec<Record>> {
        let Self { times, rows, lookups, words } = *self;
        let (scale, mut records) = ((rows as f64 / 100.0).max(1.0), Vec::new());
        for (name, claimed, skew) in LAWS {
            for (how, stretch) in
                [("held", 1.0), ("grown too", times)].into_iter().take(if claimed < 2.0 { 2 } else { 1 })
            {
                let skews = [skew(rows, scale)?, skew((rows as f64 * times).round() as u64, scale * stretch)?];
                let [before, after] = [(&skews[0], lookups), (&skews[1], lookups * times)]
                    .map(|(skew, lookups)| [skew.distinct(lookups, 0), lookups + words * skew.distinct(lookups, 0)]);
                let setting = Setting::default().with("distribution", format!("{name}, scale {scale:.0} {how}"));
                let setting = setting.with("claimed below", claimed);
                let setting = setting.with("holds", if after[0] / before[0] < claimed { "yes" } else { "no" });
                for (at, what) in ["rows", "and indices"].into_iter().enumerate() {
                    // As scores they are shown with their digits. An epoch of as many lookups has fewer batches.
                    let grown = after[at] / before[at];
                    records.push(Record::new(format!("batch: {what}"), "growth", &setting, grown, Unit::Score));
                    records.push(Record::new(format!("epoch: {what}"), "growth", &setting, grown / times, Unit::Score));
                }
            }
        }
        Ok(records)
    }
}
