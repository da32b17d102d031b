//! SCARS' scaling claim: with five times the rows and five times the batch the communication grows by less than 1.5 times (exponential and
//! half-normal) or 2 times (Zipf). The paper does not say whether the scale of a distribution grows with the rows, whether indices count, or
//! whether a batch or an epoch is meant; all are shown, with nothing pinned.

use hotrow_plan::scars::{Forecast, Formula, Pinned, Skew};
use hotrow_report::records::{self, Measurement, Setting, Unit};
use serde::Deserialize;
use std::num::NonZero;

/// A table and a batch, and how many times as many rows and lookups there are afterwards.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Growth {
    times: NonZero<u32>,
    rows: NonZero<u32>,
    lookups: NonZero<u32>,
    /// Words of a row; an index is one.
    words: NonZero<u32>,
}

/// A distribution: its name, the bound that is claimed, its formula with a scale, and whether the scale grows with the rows.
type Law = (&'static str, f64, fn(f64) -> Formula, bool);
const LAWS: [Law; 5] = [
    ("exponential, scale held", 1.5, Formula::Exponential, false),
    ("exponential, scale grown too", 1.5, Formula::Exponential, true),
    ("half-normal, scale held", 1.5, Formula::HalfNormal, false),
    ("half-normal, scale grown too", 1.5, Formula::HalfNormal, true),
    ("Zipf, s = 1", 2.0, |_| Formula::Zipf(1.0), false),
];

impl Growth {
    /// A table with a line for each distribution. Scales are a hundredth of the rows.
    pub(crate) fn table(&self) -> anyhow::Result<String> {
        let [times, rows, lookups, words] =
            [self.times, self.rows, self.lookups, self.words].map(|n| f64::from(n.get()));
        let (scale, large, mut records) = (rows / 100.0, (rows * times) as u64, Vec::new());
        for (name, claimed, law, grows) in LAWS {
            let after = Skew::of(law(if grows { scale * times } else { scale }), large)?;
            let distinct =
                |skew: &Skew, of: f64| Forecast::batch(skew, &Pinned::none(skew), of.round() as u64).distinct.mean;
            let [before, after] = [(Skew::of(law(scale), rows as u64)?, lookups), (after, lookups * times)]
                .map(|(skew, lookups)| [distinct(&skew, lookups), lookups + words * distinct(&skew, lookups)]);
            let holds = if after[0] / before[0] < claimed { "yes" } else { "no" };
            let setting = Setting::default().with("distribution", name).with("claimed below", claimed);
            let setting = setting.with("holds for rows of a batch", holds);
            for (at, what) in ["rows", "and indices"].into_iter().enumerate() {
                // As scores they are shown with their digits. An epoch of as many lookups has fewer batches.
                for (of, batches) in [("batch", 1.0), ("epoch", times)] {
                    let (what, grown) = (format!("{of}: {what}"), after[at] / before[at] / batches);
                    records.push(Measurement::new(what, "growth", &setting, grown, Unit::Score));
                }
            }
        }
        let table = records::table(&records, &["distribution", "claimed below", "holds for rows of a batch"], "what")
            .unwrap_or_default();
        Ok(format!(
            "From {rows} rows and {lookups} lookups to {times} times as many; a row is {words} words\n\n{table}"
        ))
    }
}
