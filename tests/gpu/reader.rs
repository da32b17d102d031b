//! Readers: shaders of another program read the rows of a group. What they read is what the group reads, bit for bit.

use hotrow::{
    Bags, Context, Error, Group, GroupConfig, Init, Mode, Optimizer, Placement, Policy, Precision, Reader, RowReader,
    SharedGroup,
    internals::{
        Pieces as _,
        layout::{Field, NONE, WAYS, way_at},
    },
    prelude::*,
    robe, wgpu,
};
use hotrow_harness::{
    device::{skipped, spoiled, with_storage_buffers},
    gpu_test, sample,
};

use crate::caller::{self, READ, Shader, WRITE, download, storage};

/// What a caller's shader found for one row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seen {
    pub(crate) contains: bool,
    /// Bits of the values, one Quad more than the row has.
    pub(crate) values: Vec<u32>,
}

/// A caller's program: a module with a reader in group 1, and a pipeline that reads listed rows.
pub(crate) struct Program {
    context: Context,
    shader: Shader,
    dim: u32,
}

pub(crate) fn quads(dim: u32) -> u32 {
    dim.div_ceil(4) + 1
}

/// Draws one point a row into two targets, with values that the vertex stage and the fragment stage have read.
const DRAWN: &str = "
    struct Point {
        @builtin(position) position: vec4<f32>,
        @location(0) @interpolate(flat) row: u32,
        @location(1) @interpolate(flat) values: vec4<u32>,
    }

    @vertex
    fn vertex(@builtin(vertex_index) row: u32) -> Point {
        let pixel = vec2<f32>(f32(row % 64u), f32(row / 64u)) + 0.5;
        let position = vec4<f32>(pixel / vec2<f32>(32.0, -HALF) + vec2<f32>(-1.0, 1.0), 0.0, 1.0);
        return Point(position, row, bitcast<vec4<u32>>(emb_row4(row, 1u)));
    }

    struct Values { @location(0) vertex: vec4<u32>, @location(1) fragment: vec4<u32> }

    @fragment
    fn fragment(point: Point) -> Values {
        return Values(point.values, bitcast<vec4<u32>>(emb_at(emb_find(point.row), 1u)));
    }
";

/// The values 4 to 7 of `rows` rows, a multiple of 64, as the two stages read them.
fn drawn(context: &Context, reader: &mut RowReader, rows: u32) -> [Vec<u32>; 2] {
    let (text, points) =
        (DRAWN.replace("HALF", &format!("{:?}", rows as f32 / 128.0)), wgpu::PrimitiveTopology::PointList);
    let (format, size) =
        (wgpu::TextureFormat::Rgba32Uint, wgpu::Extent3d { width: 64, height: rows / 64, depth_or_array_layers: 1 });
    let mut encoder = caller::encoder(context);
    let textures = caller::draw(context, &mut encoder, (reader, &text), (points, rows), (format, 64, rows / 64));
    context.queue().submit([encoder.finish()]);
    textures.map(|texture| {
        let mut encoder = caller::encoder(context);
        let usage = wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::COPY_SRC;
        let buffer = caller::buffer(context, u64::from(rows) * 16, usage);
        let layout = wgpu::TexelCopyBufferLayout { offset: 0, bytes_per_row: Some(64 * 16), rows_per_image: None };
        encoder.copy_texture_to_buffer(
            texture.as_image_copy(),
            wgpu::TexelCopyBufferInfo { buffer: &buffer, layout },
            size,
        );
        download(context, encoder, &buffer)
    })
}

/// Whether the device draws; the lane executor does not.
pub(crate) fn draws(context: &Context) -> bool {
    let executor = context.caps().name == "lane executor";
    if executor {
        skipped("drawing: the lane executor runs compute shaders only");
    }
    !executor
}

/// The vertex stage and the fragment stage read what a compute stage reads.
#[gpu_test]
fn every_stage(context: &Context) {
    if !draws(context) {
        return;
    }
    for (dim, precision) in [(8, Precision::Fp32), (7, Precision::Int8)] {
        let mut group = Group::new(context, config(precision, dim)).unwrap();
        let stages = wgpu::ShaderStages::VERTEX_FRAGMENT;
        let mut reader = group.reader(Reader { stages, ..emb() }).unwrap();
        train(&mut group, 0..3);
        let rows: Vec<u32> = (0..704).collect();
        let wanted = wanted(&mut group, &rows, |_| true);
        let wanted: Vec<u32> = wanted.iter().flat_map(|seen| seen.values[4..8].iter().copied()).collect();
        let [vertex, fragment] = drawn(context, &mut reader, 704);
        assert!(vertex == wanted, "{precision:?}");
        assert!(fragment == wanted, "{precision:?}");
        train(&mut group, 3..4);
        assert!(drawn(context, &mut reader, 704)[1] != wanted, "the comparison can fail");
    }
}

