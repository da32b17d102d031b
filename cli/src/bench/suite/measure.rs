//! Measures the cases: each on a group of its own, or on one that a kernel fills.

use hotrow::{Error, Group};

use super::bench::Bench;
use super::cases::Case;
use super::whole;
use super::workload::{Taken, Workload, record};
use crate::lab::Lab;
use crate::report::{Setting, Unit};

/// Measures and records a case. A wrong share of hits is an error of the command. If the device has too little memory, a cache of half the
/// size takes the place, and the records say so.
pub(super) fn measure(bench: &mut Bench<'_>, case: &Case) -> anyhow::Result<()> {
    match one(bench, case, 1) {
        Err(error) if case.may_shrink() && too_large(&error) => one(bench, case, 2),
        done => done,
    }
}

/// Whether the device had no room.
fn too_large(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(Error::OutOfMemory { .. } | Error::TooLarge { .. }))
}

fn one(bench: &mut Bench<'_>, case: &Case, by: u32) -> anyhow::Result<()> {
    let own = match case.context(bench) {
        Ok(own) => own.map(|context| Lab::new(&context, bench.lab.rounds)),
        // A device without subgroups of 32 lanes lacks a body.
        Err(reason) => {
            bench.run.leave_out(case.name, reason.to_string());
            return Ok(());
        }
    };
    let lab = own.as_ref().unwrap_or(bench.lab);
    lab.timeline.listen(false);
    let mut workload = case.workload(bench, by)?;
    let taken = if case.shards > 0 {
        whole::measure(bench, &mut workload, case.shards)?
    } else {
        workload.run(lab, &mut Group::new(&lab.timed, workload.config.clone())?)?
    };
    if let Some(wanted) = case.hits.filter(|wanted| (taken.facts.hit_rate() - wanted).abs() > 0.003) {
        let found = taken.facts.hit_rate();
        bench.run.wrong.push(format!("{}: wanted {wanted} of the lookups to hit, found {found:.4}", case.name));
    }
    if case.part == "scaling" {
        scaling(bench, &workload, &taken);
    } else {
        record(bench, &workload, &taken);
    }
    // The driver frees the tables when the device is next polled.
    bench.lab.submit(bench.lab.encoder()).map(drop)
}

/// Records a point of time against work.
fn scaling(bench: &mut Bench<'_>, workload: &Workload, taken: &Taken) {
    let Some(step) = taken.step() else { return };
    bench.run.describe("scaling", format!("distinct rows of one cache; the largest: {}", workload.shape));
    let distinct = taken.facts.distinct;
    let mut at = bench.run.at("scaling", &Setting::default().with("distinct", distinct));
    at.timed("forward", taken.measured.phase("forward"));
    at.timed("backward", taken.measured.phase("backward"));
    at.push("step", step, Unit::Seconds);
    at.push("a row", step / distinct, Unit::Seconds);
    at.push("dispatches", taken.measured.dispatches() as f64, Unit::Count);
}

/// Records how far the points from 10^5 rows on lie off the straight line that is nearest in relative terms, if there are three.
pub(super) fn straight(bench: &mut Bench<'_>) {
    let steps = bench.run.records.iter().filter(|record| record.shape == "scaling" && record.what == "step");
    let points = steps.filter_map(|record| Some((record.setting.number("distinct")?, record.value)));
    let points: Vec<(f64, f64)> = points.filter(|point| point.0 >= 0.99e5).collect();
    let off = off_the_line(&points);
    bench.run.at("scaling", &Setting::default()).push("off a straight line", off, Unit::Share);
}

/// The largest relative distance of a point from the straight line that is nearest in relative terms; `None` below three points.
fn off_the_line(points: &[(f64, f64)]) -> Option<f64> {
    if points.len() < 3 {
        return None;
    }
    // Least squares of 1 - (a + b x) / y over a and b.
    let sum = |of: fn(f64, f64) -> f64| points.iter().map(|&(x, y)| of(x, y)).sum::<f64>();
    let (aa, ab, bb) = (sum(|_, y| 1.0 / (y * y)), sum(|x, y| x / (y * y)), sum(|x, y| x * x / (y * y)));
    let (ya, yb) = (sum(|_, y| 1.0 / y), sum(|x, y| x / y));
    let determinant = aa * bb - ab * ab;
    let (a, b) = ((ya * bb - yb * ab) / determinant, (yb * aa - ya * ab) / determinant);
    Some(points.iter().map(|&(x, y)| (1.0 - (a + b * x) / y).abs()).fold(0.0, f64::max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_straight_line_is_straight_and_a_bent_one_is_not() {
        let straight: Vec<(f64, f64)> = [1e5, 3e5, 1e6, 1e7].map(|x| (x, 2e-4 + 3e-9 * x)).into();
        assert!(off_the_line(&straight).unwrap() < 1e-6);
        let bent: Vec<(f64, f64)> = [1e5, 3e5, 1e6, 1e7].map(|x: f64| (x, 1e-9 * x.powf(1.3))).into();
        assert!(off_the_line(&bent).unwrap() > 0.2);
        assert_eq!(off_the_line(&straight[..2]), None);
    }
}
