//! A screen whose pixels each ask for one row in the caller's own shader: the times of readers, and of feedback.
//!
//! Readers: every pixel reads a whole row, by a reader of the table, by a reader of the cache, and by a shader that is made for nothing but
//! these bytes. All must find the same before one of them is timed. Feedback: every pixel wants a row.

use anyhow::{Context as _, ensure};
use hotrow::internals::Device as _;
use hotrow::{Feedback, Group, OptimizerKind, Placement, Precision, Reader, RowReader, internals, prelude::*, wgpu};

use super::bench::{Bench, LR};
use super::cases::in_turn;
use super::shapes::{distinct, pool, shuffled};
use crate::kernel::{Kernel, bind, layout};
use crate::lab::{Inputs, Lab, timed};
use crate::report::{Setting, Unit};

/// Floats of a row, and quads of four.
const FLOATS: u32 = 64;
const QUADS: u32 = FLOATS / 4;
/// Bytes of a row in FP32, as in a slot.
const SLOT: u64 = FLOATS as u64 * 4;
/// Bytes of the tags of a set, which a look-up reads.
const TAGS: f64 = 128.0;

/// Calls `row_sum` with the word of each invocation in `asked`. The caller's text declares `row_sum` and the bindings of group 1.
const FRAME: &str = "
@group(0) @binding(0) var<storage, read> asked: array<u32>;
@group(0) @binding(1) var<storage, read_write> told: array<f32>;
@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < arrayLength(&asked)) { told[id.x] = row_sum(asked[id.x]); }
}
";

/// The sum of a row's values, read by a reader. The other texts sum in the same order.
const READ: &str = "
fn row_sum(row: u32) -> f32 {
    let place = emb_find(row);
    var sum = vec4<f32>();
    for (var quad = 0u; quad < QUADSu; quad++) { sum += emb_at(place, quad); }
    return (sum.x + sum.y) + (sum.z + sum.w);
}
";

/// Without the reader: one known precision, one buffer, no look-up, and loads as wide as a record allows. FP32 comes first: it reads the same
/// bytes as the slots of a cache hold, whatever the precision of the table.
const RAW: [(Precision, &str); 2] = [
    (
        Precision::Fp32,
        "
@group(1) @binding(0) var<storage, read_write> raw: array<vec4<f32>>;
fn row_sum(place: u32) -> f32 {
    var sum = vec4<f32>();
    for (var quad = 0u; quad < QUADSu; quad++) { sum += raw[place * QUADSu + quad]; }
    return (sum.x + sum.y) + (sum.z + sum.w);
}
",
    ),
    (
        Precision::Int8,
        "
@group(1) @binding(0) var<storage, read_write> raw: array<vec2<u32>>;
fn row_sum(place: u32) -> f32 {
    let first = place * (QUADSu / 2u + 1u);
    let scale_bias = bitcast<vec2<f32>>(raw[first]);
    var sum = vec4<f32>();
    for (var i = 1u; i <= QUADSu / 2u; i++) {
        let eight = raw[first + i];
        sum += vec4<f32>(unpack4xU8(eight.x)) * scale_bias.x + scale_bias.y;
        sum += vec4<f32>(unpack4xU8(eight.y)) * scale_bias.x + scale_bias.y;
    }
    return (sum.x + sum.y) + (sum.z + sum.w);
}
",
    ),
];

/// Wants a pixel's row, and tells whether it can be read.
const WANT: &str = "
fn row_sum(row: u32) -> f32 {
    emb_want(row);
    return select(0.0, 1.0, emb_contains(row));
}
";

/// The ways that are compared, in the order of their phases.
const WAYS: [&str; 3] = ["raw", "flushed", "cached"];

/// Pixels along the edge of a tile, which is a row that they want.
const TILE: u32 = 8;
/// Rows that a frame of feedback misses.
const MISSES: u32 = 1000;

/// The screen: its size, and the answer of each pixel.
struct Screen<'l> {
    lab: &'l Lab,
    width: u32,
    pixels: u32,
    told: wgpu::Buffer,
    layout: wgpu::BindGroupLayout,
}

/// A shader with what it binds in group 1.
type Program = (Kernel, wgpu::BindGroup);