fn compute_text(reader: &RowReader, prefix: &str, dim: u32) -> String {
    let text = "
        @group(0) @binding(0) var<storage, read> asked: array<u32>;
        @group(0) @binding(1) var<storage, read_write> told: array<u32>;

        @compute @workgroup_size(64)
        fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            if (id.x >= arrayLength(&asked)) { return; }
            let row = asked[id.x];
            WANT
            let place = P_find(row);
            let to = id.x * (1u + 4u * QUADS);
            var agree = true;
            for (var quad = 0u; quad < QUADS; quad++) {
                let found = bitcast<vec4<u32>>(P_at(place, quad));
                agree = agree && all(found == bitcast<vec4<u32>>(P_row4(row, quad)));
                for (var k = 0u; k < 4u; k++) {
                    agree = agree && found[k] == bitcast<u32>(P_value(row, 4u * quad + k));
                    told[to + 1u + 4u * quad + k] = found[k];
                }
            }
            told[to] = select(0u, 1u, P_contains(row)) | select(2u, 0u, agree);
        }
    ";
    // A reader with feedback is asked for every row.
    let want = if reader.wgsl().contains("_want(") { "P_want(row);" } else { "" };
    let text = text.replace("WANT", want);
    reader.wgsl().to_owned() + &text.replace("P_", &format!("{prefix}_")).replace("QUADS", &format!("{}u", quads(dim)))
}

impl Program {
    pub(crate) fn new(context: &Context, reader: &RowReader, prefix: &str, dim: u32) -> Self {
        let text = compute_text(reader, prefix, dim);
        let shader = Shader::new(context, text, &[READ, WRITE], Some(reader.layout()));
        Self { context: context.clone(), shader, dim }
    }

    /// Reads rows with a bind group of a reader.
    pub(crate) fn read(&self, bind_group: &wgpu::BindGroup, rows: &[u32]) -> Vec<Seen> {
        let stride = 1 + 4 * quads(self.dim) as usize;
        let (asked, told) = (storage(&self.context, rows), storage(&self.context, &vec![0u32; rows.len() * stride]));
        let mut encoder = caller::encoder(&self.context);
        let groups = (rows.len() as u32).div_ceil(64);
        self.shader.dispatch(&mut encoder, &[&asked, &told], Some(bind_group), groups);
        let words = download(&self.context, encoder, &told);
        let seen = words.chunks_exact(stride).map(|words| {
            assert!(words[0] < 2, "P_at, P_row4 and P_value agree");
            Seen { contains: words[0] == 1, values: words[1..].to_vec() }
        });
        seen.collect()
    }
}

/// Reads rows with a reader of prefix `emb`.
pub(crate) fn read(context: &Context, reader: &mut RowReader, dim: u32, rows: &[u32]) -> Vec<Seen> {
    let program = Program::new(context, reader, "emb", dim);
    program.read(reader.bind_group().unwrap(), rows)
}

pub(crate) fn emb() -> Reader<'static> {
    Reader { prefix: "emb", group: 1, ..Reader::default() }
}

/// The rows that have a slot.
pub(crate) fn resident(group: &mut Group) -> Vec<u32> {
    let slots = group.layout().slots();
    let ways = group.snapshot().unwrap().ways;
    (0..slots).map(|slot| ways[way_at(WAYS, slot, Field::Tag)]).filter(|&row| row != NONE).collect()
}

/// What a reader must find: each row as the table reads it, and nothing of one that is not `here`.
pub(crate) fn wanted(table: &mut dyn Lookup, rows: &[u32], here: impl Fn(u32) -> bool) -> Vec<Seen> {
    let memory = table.memory();
    let (dim, total) = (memory.dim as usize, memory.rows as u32);
    let inside: Vec<u32> = rows.iter().copied().filter(|&row| row < total).collect();
    let values = table.read_rows(&inside).unwrap();
    let mut values = values.chunks_exact(dim);
    let find = |&row: &u32| {
        let mut bits = vec![0; 4 * quads(dim as u32) as usize];
        let own = (row < total).then(|| values.next().unwrap());
        let contains = row < total && here(row);
        if contains {
            for (bits, value) in bits.iter_mut().zip(own.unwrap()) {
                *bits = value.to_bits();
            }
        }
        Seen { contains, values: bits }
    };
    rows.iter().map(find).collect()
}

