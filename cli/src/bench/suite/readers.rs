//! Readers: each pixel of a screen reads a whole row, by a reader of the table, by a reader of the cache, and by a shader that is made for
//! nothing but these bytes. All must find the same before one of them is timed.

use anyhow::{Context as _, ensure};
use hotrow::internals::Device as _;
use hotrow::{Batch, Group, Optimizer, Precision, Reader, RowReader, hash::fmix32, internals, wgpu};

use super::bench::Bench;
use super::cases::{LR, fill};
use super::screen::{Asked, Program, Screen, Stage, bind, layout};
use super::shapes::{pool, shuffled};
use crate::lab::{Inputs, Lab};
use crate::report::units::Times;
use crate::report::{Setting, Unit};

/// Floats of a row, and Quads of four.
pub(super) const FLOATS: u32 = 64;
const QUADS: u32 = FLOATS / 4;

/// Bytes of a row in FP32, as in a slot.
const SLOT: u64 = FLOATS as u64 * 4;

/// Bytes of the tags of a set, which a look-up reads.
const TAGS: f64 = 128.0;

/// The sum of a row's values, read by a reader. All other texts sum in the same order.
const READ: &str = "
fn row_sum(row: u32) -> f32 {
    let place = emb_find(row);
    var sum = vec4<f32>();
    for (var quad = 0u; quad < QUADSu; quad++) { sum += emb_at(place, quad); }
    return (sum.x + sum.y) + (sum.z + sum.w);
}
";

/// Without the reader: one known precision, one buffer, no look-up, and loads as wide as a record allows.
const RAW: [(Precision, &str); 3] = [
    (
        Precision::Fp32,
        "
@group(1) @binding(0) var<storage, read> raw: array<vec4<f32>>;
fn row_sum(place: u32) -> f32 {
    var sum = vec4<f32>();
    for (var quad = 0u; quad < QUADSu; quad++) { sum += raw[place * QUADSu + quad]; }
    return (sum.x + sum.y) + (sum.z + sum.w);
}
",
    ),
    (
        Precision::Fp16,
        "
@group(1) @binding(0) var<storage, read> raw: array<vec4<u32>>;
fn row_sum(place: u32) -> f32 {
    var sum = vec4<f32>();
    for (var i = 0u; i < QUADSu / 2u; i++) {
        let eight = raw[place * (QUADSu / 2u) + i];
        sum += vec4<f32>(unpack2x16float(eight.x), unpack2x16float(eight.y));
        sum += vec4<f32>(unpack2x16float(eight.z), unpack2x16float(eight.w));
    }
    return (sum.x + sum.y) + (sum.z + sum.w);
}
",
    ),
    (
        Precision::Int8,
        "
@group(1) @binding(0) var<storage, read> raw: array<vec2<u32>>;
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

/// Copies every asked row into the place that its slot has in a buffer of the cache's size, and tells the slot.
const KEEP: &str = "
@group(0) @binding(0) var<storage, read> asked: array<u32>;
@group(0) @binding(1) var<storage, read_write> slots: array<u32>;
@group(0) @binding(2) var<storage, read_write> kept: array<vec4<f32>>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= arrayLength(&asked)) { return; }
    let place = emb_find(asked[id.x]);
    slots[id.x] = place.y;
    if (place.y == 0xffffffffu) { return; }
    for (var quad = 0u; quad < QUADSu; quad++) { kept[place.y * QUADSu + quad] = emb_at(place, quad); }
}
";

/// The ways that are compared, in the order of their phases.
const WAYS: [&str; 4] = ["raw, record", "flushed", "raw, slot", "cached"];

/// Shares of pixels whose row is in the cache, in percent, below 100.
const RATES: [u32; 3] = [0, 50, 90];

pub(super) fn text(text: &str) -> String {
    text.replace("QUADS", &QUADS.to_string())
}

pub(super) fn emb() -> Reader<'static> {
    Reader { prefix: "emb", group: 1, ..Reader::default() }
}

pub(super) fn run(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let screen = Screen::new(bench)?;
    for (precision, raw) in RAW {
        if let Some(reason) = bench.deadline.over() {
            bench.run.leave_out(format!("readers, {precision}"), reason);
            continue;
        }
        match one(bench, &screen, precision, raw) {
            Err(error) if error.is::<Other>() => bench.run.wrong.push(format!("readers, {error:#}")),
            done => done?,
        }
        // The driver frees the group when the device is next polled.
        bench.lab()?.submit(bench.lab()?.encoder())?;
    }
    Ok(())
}