impl<'l> Screen<'l> {
    /// 1080p; at small size a 225th of it.
    fn new(bench: &Bench<'l>) -> Self {
        let (width, height) = bench.size.of((128, 72), (1920, 1080));
        let lab = bench.lab;
        let told = lab.room(u64::from(width * height) * 4, wgpu::BufferUsages::empty());
        Self { lab, width, pixels: width * height, told, layout: layout(lab.timed.device(), &[true, false]) }
    }

    /// Binds a row for each pixel.
    fn asks(&self, rows: &wgpu::Buffer) -> wgpu::BindGroup {
        bind(self.lab.timed.device(), &self.layout, &[rows, &self.told])
    }

    fn reading(&self, reader: &mut RowReader, row_sum: &str) -> anyhow::Result<Program> {
        let bound = reader.bind_group()?.clone();
        Ok((self.kernel(&(reader.wgsl().to_owned() + row_sum), reader.layout()), bound))
    }

    fn kernel(&self, row_sum: &str, group: &wgpu::BindGroupLayout) -> Kernel {
        let text = row_sum.replace("QUADS", &QUADS.to_string()) + FRAME;
        Kernel::new(self.lab.timed.device(), ("screen", &text), &[&self.layout, group])
    }

    /// Records `n` pixels of a frame.
    fn draw(&self, encoder: &mut wgpu::CommandEncoder, program: &Program, asked: &wgpu::BindGroup, n: u32) {
        program.0.record(encoder, &[asked, &program.1], n.div_ceil(256));
    }

    /// Draws a frame, and returns what each pixel found.
    fn found(&self, program: &Program, asked: &wgpu::BindGroup) -> anyhow::Result<Vec<f32>> {
        let mut encoder = self.lab.encoder();
        self.draw(&mut encoder, program, asked, self.pixels);
        let words = self.lab.timed.download(encoder, &[(&self.told, u64::from(self.pixels) * 4)])?;
        Ok(words[0].iter().map(|&word| f32::from_bits(word)).collect())
    }
}

fn group(
    bench: &Bench<'_>,
    precision: Precision,
    placement: Placement,
    rows: u32,
    slots: u32,
) -> anyhow::Result<Group> {
    let config = bench.config(&[rows], precision, OptimizerKind::Sgd, slots).with_dim(FLOATS).with_placement(placement);
    bench.lab.timeline.listen(false);
    Ok(Group::new(&bench.lab.timed, config)?)
}

fn emb() -> Reader<'static> {
    Reader { prefix: "emb", group: 1, ..Reader::default() }
}

