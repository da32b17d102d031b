//! Random rows of tables, read, and read and written back, against the bytes of a row and the size of the table: how fast the device's memory is for
//! what a table asks of it. Each setting is checked after it was timed, by the same kernels' sums and by every word of the table.

use hotrow::internals::Device as _;
use hotrow::internals::hash::fmix32;
use rayon::iter::{IntoParallelIterator as _, ParallelIterator as _};
use std::collections::BTreeSet;

use super::bench::Bench;
use hotrow_report::plot::{Chart, Style};
use hotrow_report::records::{Measurement, Select, Setting, Unit};
use hotrow_report::rows::{Job, LENGTHS, Rows};
use hotrow_report::run::Run;

/// MiB of tables, powers of two.
const SMALL: &[u32] = &[1, 16, 64];
const FULL: &[u32] = &[16, 64, 256, 1 << 10, 2 << 10, 4 << 10];

pub(super) fn run(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let least = bench.size.of(16, 1024);
    bench.run.describe("random", format!("each row once a pass, at least {least} MiB of rows a round"));
    let tables = bench.size.of(SMALL, FULL).iter().map(|&mib| (format!("random rows of {mib} MiB"), mib));
    bench.each(tables, |bench, mib| table(bench, mib, (least / mib).max(1)))
}

/// Measures rows of all lengths in one table.
fn table(bench: &mut Bench<'_>, mib: u32, passes: u32) -> anyhow::Result<()> {
    let (clock, bytes) = (bench.clock, u64::from(mib) << 20);
    bench.check_bound(bytes)?;
    let rows = clock.timed.guarded(|| Ok(Rows::new(clock.timed.device(), bytes)))?;
    let words = (bytes / 4) as u32;
    let filled = (0..words).into_par_iter().map(fmix32).reduce(|| 0, u32::wrapping_add);
    let results = |kernels: &[&_], job: Job| -> anyhow::Result<Vec<u32>> {
        let mut encoder = clock.encoder();
        kernels.iter().for_each(|does| rows.encode(&mut encoder, does, &rows.bind(does, job)));
        Ok(clock.timed.download(encoder, &[(&rows.results, 8)])?.concat())
    };
    for length in LENGTHS.into_iter().step_by(bench.size.of(2, 1)) {
        anyhow::ensure!(bench.deadline.over().is_none(), "out of time at rows of {length} B (--seconds)");
        let mut job = rows.anew(clock.timed.queue(), length, passes);
        let reads = rows.bind(&rows.read, job);
        // A pass of updates ends before the next one begins, so that no row is in both.
        let update = |first| rows.bind(&rows.update, Job { passes: 1, first, ..job });
        let updates: Vec<_> = (0..passes).map(update).collect();
        let of_all = |added: u32| filled.wrapping_add(added.wrapping_mul(words)).wrapping_mul(passes);
        let mut sum = 0_u32;
        let measured = clock.repeated(&["read", "update"], |phase, encoder| {
            if phase == 0 {
                rows.encode(encoder, &rows.read, &reads);
                sum = sum.wrapping_add(of_all(job.added));
            } else {
                updates.iter().for_each(|bound| rows.encode(encoder, &rows.update, bound));
                job.added += passes;
            }
            Ok(())
        })?;
        let found = results(&[&rows.count], job)?;
        // The companion: one other word is noticed, by the sum and by the count.
        clock.timed.queue().write_buffer(&rows.words, bytes / 2, &0x5EED_u32.to_le_bytes());
        let spoilt = results(&[&rows.read, &rows.count], job)?;
        let noticed = spoilt[0] != sum.wrapping_add(of_all(job.added)) && spoilt[1] == 1;
        let mut encoder = clock.encoder();
        rows.encode(&mut encoder, &rows.order, &rows.bind(&rows.order, job));
        let order = clock.timed.download(encoder, &[(&rows.words, 16 << job.row_bits.min(16))])?.concat();
        if found != [sum, 0] || !noticed || !is_scattered(&order, 1 << job.row_bits) {
            let wanted = format!("wanted random order, a sum of {sum}, no wrong word and then one");
            let found = format!("found {:?}, {found:?} and {spoilt:?}", &order[..16]);
            bench.run.wrong.push(format!("random rows of {length} B in {mib} MiB: {wanted}, {found}"));
            continue;
        }
        let mut at = bench.run.at("random", &Setting::default().with("row bytes", length).with("table MiB", mib));
        for (phase, times) in [("read", 1.0), ("update", 2.0)] {
            let taken = measured.phase(phase).unwrap_or_default();
            let moved = times * (bytes * u64::from(passes)) as f64;
            at.rated(&format!("random {phase}"), taken, moved);
            at.push(&format!("{phase} of copy"), bench.copy.map(|copy| moved / taken.median / copy), Unit::Share);
        }
    }
    Ok(())
}

/// Whether rows, each in a lane of its own, come in random order: then most distances of neighbours differ. That each comes once is shown by the words that were updated.
fn is_scattered(order: &[u32], rows: u32) -> bool {
    let far: BTreeSet<u32> = order.windows(5).map(|lanes| lanes[4].wrapping_sub(lanes[0]) % rows).collect();
    far.len() >= order.len() / 16
}

/// Bandwidth against the bytes of a row, a line for each table, and the copy.
pub(super) fn chart(run: &Run, copy: Option<f64>) -> Chart {
    let mut chart = Chart::new("Bytes of a row", "Random rows");
    chart.title = format!("Random rows: {}", run.title());
    let mib = |record: &Measurement| record.setting.number("table MiB").unwrap_or(1.0);
    let line = |record: &Measurement| format!("{} MiB, {}", mib(record), record.what.trim_start_matches("random "));
    let x = |record: &Measurement| Some((record.setting.number("row bytes")? / f64::from(LENGTHS[0])).log2());
    let style = |record: &Measurement| Style {
        colour: FULL.iter().position(|&one| f64::from(one) == mib(record)).unwrap_or(6),
        dashed: record.what == "random update",
        markers: true,
    };
    let shown = Select { what: "random read|random update", shape: "random", setting: "" };
    chart.lines(run.select(shown), line, x, style);
    (chart.x_names, chart.log_y) = (LENGTHS.map(|length| length.to_string()).to_vec(), true);
    if let Some(copy) = copy.filter(|_| !chart.series.is_empty()) {
        let points = [0.0, 6.0].map(|x| (x, copy * Unit::BytesPerSecond.scale().0));
        chart.line("copy", points, Style { colour: 7, dashed: true, markers: false });
    }
    chart
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_in_turn_are_not_scattered() {
        let of = |row: fn(u32) -> u32| (0..256).flat_map(|turn| [row(turn) % 256; 4]).collect::<Vec<_>>();
        assert!(is_scattered(&of(fmix32), 256) && !is_scattered(&of(|turn| 77 * turn), 256));
    }
}