pub(crate) fn config(precision: Precision, dim: u32) -> GroupConfig {
    GroupConfig::new(&[700], dim)
        .with_precision(precision)
        .with_cache_rows(96)
        .with_optimizer(Optimizer::adagrad(0.05))
        .with_init(Init::Uniform { low: -1.0, high: 1.0 })
}

/// Some steps, after which there are clean, dirty and bypassed rows.
pub(crate) fn train(group: &mut Group, steps: std::ops::Range<u32>) {
    for step in steps {
        let indices: Vec<u32> = (0..120).map(|i| (i * i * 7 + step * 131) % 700 / (1 + i % 5)).collect();
        let offsets: Vec<u32> = (0..=40).map(|bag| 3 * bag).collect();
        let outputs = group.forward(Bags::new(&indices, &offsets), Mode::Train).unwrap();
        match group.config().forward_only {
            true => group.write_rows(&indices[..40], &outputs).unwrap(),
            false => group.backward(&outputs).unwrap(),
        }
    }
    group.forward(Bags::new(&[1, 5, 9, 600], &[0, 2, 4]), Mode::Train).unwrap(); // clean rows
    group.discard_pending();
}

/// Every row, and rows beyond the table.
pub(crate) fn all_rows() -> Vec<u32> {
    (0..700).chain([700, 701, 1 << 31, NONE - 1, NONE]).collect()
}

/// Reads all rows of a trained group, and compares them.
fn reads_rows(context: &Context, config: GroupConfig, what: &str) {
    let mut group = Group::new(context, config).unwrap();
    let mut reader = group.reader(emb()).unwrap_or_else(|error| panic!("{what}: {error}"));
    train(&mut group, 0..3);
    let dim = group.config().dim;
    let here = resident(&mut group);
    let staged = group.store().is_some();
    let wanted = wanted(&mut group, &all_rows(), |row| !staged || here.contains(&row));
    let (program, reader_buffers) = (Program::new(context, &reader, "emb", dim), reader.storage_buffers());
    let mut read = || program.read(reader.bind_group().unwrap(), &all_rows());
    let found = read();
    assert!(found == wanted, "{what}: {:?}", found.iter().zip(&wanted).position(|(found, wanted)| found != wanted));
    let cached = group.layout().sets > 0;
    assert_eq!(here.len() > 40, cached, "{what}");
    if !staged {
        let mut flushed = group.reader(Reader { flushed: true, ..emb() }).unwrap();
        assert!((flushed.storage_buffers() < reader_buffers) == cached);
        let program = Program::new(context, &flushed, "emb", dim);
        let mut read_table = || program.read(flushed.bind_group().unwrap(), &all_rows());
        // The table alone is older than the cache, until a flush.
        assert_eq!(read_table() != wanted, cached, "{what}: the comparison can fail");
        group.flush().unwrap();
        let settled = self::wanted(&mut group, &all_rows(), |_| true);
        assert!(read() == settled, "{what}, flushed");
        group.reset().unwrap();
        let settled = self::wanted(&mut group, &all_rows(), |_| true);
        assert!(read_table() == settled, "{what}, by the table alone");
        assert!(read() == settled, "{what}, empty cache");
    }
}

#[gpu_test]
fn every_precision_and_dim(context: &Context) {
    let optimizers = [Optimizer::sgd(0.05), Optimizer::adagrad(0.05), Optimizer::row_wise_adagrad(0.05)];
    let dims = [1, 3, 4, 6, 8, 20];
    for (i, j) in sample(8, (0..5).flat_map(|i| (0..6).map(move |j| (i, j)))) {
        let config = config(Precision::ALL[i], dims[j]).with_optimizer(optimizers[(i + j) % 3]);
        reads_rows(context, config, &format!("{:?}, dim {}", Precision::ALL[i], dims[j]));
    }
}