/// Measures all ways to read rows of a precision.
fn one(bench: &mut Bench<'_>, screen: &Screen<'_>, precision: Precision, raw: &str) -> anyhow::Result<()> {
    let lab = bench.lab()?;
    let pixels = screen.pixels();
    // Sets do not fill evenly, so a cache for all rows is larger than these. If a binding is too small, pixels share rows.
    let wanted = (pixels + pixels / 4).next_multiple_of(32);
    let slots = u64::from(wanted).min(lab.binding() / SLOT) as u32 & !31;
    // A curve over hit rates takes as many rows that are not in the cache.
    let curve = precision == Precision::Int8;
    let rows = if curve { 2 * slots } else { slots };
    let mut config = bench.config(&[rows], precision, Optimizer::sgd(LR), slots);
    config.dim = FLOATS;
    lab.timeline.listen(false);
    let mut group = Group::new(&lab.timed, config)?;
    let resident = pool(slots, slots / 32);
    warm(lab, &mut group, &resident, bench.size.of(1 << 12, 1 << 18))?;
    let hits: Vec<u32> = (0..pixels).map(|pixel| at_random(&resident, pixel)).collect();
    let scaled = resident.len() < pixels as usize;
    let name = precision.to_string().to_uppercase();
    let setting = Setting::default().with("precision", name.as_str());
    let setting = if scaled { setting.with("scaled", "pixels share rows") } else { setting };
    bench.run.describe(
        "readers",
        format!(
            "{} x {} pixels, each reads a whole row x {FLOATS} of its own, scattered, and writes its sum; all rows are in a cache of {slots} rows",
            screen.width, screen.height
        ),
    );

    let (mut cached, mut flushed) = (group.reader(emb())?, group.reader(Reader { flushed: true, ..emb() })?);
    let (slots_of, kept) = keep(lab, &mut cached, &hits, slots)?;
    let [record] = internals::records(&group) else { anyhow::bail!("wanted the table in one binding, found several") };
    let asked = lab.storage(&hits);
    let [rows_asked, slots_asked] = [&asked, &slots_of].map(|asked| screen.asks(asked));
    let programs: [(Program, &Asked); 4] = [
        (screen.raw(record, &text(raw)), &rows_asked),
        (screen.reading(&mut flushed, &text(READ))?, &rows_asked),
        (screen.raw(&kept, &text(RAW[0].1)), &slots_asked),
        (screen.reading(&mut cached, &text(READ))?, &rows_asked),
    ];

    // All find the same, and the host finds it too.
    let mut others = hits.clone();
    others[pixels as usize / 2] = hits[0];
    let others = screen.asks(&lab.storage(&others));
    let found = screen.found(&programs[0].0, &rows_asked, Stage::Compute)?;
    let first: Vec<f32> =
        group.read_rows(&hits[..64])?.chunks_exact(FLOATS as usize).map(|row| row.iter().sum()).collect();
    same(&first, &found[..64]).with_context(|| format!("{precision}, raw read against the host"))?;
    for stage in Stage::ALL {
        for (way, (program, asked)) in WAYS.iter().zip(&programs) {
            let what = format!("{precision}, {way}, in a {} shader", stage.name());
            same(&found, &screen.found(program, asked, stage)?).context(what)?;
        }
        // The companion: one pixel with another row is noticed.
        let other = screen.found(&programs[1].0, &others, stage)?;
        if same(&found, &other).is_ok() {
            let blind = format!("{precision}: wanted another row in one pixel to be noticed, found it was not");
            return Err(Other(blind).into());
        }
    }
    let frozen = frozen(bench, screen, &mut group, &asked, &found);
    if let Err(error) = &frozen {
        if error.is::<Other>() {
            return frozen.map(drop);
        }
        bench.run.leave_out(format!("readers, {precision}, against a frozen forward"), format!("{error:#}"));
    }

    for stage in Stage::ALL {
        let times = measure(lab, &WAYS, |way, encoder| {
            let (program, asked) = &programs[way];
            screen.draw(encoder, program, asked, stage);
            Ok(())
        })?;
        let seconds = |way: usize| times[way].median;
        let mut at = bench.run.at("readers", &setting.clone().with("stage", stage.name()));
        WAYS.into_iter().zip(&times).for_each(|(way, &times)| at.timed(way, times));
        at.push("flushed against raw", seconds(1) / seconds(0), Unit::Times);
        let with_tags = seconds(2) * (SLOT as f64 + TAGS) / SLOT as f64;
        at.push("cached against raw with tags", seconds(3) / with_tags, Unit::Times);
        if let Ok(times) = &frozen {
            at.timed("frozen forward", *times);
            at.push("cached against frozen forward", seconds(3) / times.median, Unit::Times);
        }
    }
    if curve {
        by_hit_rate(bench, screen, &programs[3].0, (&hits, slots), &setting)?;
    }
    Ok(())
}

