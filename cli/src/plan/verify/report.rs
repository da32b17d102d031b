//! A run as text: the table, and what it means.

use super::super::report::number;
use super::{Measure, Run, order};
use crate::output;
use std::cmp::Ordering;
use std::fmt::Write;

impl Run {
    /// Whether this order is held against the prediction.
    pub(in super::super) fn is_judged(&self) -> bool {
        self.order == order::SHUFFLED
    }

    /// Whether a measure is wrong, and not only too short a run.
    pub(super) fn fails(&self) -> bool {
        self.measures.iter().any(|one| !one.within && !one.too_short)
    }

    pub(in super::super) fn text(&self) -> String {
        let header = [self.order, "predicted", "counted", "deviation", "allowed"];
        let columns = if self.is_judged() { 5 } else { 4 };
        let mut table = output::table(header.into_iter().take(columns).map(str::to_owned).collect::<Vec<_>>(), 1);
        for one in &self.measures {
            // No minus before a zero.
            let deviation = if one.deviation_percent.abs() < 5e-4 { 0.0 } else { one.deviation_percent };
            let allowed = format!("{:.2} %", one.allowed_percent);
            let cells = [
                one.what.to_owned(),
                number(one.predicted),
                number(one.counted),
                format!("{deviation:+.3} %"),
                if one.too_short { "too short to tell".to_owned() } else { allowed },
            ];
            table.add_row(cells.into_iter().take(columns).collect::<Vec<_>>());
        }
        let Self { order, backend, lookups, batches, pinned_rows, form, .. } = self;
        let how = format!("{lookups} lookups in {batches} batches, {pinned_rows} rows pinned, {form}");
        let mut text = format!("Verified on {backend}, order {order}: {how}\n{table}\n");
        // Writing into a string cannot fail.
        let _ = writeln!(text, "{}", if self.is_judged() { self.verdict() } else { self.explanation() });
        text
    }

    fn verdict(&self) -> String {
        let misses = number(self.misses().map_or(0.0, |misses| misses.counted));
        if self.fails() {
            return "The forecast, which is for shuffled lookups, does not hold.".to_owned();
        }
        if self.too_short {
            return format!(
                "Too short to tell: {misses} misses, which chance alone moves further than is allowed. Nothing was proved."
            );
        }
        let wide = self.measures.iter().any(|one| one.allowed_percent > 1.0);
        let chance =
            if wide { ", more where chance moves a part of an epoch further (4 standard deviations)" } else { "" };
        format!("The forecast, which is for shuffled lookups, holds: 1 % is allowed{chance}.")
    }

    fn misses(&self) -> Option<&Measure> {
        self.measures.iter().find(|one| one.what == "missing distinct rows")
    }

    /// Why this order reads more rows, or fewer, than shuffled lookups.
    fn explanation(&self) -> String {
        let samples = self.order == order::SAMPLES;
        let Some(misses) = self.misses() else { return String::new() };
        let times = if misses.predicted > 0.0 { misses.counted / misses.predicted } else { 1.0 };
        let side =
            if misses.too_short || misses.within { Ordering::Equal } else { misses.deviation_percent.total_cmp(&0.0) };
        let why = match (side, samples) {
            (Ordering::Equal, _) if misses.too_short => "too few of these to tell",
            (Ordering::Equal, _) => "as many of these as chance gives",
            (Ordering::Less, true) => {
                "lookups of a sample are alike, so its rows are fewer than as many independent draws give"
            }
            (Ordering::Less, false) => {
                "rows come back soon (temporal locality, and alike lookups of a sample), so fewer cross the bus"
            }
            (Ordering::Greater, true) => "lookups of a sample differ more than independent draws, so its rows are more",
            (Ordering::Greater, false) => {
                "rows are spread more evenly than by chance: each comes back late, so more cross the bus"
            }
        };
        format!(
            "Not judged: the forecast is for shuffled lookups. A batch in this order has {:.3} times their distinct rows, and {times:.3} \
             times their missing ones: {why}.",
            self.locality
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::judge::{BOUND, Judge};
    use super::*;
    use crate::plan::expect::Expected;

    fn run(order: &'static str, distinct: f64, misses: f64) -> Run {
        let judge = Judge { bound: BOUND };
        let measure = |what, counted| judge.measure(what, Expected { mean: 1000.0, variance: 1.0 }, 1.0, counted);
        let measures = vec![measure("distinct rows", distinct), measure("missing distinct rows", misses)];
        Run {
            order,
            backend: String::new(),
            lookups: 1,
            batches: 1,
            whole_epoch: false,
            form: "",
            record: 1,
            pinned_rows: 0,
            locality: distinct / 1000.0,
            too_short: measures.iter().any(|one| one.too_short),
            within: measures.iter().all(|one| one.within),
            measures,
        }
    }

    #[test]
    fn an_order_is_explained_by_what_is_missed() {
        for (order, distinct, misses, said) in [
            (order::REAL, 1582.0, 1582.0, "spread more evenly"),
            (order::REAL, 900.0, 1000.1, "as many of these as chance gives"),
            (order::REAL, 1000.0, 950.0, "come back soon"),
            (order::SAMPLES, 950.0, 950.0, "are alike"),
            (order::SAMPLES, 1000.0, 1050.0, "differ more"),
        ] {
            let text = run(order, distinct, misses).text();
            assert!(text.contains(said) && text.contains("for shuffled lookups"), "{text}");
        }
    }

    #[test]
    fn only_what_is_proved_holds() {
        assert!(run(order::SHUFFLED, 1000.0, 1000.0).text().contains("holds"));
        assert!(run(order::SHUFFLED, 1000.0, 1020.0).text().contains("does not hold"));
        let mut short = run(order::SHUFFLED, 1000.0, 1000.0);
        short.measures[1] =
            Judge { bound: BOUND }.measure("missing distinct rows", Expected { mean: 9.0, variance: 9.0 }, 1.0, 9.0);
        (short.too_short, short.within) = (true, false);
        let text = short.text();
        assert!(text.contains("Too short to tell: 9 misses") && !text.contains("holds"), "{text}");
        assert!(super::super::proved(&[short]).is_err());
    }
}
