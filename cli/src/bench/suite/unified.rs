//! Unified memory over the steps of `mapped-int8`: predicted by the model, and with pages moved on the device.

use super::bench::{Bench, DIM};
use super::cases;
use crate::report::{Setting, Unit};
use crate::uvm::{UvmBus, UvmModel, UvmTable};
use anyhow::Context as _;

/// The same device bytes as the cache has, and free faults.
pub(super) fn run(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let case = cases::named("mapped-int8").context("wanted the case mapped-int8, found none")?;
    let workload = case.workload(bench, 1)?;
    let default = UvmModel::default();
    let bus_bytes_per_second = bench.bus.unwrap_or(default.bus_bytes_per_second);
    let model = UvmModel { bus_bytes_per_second, fault_seconds: 0.0, ..default };
    let row = u64::from(DIM) * 4;
    let mut table = UvmTable::new(model, row, u64::from(workload.config.cache_rows) * row)?;
    let bus = UvmBus::new(&bench.lab.timed)?;
    let [mut bytes, mut predicted, mut carried] = [0.0; 3];
    // The first half throws out the rows that no step asks for.
    let measured = workload.batches.len() / 2;
    for (number, batch) in workload.warm.iter().chain(&workload.batches).enumerate() {
        let rows = batch.indices();
        let moved = table.pass(&rows, false);
        table.pass(&rows, true);
        if number >= workload.warm.len() + workload.batches.len() - measured {
            bytes += (moved.pages_in * model.page_bytes) as f64 / measured as f64;
            predicted += model.seconds(moved) / measured as f64;
            carried += bus.carry(moved, model.page_bytes)? / measured as f64;
        }
    }
    let gather = bench.run.value("time", "mapped-int8", "phase=forward; kernel=gather").unwrap_or(0.0);
    bench.run.describe(
        "unified memory",
        "the steps of mapped-int8 in pages of 64 KiB, faults for free; both times with the gather measured there",
    );
    let setting = Setting::default().with("placement", workload.config.placement.to_string());
    let mut at = bench.run.at("unified memory", &setting);
    at.push("bytes in", bytes, Unit::Bytes);
    at.push("forward, predicted", predicted + gather, Unit::Seconds);
    at.push("forward, pages moved", carried + gather, Unit::Seconds);
    Ok(())
}