#[gpu_test]
fn every_placement_windows_and_pieces(context: &Context) {
    let most = context.caps().choose_windows();
    // Every precision, both widths of a Quad, both policies.
    let mut cases = Vec::new();
    for (i, precision) in Precision::ALL.into_iter().enumerate() {
        let base = config(precision, [8, 5, 8, 8, 5][i]).with_policy([Policy::Lru, Policy::Lfu][i % 2]);
        let staged = base.clone().with_placement(Placement::Staged);
        let layout = hotrow::internals::Layout::new(&base, u64::MAX).unwrap();
        let pieces = |rows: u64| base.clone().with_piece_bytes(Some(rows * layout.stride()));
        cases.extend([
            ("no cache", base.clone().with_cache_rows(0)),
            ("two pieces", pieces(350)),
            ("five", pieces(140)),
        ]);
        if context.caps().mappable {
            cases.push(("mapped", base.clone().with_placement(Placement::Mapped)));
        }
        if most >= 3 {
            let windows = Some(32 * layout.slot_bytes());
            cases.push(("3 windows, 3 pieces", pieces(300).with_window_bytes(windows)));
            cases.push(("staged, 3 windows", staged.clone().with_window_bytes(windows)));
        }
        cases.push(("staged", staged));
    }
    for placement in [Placement::Device, Placement::Staged] {
        let base = config(Precision::Int4x32, 64).with_optimizer(Optimizer::sgd(0.0)).with_forward_only(true);
        reads_rows(context, base.with_placement(placement), &format!("int4x32, {placement}"));
    }
    for (what, config) in sample(12, cases) {
        reads_rows(context, config.clone(), &format!("{what}, {config:?}"));
    }
}

/// Several tables in a group: a row counts through all of them.
#[gpu_test]
fn rows_are_linear(context: &Context) {
    let config = GroupConfig::new(&[10, 20], 4).with_init(Init::Uniform { low: -1.0, high: 1.0 });
    let mut group = Group::new(context, config).unwrap();
    let mut reader = group.reader(emb()).unwrap();
    let rows: Vec<u32> = (0..32).collect();
    assert!(read(context, &mut reader, 4, &rows) == wanted(&mut group, &rows, |_| true));
}

/// A cache of another size: the old bind group shows the old cache, a new one the new cache.
#[gpu_test]
fn a_resized_or_restored_group_is_bound_anew(context: &Context) {
    let mut group = Group::new(context, config(Precision::Int8, 8)).unwrap();
    let mut reader = group.reader(emb()).unwrap();
    let program = Program::new(context, &reader, "emb", 8);
    assert!(!reader.stale());
    train(&mut group, 0..3);
    assert!(!reader.stale(), "a step leaves the bindings alone");
    let (rows, before) = (all_rows(), group.snapshot().unwrap());
    let old = reader.bind_group().unwrap().clone();
    group.resize_cache(320).unwrap();
    assert!(reader.stale());
    train(&mut group, 3..6);
    let now = wanted(&mut group, &rows, |_| true);
    assert!(program.read(&old, &rows) != now, "the old cache is shown");
    assert!(program.read(reader.bind_group().unwrap(), &rows) == now);
    assert!(!reader.stale());
    group.resize_cache(96).unwrap();
    group.restore(&before).unwrap();
    assert!(reader.stale());
    let now = wanted(&mut group, &rows, |_| true);
    assert!(program.read(reader.bind_group().unwrap(), &rows) == now);
    // A checkpoint.
    let folder = tempfile::tempdir().unwrap();
    let saved = folder.path().join("group");
    hotrow::checkpoint::save(&mut group, &saved).unwrap();
    train(&mut group, 6..8);
    assert!(program.read(reader.bind_group().unwrap(), &rows) != now, "the comparison can fail");
    assert!(!reader.stale());
    hotrow::checkpoint::load(&mut group, &saved).unwrap();
    assert!(reader.stale());
    assert!(program.read(reader.bind_group().unwrap(), &rows) == now);
    // Without a cache the WGSL does not fit, and the other way round.
    group.resize_cache(0).unwrap();
    refuses!(reader.bind_group(), Error::Reader { what: "WGSL", .. });
    assert!(reader.stale());
    let mut bare = group.reader(emb()).unwrap();
    group.resize_cache(96).unwrap();
    refuses!(bare.bind_group(), Error::Reader { what: "WGSL", .. });
    reader.bind_group().unwrap();
    drop(group);
    refuses!(reader.bind_group(), Error::Reader { what: "group", .. });
}

