//! Measures the cases: each on a group of its own, or on one that a kernel fills.

use hotrow::Group;

use super::bench::Bench;
use super::cases::Case;
use super::whole;
use super::workload::record;
use hotrow_report::clock::has_no_room;

/// Measures and records a case. A wrong share of hits is an error of the command. If the device has too little memory, a cache of half the
/// size takes the place, and the records say so.
pub(super) fn measure(bench: &mut Bench<'_>, case: &Case) -> anyhow::Result<()> {
    match one(bench, case, 1) {
        Err(error) if case.may_shrink() && has_no_room(&error) => one(bench, case, 2),
        done => done,
    }
}

fn one(bench: &mut Bench<'_>, case: &Case, by: u32) -> anyhow::Result<()> {
    let clock = bench.clock;
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
    record(bench, &workload, &taken);
    // The driver frees the tables when the device is next polled.
    bench.clock.submit(bench.clock.encoder()).map(drop)
}
