//! No cache: every row of a batch crosses the bus. FP32 against the bus itself, INT8 against FP32.

use hotrow::{Optimizer, Precision};

use super::cases::{BAG, DIM, LR, TURNS, config, is_mapped, mapped};
use super::goals::{Id, reach};
use super::lab::Lab;
use super::report::{Case, Report};
use super::shapes::{Batch, distinct};
use super::workload::Workload;

pub(crate) fn run(lab: &Lab, report: &mut Report) -> anyhow::Result<()> {
    let (n, rows) = lab.size.mapped();
    // No row is in two batches: nothing is found in a cache of the chip.
    let all = distinct(&(0..rows).collect::<Vec<_>>(), TURNS * n);
    let batches: Vec<Batch> = all.chunks_exact(n).map(|rows| Batch::of(rows.to_vec(), BAG)).collect();
    let mut cases = Vec::new();
    for (name, precision) in [("uncached-fp32", Precision::Fp32), ("uncached-int8", Precision::Int8)] {
        let mut config = config(&[rows], precision, Optimizer::sgd(LR), 0, lab.seed);
        config.placement = mapped(lab);
        let workload = Workload {
            name: name.to_owned(),
            shape: format!("{n} distinct indices over {rows} rows x {DIM}, {:?}, no cache", config.placement),
            why: "every row once over the bus; 4.1 GB in FP32 where the size is full, far beyond what the chip keeps of host memory",
            warm_state: "none".to_owned(),
            scale: None,
            config,
            warm: Vec::new(),
            batches: batches.clone(),
            backward: false,
        };
        cases.push(workload.run(lab)?);
    }
    let judges = lab.judges() && is_mapped(lab);
    let read = |case: &Case| (case.facts.admitted + case.facts.bypassed) * case.facts.record;
    let forward = |case: &Case| case.forward.map(|times| times.median);
    let [fp32, int8] = [&cases[0], &cases[1]];
    let of_copy = |seconds: Option<f64>| Some(read(fp32) / seconds? / report.bus_bytes_per_second?);
    let exchange = fp32.kernel("exchange", "forward").and_then(|kernel| kernel.seconds);
    let remark = of_copy(exchange.map(|times| times.median))
        .map_or_else(String::new, |share| format!("the whole forward; exchange alone {:.1} %", 100.0 * share));
    reach(&mut report.goals, Id::Link, of_copy(forward(fp32)), judges, remark);
    let bytes = read(int8) / read(fp32);
    let remark = format!("{:.0} B a row against {:.0}", read(int8) / n as f64, read(fp32) / n as f64);
    reach(&mut report.goals, Id::PackedBytes, Some(bytes), judges, remark);
    let time = forward(int8).zip(forward(fp32)).map(|(int8, fp32)| int8 / fp32);
    reach(&mut report.goals, Id::PackedTime, time, judges, "136 B touch five sectors of 32 B: 31 % of FP32's");
    report.cases.extend(cases);
    Ok(())
}
