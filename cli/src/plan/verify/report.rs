//! A run as text.

use super::super::report::number;
use super::{Measure, Run, order};
use crate::output;

impl Run {
    /// Whether this order is compared with the prediction, which is for shuffled lookups.
    pub(super) fn is_judged(&self) -> bool {
        self.order == order::SHUFFLED
    }

    /// Whether a measure is wrong, and not only too short a run.
    pub(super) fn fails(&self) -> bool {
        self.measures.iter().any(|one| !one.judged.within && !one.judged.too_short)
    }

    pub(in super::super) fn text(&self) -> String {
        let header = [self.order, "predicted", "counted", "deviation", "allowed"];
        let columns = if self.is_judged() { 5 } else { 4 };
        let mut table = output::table(header[..columns].to_vec(), 1);
        for Measure { what, judged: one } in &self.measures {
            // No minus before a zero.
            let deviation = if one.deviation_percent.abs() < 5e-4 { 0.0 } else { one.deviation_percent };
            let allowed = format!("{:.2} %", one.allowed_percent);
            let cells = [
                (*what).to_owned(),
                number(one.predicted),
                number(one.counted),
                format!("{deviation:+.3} %"),
                if one.too_short { "too short to tell".to_owned() } else { allowed },
            ];
            table.add_row(cells[..columns].to_vec());
        }
        let Self { order, backend, lookups, batches, pinned_rows, form, locality, .. } = self;
        let verdict = match (self.is_judged(), self.fails(), self.too_short) {
            (false, ..) => "not judged: the prediction is for shuffled lookups",
            (true, true, _) => "the prediction does not hold",
            (true, false, true) => "too short to tell",
            (true, false, false) => "the prediction holds",
        };
        format!(
            "Verified on {backend}, order {order}: {lookups} lookups in {batches} batches, {pinned_rows} rows pinned, {form}\n{table}\n\
             {verdict}; distinct rows of a batch: {locality:.3} times those predicted\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotrow::scars::sets::{Expected, Judge};

    fn run(order: &'static str, misses: f64, predicted: Expected) -> Run {
        let judged = Judge::PART.judge(predicted, 1.0, misses);
        let measures = vec![Measure { what: "missing distinct rows", judged }];
        Run {
            order,
            backend: String::new(),
            lookups: 1,
            batches: 1,
            whole_epoch: false,
            form: "",
            record: 1,
            pinned_rows: 0,
            locality: 0.9,
            too_short: judged.too_short,
            within: judged.within,
            measures,
        }
    }

    #[test]
    fn only_a_proved_prediction_holds() {
        let sure = Expected { mean: 1000.0, variance: 1.0 };
        for (order, misses, predicted, verdict, proved) in [
            (order::SHUFFLED, 1000.0, sure, "the prediction holds", true),
            (order::SHUFFLED, 1020.0, sure, "the prediction does not hold", false),
            (order::SHUFFLED, 9.0, Expected { mean: 9.0, variance: 9.0 }, "too short to tell; ", false),
            (order::REAL, 950.0, sure, "not judged", true),
            (order::SAMPLES, 1050.0, sure, "not judged", true),
        ] {
            let run = run(order, misses, predicted);
            assert!(run.text().contains(verdict) && run.text().contains("0.900 times"), "{}", run.text());
            assert_eq!(super::super::proved(&[run]).is_ok(), proved, "{order} {misses}");
        }
    }
}