#[gpu_test]
fn what_cannot_be_bound_is_refused(context: &Context) {
    let group = Group::new(context, config(Precision::Int8, 8)).unwrap();
    for prefix in ["", "_", "__x", "7up", "a-b", "a b", "ä", "x;", "emb.x"] {
        refuses!(group.reader(Reader { prefix, ..emb() }), Error::Reader { what: "prefix", .. }, "{prefix}");
    }
    let most = context.device().limits().max_bind_groups;
    group.reader(Reader { group: most - 1, ..emb() }).unwrap();
    refuses!(group.reader(Reader { group: most, ..emb() }), Error::Reader { what: "group", .. });
    for stages in [wgpu::ShaderStages::empty(), wgpu::ShaderStages::MESH] {
        refuses!(group.reader(Reader { stages, ..emb() }), Error::Reader { what: "stages", .. });
    }
    let staged = config(Precision::Int8, 8).with_placement(Placement::Staged);
    let group = Group::new(context, staged.clone()).unwrap();
    refuses!(group.reader(Reader { flushed: true, ..emb() }), Error::Reader { .. });
    let group = Group::new(context, staged.with_cache_rows(0)).unwrap();
    refuses!(group.reader(emb()), Error::Reader { what: "a staged table", .. });
}

/// A device with WebGPU's default of eight storage buffers a stage.
#[gpu_test]
fn too_many_buffers_are_refused_by_name(_: &Context) {
    let bare = with_storage_buffers(8);
    let base = config(Precision::Fp16, 8);
    let stride = hotrow::internals::Layout::new(&base, u64::MAX).unwrap().stride();
    let pieces = |n: u64| base.clone().with_piece_bytes(Some(700u64.div_ceil(n) * stride));
    let group = Group::new(&bare, pieces(6)).unwrap();
    assert_eq!(group.reader(emb()).unwrap().storage_buffers(), 8);
    let group = Group::new(&bare, pieces(7)).unwrap();
    let error = group.reader(emb()).unwrap_err();
    let Error::Unsupported { what, wanted, found, .. } = &error else { panic!("{error}") };
    assert_eq!((*what, found.as_str()), ("reader, max_storage_buffers_per_shader_stage", "8"));
    assert!(wanted.contains("at least 9"), "{error}");
    assert!(["required_limits", "eframe", "Bevy"].iter().all(|text| error.to_string().contains(text)), "{error}");
    assert_eq!(group.reader(Reader { flushed: true, ..emb() }).unwrap().storage_buffers(), 7);
}

/// Reads all rows after a prefetch that admits rows, and again after the backward of the step before, before their floats have come. Returns
/// what a reader finds wrong, and the numbers of rows that come and that leave.
fn while_rows_come(context: &Context, config: GroupConfig) -> (Vec<u32>, [usize; 2]) {
    let rows = all_rows();
    let dim = config.dim as usize;
    let mut group = Group::new(context, config.clone()).unwrap();
    let mut twin = Group::new(context, config).unwrap();
    let mut reader = group.reader(emb()).unwrap();
    let program = Program::new(context, &reader, "emb", dim as u32);
    let staged = group.store().is_some();
    let mut read = || program.read(reader.bind_group().unwrap(), &rows);
    for group in [&mut group, &mut twin] {
        train(group, 0..3);
        group.forward(Bags::new(&[3, 600, 17], &[0, 3]), Mode::Train).unwrap();
    }
    let before = resident(&mut twin);
    let mut shown = wanted(&mut twin, &rows, |row| !staged || before.contains(&row));
    let next: Vec<u32> = (0..90).map(|i| (i * 37 + 11) % 700).collect();
    group.prefetch(Bags::new(&next, &[0, 90])).unwrap();
    let mut wrong = Vec::new();
    let mut compare = |found: &[Seen], wanted: &[Seen]| {
        let found = rows.iter().zip(found.iter().zip(wanted)).filter(|(_, (found, wanted))| found != wanted);
        wrong.extend(found.map(|(&row, _)| row));
    };
    compare(&read(), &shown);
    // The backward moves rows that stay, and rows that leave.
    for group in [&mut group, &mut twin] {
        group.backward(&vec![0.5; dim]).unwrap();
    }
    let moved = wanted(&mut twin, &rows, |row| !staged || before.contains(&row));
    assert!(moved != shown);
    shown = moved;
    compare(&read(), &shown);
    group.forward_prefetched().unwrap();
    group.discard_pending();
    let after = resident(&mut group);
    let comes = |row: &&u32| after.contains(row) && !before.contains(row);
    let leaves = |row: &&u32| before.contains(row) && !after.contains(row);
    let now = wanted(&mut group, &rows, |row| !staged || after.contains(&row));
    compare(&read(), &now);
    (wrong, [rows.iter().filter(comes).count(), rows.iter().filter(leaves).count()])
}

