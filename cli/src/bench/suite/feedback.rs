//! Feedback of a frame whose pixels want tiles that are all in the cache, and the host's part of a frame that misses a thousand rows.

use anyhow::ensure;
use hotrow::{Feedback, Group, Optimizer, Placement, Precision, Reader, wgpu};

use super::bench::Bench;
use super::cases::LR;
use super::readers::{FLOATS, emb};
use super::screen::{Screen, Stage};
use super::shapes::{distinct, pool};
use crate::lab::timed;
use crate::report::{Setting, Unit};

/// Pixels along the edge of a tile. A tile is a row.
const TILE: u32 = 8;

/// Rows that a frame misses.
const MISSES: u32 = 1000;

/// Wants a pixel's row, and tells whether it can be read.
const WANT: &str = "
fn row_sum(row: u32) -> f32 {
    emb_want(row);
    return select(0.0, 1.0, emb_contains(row));
}
";

pub(super) fn run(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let screen = Screen::new(bench)?;
    for placement in [Placement::Device, Placement::Staged] {
        frames(bench, &screen, placement)?;
    }
    misses(bench, &screen)
}

/// A group of INT8 tiles, with a reader whose list has room for `listed` rows.
fn group(bench: &Bench<'_>, rows: u32, slots: u32, placement: Placement) -> anyhow::Result<Group> {
    let lab = bench.lab()?;
    let mut config = bench.config(&[rows], Precision::Int8, Optimizer::sgd(LR), slots);
    (config.dim, config.placement) = (FLOATS, placement);
    lab.timeline.listen(false);
    Ok(Group::new(&lab.timed, config)?)
}

fn reader(listed: u32) -> Reader<'static> {
    Reader { feedback: Some(Feedback { rows: listed, ..Feedback::default() }), ..emb() }
}

/// Frames that draw the same: every pixel wants its tile, and every tile is in the cache.
fn frames(bench: &mut Bench<'_>, screen: &Screen<'_>, placement: Placement) -> anyhow::Result<()> {
    let lab = bench.lab()?;
    let (across, down) = (screen.width / TILE, screen.height.div_ceil(TILE));
    let (tiles, slots) = (across * down, bench.size.of(1024, 1 << 16));
    let mut group = group(bench, bench.size.of(40_000, 1 << 20), slots, placement)?;
    let rows = distinct(&pool(slots, slots / 32), tiles as usize);
    let tile = |pixel: u32| (pixel / screen.width / TILE) * across + pixel % screen.width / TILE;
    let asked: Vec<u32> = (0..screen.pixels()).map(|pixel| rows[tile(pixel) as usize]).collect();
    let asked = screen.asks(&lab.storage(&asked));
    let mut reader = group.reader(reader(tiles + tiles / 4))?;
    let want = screen.reading(&mut reader, WANT)?;
    let pumped = |group: &mut Group| -> anyhow::Result<()> {
        // A staged table must move the last frame's rows in before the next list is taken.
        while placement == Placement::Staged && !group.pump()? {
            lab.submit(lab.encoder())?;
        }
        Ok(())
    };
    // The first frame misses all tiles, and the second finds them.
    for _ in 0..2 {
        let mut encoder = lab.encoder();
        screen.draw(&mut encoder, &want, &asked, Stage::Compute);
        ensure!(
            group.record_feedback(&mut encoder, &reader)?,
            "wanted feedback to be recorded, found a list that waits"
        );
        lab.submit(encoder)?;
        pumped(&mut group)?;
    }
    let mut waits = false;
    let measured = lab.measure(&["want", "feedback"], |phase, encoder| {
        if phase == 0 {
            if std::mem::take(&mut waits) {
                pumped(&mut group)?;
            }
            screen.draw(encoder, &want, &asked, Stage::Compute);
            return Ok(());
        }
        waits = group.record_feedback(encoder, &reader)?;
        ensure!(waits, "wanted feedback to be recorded, found a list that waits");
        Ok(())
    })?;
    pumped(&mut group)?;
    let counted = group.counters()?[0];
    let frames = measured.rounds + 2;
    let (wanted, hits) = (u64::from(tiles) * frames, u64::from(tiles) * (frames - 1));
    let here = screen.found(&want, &asked, Stage::Compute)?.iter().all(|&here| here == 1.0);
    if (counted.accesses, counted.hits) != (wanted, hits) || !here {
        bench.run.wrong.push(format!(
            "feedback, {placement}: wanted {wanted} rows asked for, {hits} of them in the cache, and in the end all, found {} and {}, {here}",
            counted.accesses, counted.hits
        ));
    }
    bench.run.describe(
        "feedback",
        format!(
            "{} x {} pixels want {tiles} tiles, all in the cache; pump moves {MISSES} missing rows of a staged table in RAM",
            screen.width, screen.height
        ),
    );
    let mut at = bench.run.at("feedback", &Setting::default().with("placement", placement.to_string()));
    at.timed("want", measured.phase("want"));
    at.timed("feedback", measured.phase("feedback"));
    at.push("rows wanted", f64::from(tiles), Unit::Count);
    Ok(())
}

/// Frames that each want rows that were never asked for: the host's time in `pump` once the list is there.
fn misses(bench: &mut Bench<'_>, screen: &Screen<'_>) -> anyhow::Result<()> {
    let lab = bench.lab()?;
    let rows = bench.size.of(40_000, 1 << 20);
    let mut group = group(bench, rows, bench.size.of(8192, 1 << 16), Placement::Staged)?;
    let mut reader = group.reader(reader(MISSES))?;
    let want = screen.reading(&mut reader, WANT)?;
    let listed = lab.room(u64::from(MISSES) * 4, wgpu::BufferUsages::empty());
    let asked = screen.asks(&listed);
    let all = distinct(&(0..rows).collect::<Vec<_>>(), rows as usize);
    let mut frames = all.chunks_exact(MISSES as usize);
    let mut moved = 0;
    let mut frame = || -> anyhow::Result<f64> {
        let Some(wanted) = frames.next() else {
            anyhow::bail!("wanted rows that were never asked for, found none left")
        };
        lab.timed.queue().write_buffer(&listed, 0, bytemuck::cast_slice(wanted));
        let mut encoder = lab.encoder();
        screen.dispatch(&mut encoder, &want, &asked, MISSES);
        ensure!(
            group.record_feedback(&mut encoder, &reader)?,
            "wanted feedback to be recorded, found a list that waits"
        );
        lab.submit(encoder)?;
        // The list is there. All calls until the rows are on their way count.
        let mut all = 0.0;
        loop {
            let (done, seconds) = timed(|| group.pump());
            all += seconds;
            if done? {
                break;
            }
            // The rest of a frame, in which a thread gathers.
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        lab.submit(lab.encoder())?;
        let now = group.traffic().map_or(0, |traffic| traffic.records_in);
        ensure!(now == moved + u64::from(MISSES), "wanted {MISSES} rows moved in, found {}", now - moved);
        moved = now;
        Ok(all)
    };
    // The first frames make the buffers.
    for _ in 0..2 {
        frame()?;
    }
    let [times] = lab.rounds.repeat(|| Ok([frame()?]))?;
    let mut at = bench.run.at("feedback", &Setting::default().with("placement", "staged"));
    at.timed("pump", times);
    at.push("rows missed", f64::from(MISSES), Unit::Count);
    Ok(())
}
