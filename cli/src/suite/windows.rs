//! A cache larger than a binding: what its windows cost gather, and how it fares at its full size.

use hotrow::internals::Pieces as _;
use hotrow::{Optimizer, Precision};

use super::cases::{BAG, DIM, LR, TURNS, config, fill};
use super::goals::{Id, reach};
use super::lab::Lab;
use super::report::Report;
use super::shapes::{Batch, pool, random, uniform};
use super::workload::Workload;

pub(crate) fn run(lab: &Lab, report: &mut Report) -> anyhow::Result<()> {
    let n = lab.size.resident().0;
    let slot = u64::from(DIM) * 4;
    let (large, window) = lab.size.windows();
    let window = if lab.binding() < large { lab.binding().min(window) } else { window };
    let windows = large.div_ceil(window);
    // Whole slots; the last window may be shorter than the others.
    let cut = (window / windows).next_multiple_of(slot);
    let mut times = Vec::new();
    for (name, bytes, window, why) in [
        ("windows-one", window, window, "as much cache as one window holds: what the others are compared with"),
        ("windows-cut", window, cut, "the same cache and batches, cut into as many windows as the large cache has"),
        ("windows-large", large, window, "a cache larger than a binding; its rows lie further apart, too"),
    ] {
        let slots = lab.slots(bytes, slot);
        let mebibytes = (u64::from(slots) * slot) >> 20;
        let rows = pool(slots, slots / 32);
        let mut random = random(lab.seed, 7);
        // The table beside it is INT8: what a hit costs does not depend on it, and it is made sooner.
        let mut config = config(&[slots], Precision::Int8, Optimizer::sgd(LR), slots, lab.seed);
        config.set_window_bytes(Some(window));
        let windows = hotrow::Layout::new(&config, lab.binding())?.windows();
        let workload = Workload {
            name: name.to_owned(),
            shape: format!(
                "{n} indices, uniform, over {} resident rows x {DIM}, {mebibytes} MiB of slots in {windows} windows, bags of {BAG}",
                rows.len()
            ),
            why,
            warm_state: "every row of the pool fetched once, so all hit".to_owned(),
            scale: None,
            config,
            warm: fill(&rows, n),
            batches: (0..TURNS).map(|_| Batch::of(uniform(&rows, n, &mut random), BAG)).collect(),
            backward: false,
        };
        let case = workload.run(lab)?;
        let gather = case.kernel("gather", "forward").and_then(|kernel| kernel.seconds);
        times.extend(gather.map(|times| (times.median, windows, mebibytes)));
        report.cases.push(case);
    }
    if let [(one, _, all), (cut, windows, _), (large, of_large, large_all)] = times[..] {
        let remark = format!("{all} MiB in {windows} windows; {large_all} MiB in {of_large}: {:.2} x", large / one);
        reach(&mut report.goals, Id::Windows, Some(cut / one), lab.judges(), remark);
    }
    Ok(())
}
