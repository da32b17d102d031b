//! A screen whose pixels each read one whole row in the caller's own shader: by a reader of the table, by a reader of the cache, and by a shader that
//! is made for nothing but these bytes. All must find the same before one of them is timed.

use hotrow::internals::Device as _;
use hotrow::{Group, OptimizerKind, Precision, Reader, internals, prelude::*, wgpu};

use super::bench::Bench;
use super::cases::in_turn;
use super::shapes::shuffled;
use super::workload::warm;
use hotrow_report::clock::Clock;
use hotrow_report::kernel::{Kernel, bind, layout};
use hotrow_report::records::{Setting, Unit};

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
fn screen(@builtin(global_invocation_id) id: vec3<u32>) {
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

/// The ways that are compared, in the order of their phases.
const WAYS: [&str; 3] = ["raw", "flushed", "cached"];

/// The screen: its size, and the answer of each pixel.
struct Screen<'l> {
    clock: &'l Clock,
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
        let clock = bench.clock;
        let told = clock.room(u64::from(width * height) * 4, wgpu::BufferUsages::empty());
        Self { clock, pixels: width * height, told, layout: layout(clock.timed.device(), &[true, false]) }
    }

    /// Binds a row for each pixel.
    fn asks(&self, rows: &[u32]) -> wgpu::BindGroup {
        bind(self.clock.timed.device(), &self.layout, &[&self.clock.storage(rows), &self.told])
    }

    fn program(&self, row_sum: &str, group: &wgpu::BindGroupLayout, bound: wgpu::BindGroup) -> Program {
        let text = row_sum.replace("QUADS", &QUADS.to_string()) + FRAME;
        (Kernel::new(self.clock.timed.device(), ("screen", &text), &[&self.layout, group]), bound)
    }

    /// Records `n` pixels of a frame.
    fn draw(&self, encoder: &mut wgpu::CommandEncoder, program: &Program, asked: &wgpu::BindGroup, n: u32) {
        program.0.encode(encoder, &[asked, &program.1], n.div_ceil(256));
    }

    /// Draws a frame, and returns what each pixel found.
    fn found(&self, program: &Program, asked: &wgpu::BindGroup) -> anyhow::Result<Vec<f32>> {
        let mut encoder = self.clock.encoder();
        self.draw(&mut encoder, program, asked, self.pixels);
        let words = self.clock.timed.download(encoder, &[(&self.told, u64::from(self.pixels) * 4)])?;
        Ok(words[0].iter().map(|&word| f32::from_bits(word)).collect())
    }
}

pub(super) fn readers(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let screen = Screen::new(bench);
    let (clock, pixels) = (bench.clock, screen.pixels);
    // If a binding is too small, pixels share rows.
    let slots = u64::from(pixels.next_multiple_of(32)).min(clock.binding() / SLOT) as u32 & !31;
    let resident: Vec<u32> = (0..slots).collect();
    // Neighbours far apart; each row once if there are enough.
    let n = resident.len() as u64;
    let mut hits: Vec<u32> = (0..pixels).map(|pixel| resident[shuffled(u64::from(pixel) % n, n)]).collect();
    let asked = screen.asks(&hits);
    hits[pixels as usize / 2] = hits[0];
    let others = screen.asks(&hits);
    bench.run.describe(
        "readers",
        format!("{pixels} pixels, each reads a whole row x {FLOATS} of its own, scattered, and writes its sum; all rows are in a cache of {slots}"),
    );
    let mut slot_seconds = None;
    for (precision, raw) in RAW {
        clock.timeline.listen(false);
        let config = bench.config(&[slots], precision, OptimizerKind::Sgd, slots).with_dim(FLOATS);
        let mut group = Group::new(&clock.timed, config)?;
        warm(clock, &mut group, &in_turn(&resident, bench.size.of(1 << 12, 1 << 18), 1))?;
        group.check()?;
        // The slots fit one binding, and a record is no larger than a slot.
        let (device, plain) = (clock.timed.device(), layout(clock.timed.device(), &[false]));
        let mut programs = vec![screen.program(raw, &plain, bind(device, &plain, &[&internals::records(&group)[0]]))];
        for flushed in [true, false] {
            let mut reader = group.reader(Reader { prefix: "emb", group: 1, flushed, ..Reader::default() })?;
            let bound = reader.bind_group()?.clone();
            programs.push(screen.program(&(reader.wgsl().to_owned() + READ), reader.layout(), bound));
        }
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
        let measured = clock.repeated(&WAYS, |way, encoder| {
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
        clock.submit(clock.encoder())?;
    }
    Ok(())
}

/// Refuses sums that are not those of the same rows. Values lie within 0.1, so roundings of 64 of them stay far below the bound, and other rows
/// far above it.
fn same(wanted: &[f32], found: &[f32]) -> Result<(), String> {
    let alike = wanted.iter().zip(found).filter(|(wanted, found)| (*wanted - *found).abs() <= 1e-5).count();
    let n = wanted.len();
    if alike != n || found.len() != n {
        return Err(format!("wanted {n} sums of the same rows, found {}, {} of them others", found.len(), n - alike));
    }
    let zeros = wanted.iter().all(|sum| sum.abs() <= 0.01);
    if zeros { Err("wanted sums of random rows, found zeros".to_owned()) } else { Ok(()) }
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
