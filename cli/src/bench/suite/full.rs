//! NVIDIA's shape whole: 268 million rows in 18 shards, filled by a kernel, beside the suite's tables in 2 shards and in 18.

use hotrow::internals::Pieces as _;
use hotrow::{Group, GroupConfig, Layout, Optimizer, Placement, wgpu::DeviceType};

use super::super::common::memory_left;
use super::bench::{Bench, is_mapped};
use super::cases::{LR, nvidia_shape};
use super::size::Size;
use super::workload::Workload;
use crate::fill;
use crate::lab::timed;
use crate::report::Unit;
use crate::report::units::bytes;

/// Rows of each table: of the whole shape, and of the suite's.
const fn rows(size: Size) -> [u32; 2] {
    size.of([60_000, 20_000], [26_800_000, 1_680_000])
}

/// The most shards of each case.
const SHARDS: u32 = 18;

/// Cuts the table into `shards` shards: as bindings of `binding` bytes cut it, or into equal ones if these make fewer.
fn cut(config: &mut GroupConfig, shards: u32, binding: u64) -> anyhow::Result<Layout> {
    let layout = Layout::new(config, binding)?;
    if layout.shards < shards {
        config.set_shard_bytes(Some(u64::from(layout.total_rows.div_ceil(shards)) * layout.stride()));
    }
    let layout = Layout::new(config, binding)?;
    anyhow::ensure!(
        layout.shards == shards,
        "wanted {} of records in {shards} shards, found bindings of {}, which make {}; take --size small",
        bytes(layout.table_bytes() as f64),
        bytes(binding as f64),
        layout.shards
    );
    Ok(layout)
}

/// Refuses a table that does not fit into the `found` bytes that the host has left, since a driver hands memory out page by page until the
/// process dies.
fn host_can_hold(placement: Placement, layout: &Layout, software: bool, found: u64) -> anyhow::Result<()> {
    if placement == Placement::Device && !software {
        return Ok(());
    }
    // A software driver has the cache there too. A tenth is left for batches and scratch.
    let cache = if software { u64::from(layout.slots()) * layout.slot_bytes() } else { 0 };
    let wanted = layout.table_bytes() + cache;
    anyhow::ensure!(
        wanted <= found / 10 * 9,
        "wanted {} of host memory for the records, found {} left; take --size small",
        bytes(wanted as f64),
        bytes(found as f64)
    );
    Ok(())
}

pub(super) fn nvidia(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let lookups = bench.size.of(10_480, 1_048_570);
    let mut placements = vec![(bench.mapped(), "")];
    if bench.lab.is_none_or(is_mapped) {
        placements.push((Placement::Device, "-device"));
    }
    // What decides the goal comes first.
    let [whole, suite] = rows(bench.size);
    let cases: [(u32, &[(&str, u32)]); 2] =
        [(whole, &[("nvidia-full", SHARDS)]), (suite, &[("nvidia-2-shards", 2), ("nvidia-18-shards", SHARDS)])];
    for (rows, cuts) in cases {
        let drawn = nvidia_shape(bench, "", (lookups, rows), Optimizer::row_wise_adagrad(LR))?;
        for (placement, suffix) in &placements {
            for (name, shards) in cuts {
                let name = format!("{name}{suffix}");
                if let Some(reason) = bench.deadline.over() {
                    bench.run.leave_out(name, reason);
                    continue;
                }
                let workload = Workload { name: name.clone(), ..drawn.clone() };
                if let Err(error) = one(bench, workload, *placement, *shards) {
                    bench.run.leave_out(name, format!("{error:#}"));
                }
            }
        }
    }
    Ok(())
}