pub(super) fn readers(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let screen = Screen::new(bench);
    let (lab, pixels) = (bench.lab, screen.pixels);
    // Sets do not fill evenly, so a cache for all rows is larger than these. If a binding is too small, pixels share rows.
    let wanted = (pixels + pixels / 4).next_multiple_of(32);
    let slots = u64::from(wanted).min(lab.binding() / SLOT) as u32 & !31;
    let resident = pool(slots, slots / 32);
    // Neighbours far apart; each row once if there are enough.
    let n = resident.len() as u64;
    let mut hits: Vec<u32> = (0..pixels).map(|pixel| resident[shuffled(u64::from(pixel) % n, n)]).collect();
    let asked = screen.asks(&lab.storage(&hits));
    hits[pixels as usize / 2] = hits[0];
    let others = screen.asks(&lab.storage(&hits));
    bench.run.describe(
        "readers",
        format!("{pixels} pixels, each reads a whole row x {FLOATS} of its own, scattered, and writes its sum; all rows are in a cache of {slots}"),
    );
    let mut slot_seconds = None;
    for (precision, raw) in RAW {
        let mut group = group(bench, precision, Placement::Device, slots, slots)?;
        for batch in in_turn(&resident, bench.size.of(1 << 12, 1 << 18), 1) {
            let inputs = Inputs::new(lab, &[(batch.indices(), batch.offsets())], FLOATS, LR);
            let mut encoder = lab.encoder();
            group.record_forward(&mut encoder, &inputs.batch(0), inputs.outputs.slice(..))?;
            group.abandon_backward();
            lab.submit(encoder)?;
        }
        group.check()?;
        let (mut cached, mut flushed) = (group.reader(emb())?, group.reader(Reader { flushed: true, ..emb() })?);
        // The slots fit one binding, and a record is no larger than a slot.
        let (device, plain) = (lab.timed.device(), layout(lab.timed.device(), &[false]));
        let raw = (screen.kernel(raw, &plain), bind(device, &plain, &[&internals::records(&group)[0]]));
        let programs = [raw, screen.reading(&mut flushed, READ)?, screen.reading(&mut cached, READ)?];
        // All find the same, and the host finds it too.
        let sums = screen.found(&programs[0], &asked)?;
        let rows = group.read_rows(&hits[..64])?;
        let first: Vec<f32> = rows.chunks_exact(FLOATS as usize).map(|row| row.iter().sum()).collect();
        let mut checks = vec![("the host", same(&first, &sums[..64]))];
        for (way, program) in WAYS.iter().zip(&programs) {
            checks.push((way, same(&sums, &screen.found(program, &asked)?)));
        }
        // The companion: one pixel with another row is noticed.
        let noticed = same(&sums, &screen.found(&programs[1], &others)?).is_err();
        checks.push(("another row in one pixel", noticed.then_some(()).ok_or_else(|| "it was not noticed".to_owned())));
        if let Some((what, Err(why))) = checks.into_iter().find(|(_, check)| check.is_err()) {
            bench.run.wrong.push(format!("readers, {precision}, {what}: {why}"));
            continue;
        }
        let measured = lab.measure(&WAYS, |way, encoder| {
            screen.draw(encoder, &programs[way], &asked, pixels);
            Ok(())
        })?;
        let times = WAYS.map(|way| measured.phase(way).unwrap_or_default());
        let of_slots = *slot_seconds.get_or_insert(times[0].median);
        let setting = Setting::default().with("precision", precision.to_string().to_uppercase());
        let setting = if n < pixels.into() { setting.with("scaled", "pixels share rows") } else { setting };
        let mut at = bench.run.at("readers", &setting);
        WAYS.into_iter().zip(times).for_each(|(way, times)| at.timed(way, times));
        at.push("flushed against raw", times[1].median / times[0].median, Unit::Times);
        let with_tags = of_slots * (SLOT as f64 + TAGS) / SLOT as f64;
        at.push("cached against raw with tags", times[2].median / with_tags, Unit::Times);
        // The driver frees the group when the device is next polled.
        drop((group, programs));
        lab.submit(lab.encoder())?;
    }
    Ok(())
}

/// Refuses sums that are not those of the same rows. Values lie within 0.1, so roundings of 64 of them stay far below the bound, and other rows
/// far above it.
fn same(wanted: &[f32], found: &[f32]) -> Result<(), String> {
    let near = |(wanted, found): (&f32, &f32)| (wanted - found).abs() <= 1e-5;
    let wrong = wanted.iter().zip(found).filter(|pair| !near(*pair)).count();
    if wanted.len() != found.len() || wrong > 0 {
        return Err(format!(
            "wanted {} sums of the same rows, found {}, {wrong} of them others",
            wanted.len(),
            found.len()
        ));
    }
    if wanted.iter().all(|sum| sum.abs() <= 0.01) {
        return Err("wanted sums of random rows, found zeros".to_owned());
    }
    Ok(())
}

pub(super) fn feedback(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let screen = Screen::new(bench);
    let tiles = screen.pixels / TILE / TILE;
    let pixels = screen.pixels;
    bench.run.describe(
        "feedback",
        format!("{pixels} pixels want {tiles} tiles, all in the cache; pump moves {MISSES} missing rows of a staged table in RAM"),
    );
    frames(bench, &screen, tiles)?;
    misses(bench, &screen)
}

/// A reader whose list has room for `rows` rows.
fn wanting(rows: u32) -> Reader<'static> {
    Reader { feedback: Some(Feedback { rows, ..Feedback::default() }), ..emb() }
}

/// Records the feedback of a frame.
fn record(group: &mut Group, reader: &RowReader, encoder: &mut wgpu::CommandEncoder) -> anyhow::Result<()> {
    let recorded = group.record_feedback(encoder, reader)?;
    ensure!(recorded, "wanted feedback to be recorded, found a list that waits");
    Ok(())
}