/// The times of each way. A card stamps all ways in one submission. A software driver, once it has drawn anything, stamps a dispatch before it has
/// run, so there each way is timed by the host's clock.
fn measure(
    lab: &Lab,
    ways: &[&'static str],
    mut record: impl FnMut(usize, &mut wgpu::CommandEncoder) -> anyhow::Result<()>,
) -> anyhow::Result<Vec<Times>> {
    if lab.timed.caps().is_hardware() {
        let measured = lab.measure(ways, record)?;
        return ways.iter().map(|way| measured.phase(way).context("wanted times, found none")).collect();
    }
    let one = |(way, name): (usize, &&'static str)| Ok(lab.measure(&[*name], |_, encoder| record(way, encoder))?.wall);
    ways.iter().enumerate().map(one).collect()
}

/// One of the rows for each pixel, neighbours far apart; each row once if there are enough.
fn at_random(rows: &[u32], pixel: u32) -> u32 {
    let n = rows.len() as u64;
    rows[shuffled(u64::from(pixel) % n, n)]
}

/// Brings rows into the cache, `n` in a step.
fn warm(lab: &Lab, group: &mut Group, rows: &[u32], n: usize) -> anyhow::Result<()> {
    for batch in fill(rows, n) {
        let inputs = Inputs::new(lab, &[(batch.indices(), batch.offsets())], FLOATS, LR);
        let mut encoder = lab.encoder();
        group.record_forward(&mut encoder, &inputs.batch(0), inputs.outputs.slice(..))?;
        group.abandon_backward();
        lab.submit(encoder)?;
    }
    Ok(group.check()?)
}

/// The slot of each row, and a buffer with the rows of all slots in their places, so that a raw read has the bytes and the order of the cache.
fn keep(lab: &Lab, cached: &mut RowReader, rows: &[u32], slots: u32) -> anyhow::Result<(wgpu::Buffer, wgpu::Buffer)> {
    let (device, none) = (lab.timed.device(), wgpu::BufferUsages::empty());
    let asked = lab.storage(rows);
    let slots_of = lab.room(rows.len() as u64 * 4, none);
    let kept = lab.timed.buffer("readers, slots", u64::from(slots) * SLOT, none)?;
    let own = layout(lab, wgpu::ShaderStages::COMPUTE, 3);
    let bind_group = bind(lab, &own, &[&asked, &slots_of, &kept]);
    let label = Some("readers.keep");
    let source = wgpu::ShaderSource::Wgsl((cached.wgsl().to_owned() + &text(KEEP)).into());
    let module = device.create_shader_module(wgpu::ShaderModuleDescriptor { label, source });
    let layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
        label,
        bind_group_layouts: &[Some(&own), Some(cached.layout())],
        immediate_size: 0,
    });
    let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label,
        layout: Some(&layout),
        module: &module,
        entry_point: Some("main"),
        compilation_options: wgpu::PipelineCompilationOptions::default(),
        cache: None,
    });
    let mut encoder = lab.encoder();
    let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
    pass.set_pipeline(&pipeline);
    pass.set_bind_group(0, &bind_group, &[]);
    pass.set_bind_group(1, cached.bind_group()?, &[]);
    pass.dispatch_workgroups((rows.len() as u32).div_ceil(64), 1, 1);
    drop(pass);
    let words = lab.timed.download(encoder, &[(&slots_of, rows.len() as u64 * 4)])?;
    let missing = words[0].iter().filter(|&&slot| slot >= slots).count();
    ensure!(missing == 0, "wanted all {} rows in the cache, found {missing} without a slot", rows.len());
    Ok((slots_of, kept))
}