/// Makes a group of zeros, which the device clears by itself, fills it by the kernel, and measures steps.
fn one(bench: &mut Bench<'_>, mut workload: Workload, placement: Placement, shards: u32) -> anyhow::Result<()> {
    let config = &mut workload.config;
    (config.placement, config.init) = (placement, hotrow::Init::Constant(0.0));
    let layout = cut(config, shards, bench.binding())?;
    if bench.machine.is_some() {
        bench.measure(&workload)?;
        return Ok(());
    }
    let lab = bench.lab()?;
    let software = lab.timed.caps().device_type == DeviceType::Cpu;
    host_can_hold(placement, &layout, software, memory_left().unwrap_or(u64::MAX))?;
    lab.timeline.listen(false);
    let (group, made) = timed(|| -> anyhow::Result<Group> {
        let group = Group::new(&lab.timed, config.clone())?;
        // The device clears the records in this submission's time.
        lab.submit(lab.encoder())?;
        Ok(group)
    });
    let mut group = group?;
    let filled = fill::fill(lab, &group, bench.seed)?;
    let records = layout.table_bytes() as f64;
    let (name, setting) = (workload.name.clone(), workload.setting());
    let mut at = bench.run.at(&name, &setting);
    at.push("shards", f64::from(shards), Unit::Count);
    at.push("record bytes", records, Unit::Bytes);
    at.push("made", made, Unit::Seconds);
    at.push("filled", filled, Unit::Seconds);
    at.push("fill rate", records / filled, Unit::BytesPerSecond);
    if let Some(fault) = fill::check(&mut group)? {
        bench.run.wrong.push(format!("{name}, filled by the kernel: {fault}"));
    }
    let records = bytes(records);
    workload.shape = format!("{}; {records} of records in {shards} shards, filled by a kernel", workload.shape);
    bench.measure_group(&workload, &mut group)?;
    drop(group);
    // The driver frees the records when the device is next polled.
    lab.submit(lab.encoder())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{bench::DIM, cases::TABLES};
    use super::*;
    use hotrow::Precision;

    /// The layout of the whole shape under bindings of `binding` bytes.
    fn whole(size: Size, shards: u32, binding: u64) -> anyhow::Result<Layout> {
        let mut config = GroupConfig::new(&[rows(size)[0]; TABLES as usize], DIM).with_precision(Precision::Int8);
        config.optimizer = Optimizer::row_wise_adagrad(LR);
        cut(&mut config, shards, binding)
    }

    #[test]
    fn the_whole_shape_has_18_shards() {
        // The binding of a card is 2 GiB - 4 B, in whole 256 bytes; of a software driver 128 MiB.
        let layout = whole(Size::Full, SHARDS, (2 << 30) - 256).unwrap();
        assert_eq!((layout.total_rows, layout.stride(), layout.shards), (268_000_000, 140, 18));
        assert_eq!(
            (layout.table_bytes(), layout.rows_per_shard),
            (37_520_000_000, 15_339_167),
            "shards by the binding"
        );
        assert_eq!(layout.shard_rows(17), 268_000_000 - 17 * 15_339_167);
        for binding in [(4 << 30) - 256, u64::MAX] {
            assert_eq!(whole(Size::Full, SHARDS, binding).unwrap().rows_per_shard, 268_000_000u32.div_ceil(18));
        }
        assert_eq!(whole(Size::Small, SHARDS, 128 << 20).unwrap().shards, 18);
        let refused = whole(Size::Full, SHARDS, 128 << 20).unwrap_err().to_string();
        assert!(refused.contains("wanted 37.52 GB of records in 18 shards, found bindings of 134.22 MB"), "{refused}");
    }

    #[test]
    fn memory_that_the_host_lacks_is_refused() {
        let layout = whole(Size::Full, SHARDS, (2 << 30) - 256).unwrap();
        for (placement, software, found, refused) in [
            (Placement::Mapped, false, 38_000_000_000, true),
            (Placement::Mapped, false, 50_000_000_000, false),
            (Placement::Device, true, 38_000_000_000, true),
            (Placement::Device, false, 0, false),
        ] {
            let held = host_can_hold(placement, &layout, software, found);
            let said = held.as_ref().err().map(ToString::to_string).unwrap_or_default();
            assert_eq!(held.is_err(), refused, "{placement:?}, {found}: {said}");
            let names =
                ["wanted 37.52 GB of host memory", "found 38.00 GB left"].iter().all(|part| said.contains(part));
            assert_eq!(names, refused, "{said}");
        }
    }
}