/// Frames that draw the same: every pixel wants its tile, and every tile is in the cache.
fn frames(bench: &mut Bench<'_>, screen: &Screen<'_>, tiles: u32) -> anyhow::Result<()> {
    let (lab, slots) = (bench.lab, bench.size.of(1024, 1 << 16));
    let mut group = group(bench, Precision::Int8, Placement::Device, bench.size.of(40_000, 1 << 20), slots)?;
    let rows = distinct(&pool(slots, slots / 32), tiles as usize);
    let tile = |pixel: u32| (pixel / screen.width / TILE) * (screen.width / TILE) + pixel % screen.width / TILE;
    let asked: Vec<u32> = (0..screen.pixels).map(|pixel| rows[tile(pixel) as usize]).collect();
    let asked = screen.asks(&lab.storage(&asked));
    let mut reader = group.reader(wanting(tiles + tiles / 4))?;
    let want = screen.reading(&mut reader, WANT)?;
    let mut phase = |phase: usize, encoder: &mut wgpu::CommandEncoder| -> anyhow::Result<()> {
        if phase == 1 {
            return record(&mut group, &reader, encoder);
        }
        screen.draw(encoder, &want, &asked, screen.pixels);
        Ok(())
    };
    // The first frame misses all tiles, and the second finds them.
    for _ in 0..2 {
        let mut encoder = lab.encoder();
        (0..2).try_for_each(|part| phase(part, &mut encoder))?;
        lab.submit(encoder)?;
    }
    let measured = lab.measure(&["want", "feedback"], phase)?;
    let counted = group.counters()?[0];
    let frames = measured.rounds + 2;
    let (wanted, hits) = (u64::from(tiles) * frames, u64::from(tiles) * (frames - 1));
    let here = screen.found(&want, &asked)?.iter().all(|&here| here == 1.0);
    if (counted.accesses, counted.hits) != (wanted, hits) || !here {
        bench.run.wrong.push(format!(
            "feedback: wanted {wanted} rows asked for, {hits} of them in the cache, and in the end all, found {} and {}, {here}",
            counted.accesses, counted.hits
        ));
    }
    let mut at = bench.run.at("feedback", &Setting::default().with("placement", "device"));
    at.timed("want", measured.phase("want"));
    at.timed("feedback", measured.phase("feedback"));
    at.push("rows wanted", f64::from(tiles), Unit::Count);
    Ok(())
}

/// Frames that each want rows that were never asked for: the host's time in `pump` once the list is there.
fn misses(bench: &mut Bench<'_>, screen: &Screen<'_>) -> anyhow::Result<()> {
    let (lab, rows) = (bench.lab, bench.size.of(40_000, 1 << 20));
    let mut group = group(bench, Precision::Int8, Placement::Staged, rows, bench.size.of(8192, 1 << 16))?;
    let mut reader = group.reader(wanting(MISSES))?;
    let want = screen.reading(&mut reader, WANT)?;
    let listed = lab.room(u64::from(MISSES) * 4, wgpu::BufferUsages::empty());
    let asked = screen.asks(&listed);
    let all = distinct(&(0..rows).collect::<Vec<_>>(), rows as usize);
    let mut frames = all.chunks_exact(MISSES as usize);
    let mut moved = 0;
    let mut frame = || -> anyhow::Result<f64> {
        let wanted = frames.next().context("wanted rows that were never asked for, found none left")?;
        lab.timed.queue().write_buffer(&listed, 0, bytemuck::cast_slice(wanted));
        let mut encoder = lab.encoder();
        screen.draw(&mut encoder, &want, &asked, MISSES);
        record(&mut group, &reader, &mut encoder)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_sums_are_rejected() {
        let sums: Vec<f32> = (0..100).map(|i| (i as f32 * 0.7).sin()).collect();
        assert_eq!(same(&sums, &sums), Ok(()));
        for other in [sums[8], f32::NAN] {
            let mut others = sums.clone();
            others[7] = other;
            assert!(same(&sums, &others).unwrap_err().contains("found 100, 1 of them others"));
        }
        assert!(same(&sums, &sums[1..]).is_err() && same(&[0.0; 9], &[0.0; 9]).is_err());
    }
}