/// The times of a frozen forward of the same rows, one in a bag, which writes whole rows in place of sums.
fn frozen(
    bench: &Bench<'_>,
    screen: &Screen<'_>,
    group: &mut Group,
    asked: &wgpu::Buffer,
    found: &[f32],
) -> anyhow::Result<Times> {
    let lab = bench.lab()?;
    let outputs = u64::from(screen.pixels()) * SLOT;
    ensure!(
        outputs <= lab.binding(),
        "wanted the outputs in one binding, {outputs} B, found bindings of {} B",
        lab.binding()
    );
    let outputs = lab.timed.buffer("readers, outputs", outputs, wgpu::BufferUsages::empty())?;
    let places: Vec<u32> = (0..=screen.pixels()).collect();
    let offsets = lab.storage(&places);
    let batch = Batch { indices: Some(asked.slice(..)), offsets: offsets.slice(..), weights: None };
    let mut record =
        |encoder: &mut wgpu::CommandEncoder| group.record_forward_frozen(encoder, &batch, outputs.slice(..));
    let mut encoder = lab.encoder();
    record(&mut encoder)?;
    lab.submit(encoder)?;
    let sums = screen.raw(&outputs, &text(RAW[0].1));
    let in_order = screen.asks(&lab.storage(&places[..places.len() - 1]));
    same(found, &screen.found(&sums, &in_order, Stage::Compute)?)?;
    let times = measure(lab, &["frozen forward"], |_, encoder| Ok(record(encoder)?))?;
    Ok(times[0])
}

/// The reader of the cache where only a share of the pixels hits; the others read the record of a row that is in no slot.
fn by_hit_rate(
    bench: &mut Bench<'_>,
    screen: &Screen<'_>,
    cached: &Program,
    (hits, slots): (&[u32], u32),
    setting: &Setting,
) -> anyhow::Result<()> {
    let lab = bench.lab()?;
    for rate in RATES {
        let cold = |pixel: u32| slots + shuffled(u64::from(pixel % slots), slots.into()) as u32;
        let row = |(pixel, &hit): (u32, &u32)| if fmix32(pixel) % 100 < rate { hit } else { cold(pixel) };
        let asked = screen.asks(&lab.storage(&(0..).zip(hits).map(row).collect::<Vec<_>>()));
        for stage in Stage::ALL {
            let times = measure(lab, &["cached"], |_, encoder| {
                screen.draw(encoder, cached, &asked, stage);
                Ok(())
            })?;
            let setting = setting.clone().with("stage", stage.name()).with("hits", rate);
            bench.run.at("readers by hit rate", &setting).timed("cached", times[0]);
        }
    }
    for stage in Stage::ALL {
        let whole = format!("stage={}; precision=INT8", stage.name());
        let known = bench.run.value("cached", "readers", &whole);
        let setting = setting.clone().with("stage", stage.name()).with("hits", 100);
        bench.run.at("readers by hit rate", &setting).push("cached", known, Unit::Seconds);
    }
    Ok(())
}

/// Refuses sums that are not those of the same rows. Values lie within 0.1, so roundings of 64 of them stay far below the bound, and other rows
/// far above it.
fn same(wanted: &[f32], found: &[f32]) -> Result<(), Other> {
    if wanted.len() != found.len() {
        return Err(Other(format!("wanted {} sums, found {}", wanted.len(), found.len())));
    }
    let near = |(wanted, found): (&f32, &f32)| (wanted - found).abs() <= 1e-5;
    let wrong: Vec<usize> = (0..wanted.len()).filter(|&i| !near((&wanted[i], &found[i]))).collect();
    if let Some(&first) = wrong.first() {
        return Err(Other(format!(
            "wanted the sums of the same rows, found {} others; pixel {first}: wanted {}, found {}",
            wrong.len(),
            wanted[first],
            found[first]
        )));
    }
    if wanted.iter().all(|sum| sum.abs() <= 0.01) {
        return Err(Other("wanted sums of random rows, found zeros".into()));
    }
    Ok(())
}

/// Sums of other rows than the wanted ones: a fault of a shader, so the command fails.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Other(String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_sums_are_rejected() {
        let sums: Vec<f32> = (0..100).map(|i| (i as f32 * 0.7).sin()).collect();
        assert!(same(&sums, &sums).is_ok());
        let with = |i: usize, sum: f32| {
            let mut others = sums.clone();
            others[i] = sum;
            same(&sums, &others).unwrap_err().to_string()
        };
        assert!(with(7, sums[8]).contains("found 1 others; pixel 7"));
        assert!(with(99, f32::NAN).contains("pixel 99"));
        let named = same(&sums, &[]).map_err(anyhow::Error::from).with_context(|| "FP32").unwrap_err();
        assert!(named.is::<Other>(), "so the command fails");
        assert!(same(&sums, &sums[1..]).is_err() && same(&[0.0; 9], &[0.0; 9]).is_err());
    }
}
