//! NVIDIA's shape whole: 268 million rows in 18 pieces, which the device clears, beside the suite's tables in 2 pieces and in 18.

use hotrow::internals::Pieces as _;
use hotrow::{Group, GroupConfig, Init, Placement, internals::Layout, wgpu::DeviceType};

use super::bench::Bench;
use super::workload::{Taken, Workload};
use hotrow_report::clock::{memory, timed};
use hotrow_report::records::Unit;
use hotrow_report::units::bytes;

/// Cuts the table into `pieces` pieces: as bindings of `binding` bytes cut it, or into equal ones if these make fewer.
fn cut(config: &mut GroupConfig, pieces: u32, binding: u64) -> anyhow::Result<Layout> {
    let layout = Layout::new(config, binding)?;
    if layout.pieces < pieces {
        config.set_piece_bytes(Some(u64::from(layout.total_rows.div_ceil(pieces)) * layout.stride()));
    }
    let layout = Layout::new(config, binding)?;
    anyhow::ensure!(
        layout.pieces == pieces,
        "wanted {} of records in {pieces} pieces, found bindings of {}, which make {}; take --size small",
        bytes(layout.table_bytes() as f64),
        bytes(binding as f64),
        layout.pieces
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

/// Makes a group of zeros, which the device clears by itself: to pack 37.5 GB on the host takes minutes, and the bytes that a step moves do
/// not depend on the values.
pub(super) fn measure(bench: &mut Bench<'_>, workload: &mut Workload, pieces: u32) -> anyhow::Result<Taken> {
    workload.config.init = Init::Constant(0.0);
    let (config, clock) = (&mut workload.config, bench.clock);
    let layout = cut(config, pieces, clock.binding())?;
    let software = clock.timed.caps().device_type == DeviceType::Cpu;
    host_can_hold(config.placement, &layout, software, memory(true).unwrap_or(u64::MAX))?;
    let (group, made) = timed(|| -> anyhow::Result<Group> {
        let group = Group::new(&clock.timed, config.clone())?;
        // The device clears the records in this submission's time.
        clock.submit(clock.encoder())?;
        Ok(group)
    });
    let mut group = group?;
    let records = layout.table_bytes() as f64;
    let mut at = bench.run.at(&workload.name, &workload.setting());
    at.push("record bytes", records, Unit::Bytes);
    at.push("made", made, Unit::Seconds);
    workload.shape += &format!("; {} of records in {pieces} pieces, of zeros", bytes(records));
    workload.run(clock, &mut group)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotrow::{Optimizer, Precision};

    #[test]
    fn the_whole_shape_has_18_pieces_and_needs_its_memory() {
        let whole = |rows: u32, binding: u64| {
            let mut config = GroupConfig::new(&[rows; 10], 128).with_precision(Precision::Int8);
            config.optimizer = Optimizer::row_wise_adagrad(1e-3);
            cut(&mut config, 18, binding)
        };
        // The binding of a card is 2 GiB - 4 B, in whole 256 bytes; of a software driver 128 MiB.
        let layout = whole(26_800_000, (2 << 30) - 256).unwrap();
        assert_eq!((layout.total_rows, layout.stride(), layout.pieces), (268_000_000, 140, 18));
        assert_eq!((layout.table_bytes(), layout.rows_per_piece), (37_520_000_000, 15_339_167));
        assert_eq!(whole(60_000, 128 << 20).unwrap().pieces, 18);
        let refused = whole(26_800_000, 128 << 20).unwrap_err().to_string();
        assert!(refused.contains("wanted 37.52 GB of records in 18 pieces, found bindings of 134.22 MB"), "{refused}");
        for (placement, software, found, refused) in [
            (Placement::Mapped, false, 38_000_000_000, true),
            (Placement::Mapped, false, 50_000_000_000, false),
            (Placement::Device, true, 38_000_000_000, true),
            (Placement::Device, false, 0, false),
        ] {
            let held = host_can_hold(placement, &layout, software, found);
            assert_eq!(held.is_err(), refused, "{placement:?}, {found}: {held:?}");
        }
    }
}