#[gpu_test]
fn a_row_on_its_way_is_not_shown(context: &Context) {
    for (i, precision) in Precision::ALL.into_iter().enumerate() {
        for placement in [Placement::Device, Placement::Staged] {
            let config = config(precision, [8, 5][i % 2]).with_placement(placement);
            let config = config.with_policy([Policy::Lru, Policy::Lru, Policy::Lfu][i % 3]);
            let (wrong, [come, leave]) = while_rows_come(context, config.clone());
            assert_eq!(wrong, [0; 0], "{precision:?}, {placement:?}");
            let enough = if config.policy == Policy::Lru { 20 } else { 1 };
            assert!(come >= enough && leave > 0, "{come} {leave}");
        }
    }
}

/// The test above must notice rows that are shown too early, and rows that are not shown although they have come.
#[gpu_test]
fn a_row_shown_too_early_is_noticed(context: &Context) {
    let early = "ways[way_at(slot, TAG)] = row; ways[way_at(slot, STAMP)] = row;";
    let early = spoiled(context, &["admit"], |_| true, ("ways[way_at(slot, STAMP)] = row;", early));
    for placement in [Placement::Device, Placement::Staged] {
        let config = config(Precision::Int8, 8).with_placement(placement);
        assert!(while_rows_come(&early, config).0.len() > 20);
    }
    let late = spoiled(context, &["exchange"], |_| true, ("publish(one.place, one.row);", ""));
    let mut group = Group::new(&late, config(Precision::Fp32, 8).with_placement(Placement::Staged)).unwrap();
    let mut reader = group.reader(emb()).unwrap();
    group.forward(Bags::new(&[3], &[0, 1]), Mode::Train).unwrap();
    assert!(!read(context, &mut reader, 8, &[3])[0].contains);
}

/// A shared array (ROBE).
#[gpu_test]
fn shared_arrays(context: &Context) {
    let windows = context.caps().choose_windows().min(3);
    let shapes = [(8, 4, false), (7, 3, true), (3, 16, true), (2, 0, false), (5, 5, true)];
    let all = Precision::ALL.into_iter().enumerate().flat_map(|one| shapes.map(|shape| (one, shape)));
    for ((i, precision), (dim, chunk, cut)) in sample(4, all) {
        let mut config = match chunk {
            0 => robe::Config::direct(&[400, 300], dim).unwrap(),
            5 => robe::Config::new(&[400, 300], dim, 1000, dim).with_addressing(robe::Addressing::Rows),
            _ => robe::Config::new(&[400, 300], dim, 1000, chunk),
        };
        config.precision = precision;
        config.optimizer = [Optimizer::sgd(0.05), Optimizer::adagrad(0.05)][i % 2];
        config.init = Init::Uniform { low: -1.0, high: 1.0 };
        if cut && windows > 1 {
            config = config.with_window_bytes(Some(1000_u64.div_ceil(windows.into()).next_multiple_of(64) * 4));
        }
        let mut group = SharedGroup::new(context, config).unwrap();
        let mut reader = group.reader(emb()).unwrap();
        let program = Program::new(context, &reader, "emb", dim);
        let rows = all_rows();
        for step in 0..2 {
            let indices: Vec<u32> = (0..60).map(|i| (i * 7 + step) % 300).collect();
            let outputs = group.forward(Bags::new(&indices, &[0, 20, 60]), Mode::Train).unwrap();
            group.backward(&outputs).unwrap();
            let found = program.read(reader.bind_group().unwrap(), &rows);
            assert!(found == wanted(&mut group, &rows, |_| true), "{precision:?} {dim}");
        }
        let before = program.read(reader.bind_group().unwrap(), &rows);
        let snapshot = group.snapshot().unwrap();
        let outputs = group.forward(Bags::new(&[1, 2], &[0, 1, 2]), Mode::Train).unwrap();
        group.backward(&outputs.iter().map(|value| 100.0 * value).collect::<Vec<_>>()).unwrap();
        assert!(program.read(reader.bind_group().unwrap(), &rows) != before, "the comparison can fail");
        group.restore(&snapshot).unwrap();
        assert!(reader.stale());
        assert!(program.read(reader.bind_group().unwrap(), &rows) == before);
    }
}
