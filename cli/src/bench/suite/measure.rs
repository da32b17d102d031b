//! Measures the cases: each on a group of its own, or on one that a kernel fills.

use hotrow::Group;

use super::bench::Bench;
use super::cases::Case;
use super::whole;
use super::workload::{Taken, Workload, record};
use hotrow_report::clock::{Clock, has_no_room};
use hotrow_report::records::{Setting, Unit};

/// Measures and records a case. A wrong share of hits is an error of the command. If the device has too little memory, a cache of half the
/// size takes the place, and the records say so.
pub(super) fn measure(bench: &mut Bench<'_>, case: &Case) -> anyhow::Result<()> {
    match one(bench, case, 1) {
        Err(error) if case.may_shrink() && has_no_room(&error) => one(bench, case, 2),
        done => done,
    }
}

fn one(bench: &mut Bench<'_>, case: &Case, by: u32) -> anyhow::Result<()> {
    // A device without subgroups of 32 lanes lacks a body, which leaves the case out.
    let own = case.context(bench)?.map(|context| Clock::new(&context, bench.clock.rounds));
    let clock = own.as_ref().unwrap_or(bench.clock);
    clock.timeline.listen(false);
    let mut workload = case.workload(bench, by)?;
    let taken = if case.pieces > 0 {
        whole::measure(bench, &mut workload, case.pieces)?
    } else {
        workload.run(clock, &mut Group::new(&clock.timed, workload.config.clone())?)?
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
    bench.clock.submit(bench.clock.encoder()).map(drop)
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
