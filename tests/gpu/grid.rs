//! Hash grids on the device: whole steps beside the CPU's, and bad input.

use hotrow::{
    Bags, Context, CpuGrid, CpuGroup, CpuSharedGroup, Error, Grid, Group, Init, Lookup, Mode, Optimizer, OutOfRange,
    Precision, Reader, RowReader, SharedGroup,
    grid::{Config, Outside},
};
use hotrow::{prelude::*, wgpu};
use hotrow_harness::gpu_test;
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64;

use crate::caller::{self, READ, Shader, WRITE, download, storage};

/// Submits, waits, and reads a buffer of floats.
fn read(context: &Context, encoder: wgpu::CommandEncoder, buffer: &wgpu::Buffer) -> Vec<f32> {
    download(context, encoder, buffer).into_iter().map(f32::from_bits).collect()
}

fn near(what: &str, found: &[f32], wanted: &[f32]) -> Result<(), String> {
    let far = |(a, b): (&f32, &f32)| (a - b).abs() > 1e-4 * a.abs().max(b.abs()).max(1.0);
    match found.iter().zip(wanted).position(far) {
        _ if found.len() != wanted.len() => Err(format!("{what}: {} values for {}", found.len(), wanted.len())),
        Some(i) => Err(format!("{what} {i}: {} for {}", found[i], wanted[i])),
        None => Ok(()),
    }
}

/// The calls that record, of both kinds of groups.
macro_rules! steps {
    ($name:ident, $group:ty) => {
        /// Three steps on the device, all encoded, beside the same on the CPU.
        fn $name(context: &Context, config: &Config, group: &mut $group, cpu: &mut dyn Lookup) -> Result<(), String> {
            let mut source = Pcg64::seed_from_u64(u64::from(config.levels));
            let grid = Grid::new(context, config.clone(), 120).unwrap();
            let mut mirror = CpuGrid::new(config.clone()).unwrap();
            for n in [120, 1, 77] {
                let points: Vec<f32> = (0..n * config.dims).map(|_| source.random_range(-0.1..1.1)).collect();
                let floats = (n * config.levels * config.features) as usize;
                let grads: Vec<f32> = (0..floats).map(|_| source.random_range(-0.01..0.01)).collect();
                let [coordinates, grad_outputs] = [&points, &grads].map(|values| storage(context, values));
                let zeros = |n: usize| storage(context, &vec![0f32; n]);
                let slopes = zeros(((n * config.levels) << config.dims) as usize);
                let (outputs, moves) = (zeros(floats), zeros(points.len()));
                let mut encoder = caller::encoder(context);
                let batch = grid.encode(&mut encoder, coordinates.slice(..)).unwrap();
                group.encode_forward(&mut encoder, &batch, outputs.slice(..), Mode::Train).unwrap();
                group.encode_weight_gradient(&mut encoder, &batch, grad_outputs.slice(..), slopes.slice(..)).unwrap();
                let ends = (slopes.slice(..), moves.slice(..));
                grid.encode_coordinate_gradient(&mut encoder, coordinates.slice(..), ends.0, ends.1).unwrap();
                group.encode_backward(&mut encoder, grad_outputs.slice(..)).unwrap();
                let found_moves = read(context, encoder, &moves);
                let found = read(context, caller::encoder(context), &outputs);

                let bags = mirror.bags(&points).unwrap();
                let wanted = cpu.forward(bags, Mode::Train).unwrap();
                let slopes = cpu.weight_gradient(bags, &grads).unwrap();
                let wanted_moves = mirror.coordinate_gradient(&points, &slopes).unwrap();
                cpu.backward(&grads).unwrap();
                near("output", &found, &wanted)?;
                near("coordinate gradient", &found_moves, &wanted_moves)?;
            }
            let rows: Vec<u32> = (0..config.tables().unwrap().iter().sum()).step_by(3).collect();
            near("row", &group.read_rows(&rows).unwrap(), &cpu.read_rows(&rows).unwrap())
        }
    };
}
steps!(cached_steps, Group);
steps!(shared_steps, SharedGroup);

#[gpu_test]
fn recorded_steps_are_the_cpu_s(context: &Context) {
    let init = Init::Uniform { low: -1.0, high: 1.0 };
    for (dims, features, outside) in [(2, 2, Outside::Clamp), (3, 4, Outside::Wrap), (2, 1, Outside::Wrap)] {
        let config = Config::new(dims).with_levels(5).with_coarsest(4).with_most_rows(1 << 10);
        let config = config.with_features(features).with_outside(outside);
        let rows = config.group().unwrap().with_init(init).with_cache_rows(64);
        let rows = rows.with_precision(Precision::Fp32).with_optimizer(Optimizer::adam(0.01));
        let mut cpu = CpuGroup::new(rows.clone()).unwrap();
        cached_steps(context, &config, &mut Group::new(context, rows.clone()).unwrap(), &mut cpu).unwrap();
        // Other rows are noticed.
        let other = &mut Group::new(context, rows.clone().with_seed(7)).unwrap();
        assert!(cached_steps(context, &config, other, &mut CpuGroup::new(rows).unwrap()).is_err());
        let array = config.array().unwrap().with_init(init).with_optimizer(Optimizer::adagrad(0.01));
        let mut cpu = CpuSharedGroup::new(array.clone()).unwrap();
        shared_steps(context, &config, &mut SharedGroup::new(context, array).unwrap(), &mut cpu).unwrap();
    }
}

#[gpu_test]
fn bad_points_and_buffers_are_refused(context: &Context) {
    let config = Config::new(2).with_levels(3).with_most_rows(1 << 8);
    refuses!(Grid::new(context, config.clone().with_dims(1), 4), Error::Grid { what: "dims", .. });
    refuses!(Grid::new(context, config.clone(), 1 << 28), Error::TooLarge { what: "batch", .. });
    let grid = Grid::new(context, config.clone(), 4).unwrap();
    let mut encoder = caller::encoder(context);
    let points = storage(context, &[0.5f32, 0.5, f32::NAN, 0.5, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6]);
    let mut refused = |bytes| grid.encode(&mut encoder, points.slice(..bytes)).map(drop);
    refuses!(refused(12), Error::Length { what: "coordinates", wanted: 4, found: 3 });
    refuses!(refused(40), Error::Length { what: "points", wanted: 4, found: 5 });
    let (slopes, moves) = (storage(context, &[0f32; 23]), storage(context, &[7f32; 4]));
    let mut gradient = |weights: &wgpu::Buffer, to: &wgpu::Buffer| {
        let points = points.slice(..16);
        grid.encode_coordinate_gradient(&mut encoder, points, weights.slice(..), to.slice(..)).unwrap_err()
    };
    assert!(matches!(gradient(&slopes, &moves), Error::Buffer { what: "grad_weights", .. }));
    assert!(matches!(gradient(&slopes, &slopes), Error::Buffer { what: "grad_coordinates", .. }));
    assert!(matches!(gradient(&slopes, &points), Error::Buffer { what: "grad_coordinates", .. }));

    // A point that is not a number: the step is refused, and no row moves.
    let mut group = Group::new(context, config.group().unwrap().with_cache_rows(8)).unwrap();
    let before = group.snapshot().unwrap();
    let [outputs, grads] = [0.0f32, 1.0].map(|value| storage(context, &[value; 2 * 3 * 2]));
    let batch = grid.encode(&mut encoder, points.slice(..16)).unwrap();
    group.encode_forward(&mut encoder, &batch, outputs.slice(..), Mode::Train).unwrap();
    let slopes = storage(context, &[7f32; 2 * 3 * 4]);
    group.encode_weight_gradient(&mut encoder, &batch, grads.slice(..), slopes.slice(..)).unwrap();
    group.encode_backward(&mut encoder, grads.slice(..)).unwrap();
    assert_eq!(read(context, encoder, &slopes), [0.0; 2 * 3 * 4], "a skipped step has no gradients");
    // The first index of the second bag, whose point it is.
    refuses!(group.flush(), Error::IndexOutOfRange { table: 0, position: 4, value: u32::MAX, .. });
    let mut after = group.snapshot().unwrap();
    (0..3).for_each(|level| after.counters[level].out_of_range = 0);
    assert_eq!(after, before);
}

/// Clamped or skipped, a point that is not finite has features of 0, and SGD moves no row by it.
#[gpu_test]
fn bad_points_that_are_not_refused_are_left_out(context: &Context) {
    let config = Config::new(2).with_levels(3).with_most_rows(1 << 8);
    let grid = Grid::new(context, config.clone(), 4).unwrap();
    let mut host = CpuGrid::new(config.clone()).unwrap();
    let good = [[0.5f32, 0.5], [0.1, 0.2]];
    let points = [good[0], [f32::NAN, 0.5], good[1], [0.3, f32::INFINITY]];
    let floats = 2 * 3;
    for mode in [OutOfRange::Clamp, OutOfRange::Skip] {
        let rows = config.group().unwrap().with_init(Init::Constant(0.5)).with_cache_rows(8).with_out_of_range(mode);
        let rows = rows.with_optimizer(Optimizer::sgd(0.1));
        let mut group = Group::new(context, rows.clone()).unwrap();
        let mut cpu = CpuGroup::new(rows).unwrap();
        let bags = host.bags(good.as_flattened()).unwrap();
        let wanted = cpu.forward(bags, Mode::Train).unwrap();
        cpu.backward(&vec![1.0; 2 * floats]).unwrap();

        // A gradient that is not finite, at a point that is not finite, stays outside as well.
        for (first, bad) in [(true, 1.0), (false, f32::NAN)] {
            let coordinates = storage(context, points.as_flattened());
            let grads: Vec<f32> = (0..4 * floats).map(|i| if i / 2 % 2 == 1 { bad } else { 1.0 }).collect();
            let [grads, outputs] = [grads, vec![7.0; 4 * floats]].map(|values| storage(context, &values));
            let mut encoder = caller::encoder(context);
            let batch = grid.encode(&mut encoder, coordinates.slice(..)).unwrap();
            group.encode_forward(&mut encoder, &batch, outputs.slice(..), Mode::Train).unwrap();
            group.encode_backward(&mut encoder, grads.slice(..)).unwrap();
            // [levels, points, features]: the second and the fourth point of a level are the bad ones.
            let found = read(context, encoder, &outputs);
            let (ours, bad): (Vec<_>, Vec<_>) = found.chunks(4).map(|points| points.split_at(2)).unzip();
            assert!(bad.concat() == vec![0.0; 2 * floats], "{mode:?}: {bad:?}");
            if first {
                near("output", &ours.concat(), &wanted).unwrap();
            }
        }
        let counters = group.counters().unwrap();
        assert_eq!(counters.iter().map(|table| table.out_of_range).sum::<u64>(), 2 * 3 * 2 * 4, "{mode:?}");
        let rows: Vec<u32> = (0..config.tables().unwrap().iter().sum()).collect();
        let found = group.read_rows(&rows).unwrap();
        assert!(found.iter().all(|weight| weight.is_finite()));
        // The second step has moved the good points' rows once more.
        let again = cpu.forward(bags, Mode::Train).unwrap();
        assert!(near("output", &again, &wanted).is_err(), "a step moves rows");
        cpu.backward(&vec![1.0; 2 * floats]).unwrap();
        near("row", &found, &cpu.read_rows(&rows).unwrap()).unwrap();
    }
}

/// With Adam a row that a bad point is clamped to has gradient 0: its moments move it. A gradient that is not finite leaves it as it is.
#[gpu_test]
fn bad_points_that_are_clamped_touch_the_last_row(context: &Context) {
    let config = Config::new(2).with_levels(2).with_coarsest(4).with_most_rows(1 << 8);
    let grid = Grid::new(context, config.clone(), 1).unwrap();
    let mut host = CpuGrid::new(config.clone()).unwrap();
    let rows = config.group().unwrap().with_init(Init::Constant(0.5)).with_cache_rows(8);
    let rows = rows.with_out_of_range(OutOfRange::Clamp).with_optimizer(Optimizer::adam(0.1));
    let (mut group, mut cpu) = (Group::new(context, rows.clone()).unwrap(), CpuGroup::new(rows).unwrap());
    let last: u32 = config.tables().unwrap().iter().sum::<u32>() - 1;
    let mut weights = vec![0.5];
    // The corner of the last row gets moments; then a point that is not a number comes, with gradients 1 and then NaN.
    for (point, grad) in [([1.0f32, 1.0], 1.0f32), ([f32::NAN, 1.0], 1.0), ([f32::NAN, 1.0], f32::NAN)] {
        let bags = host.bags(&[1.0, 1.0]).unwrap();
        let (mut indices, mut shares) = (bags.indices.to_vec(), bags.weights.unwrap().to_vec());
        if point[0].is_nan() {
            indices.fill(u32::MAX);
            shares.fill(0.0);
        }
        let outputs = cpu.forward(Bags::new(&indices, bags.offsets).with_weights(Some(&shares)), Mode::Train).unwrap();
        cpu.backward(&vec![grad; outputs.len()]).unwrap();
        let (coordinates, grads) = (storage(context, &point), storage(context, &vec![grad; outputs.len()]));
        let found = storage(context, &outputs);
        let mut encoder = caller::encoder(context);
        let batch = grid.encode(&mut encoder, coordinates.slice(..)).unwrap();
        group.encode_forward(&mut encoder, &batch, found.slice(..), Mode::Train).unwrap();
        group.encode_backward(&mut encoder, grads.slice(..)).unwrap();
        near("output", &read(context, encoder, &found), &outputs).unwrap();
        let [ours, theirs] = [group.read_rows(&[last]).unwrap(), cpu.read_rows(&[last]).unwrap()];
        near("row", &ours, &theirs).unwrap();
        weights.push(ours[0]);
    }
    assert!(weights[1] < weights[0] && weights[2] < weights[1], "gradient 0: moved by its moments: {weights:?}");
    assert_eq!(weights[3], weights[2], "a gradient that is not finite moves no row");
}

/// The features of points as a caller's shader finds them, `[points, levels, features]`.
fn shown(context: &Context, reader: &mut RowReader, config: &Config, points: &[f32]) -> Vec<f32> {
    let n = (config.levels * config.features) as usize;
    let mine = "
        @group(0) @binding(0) var<storage, read> points: array<f32>;
        @group(0) @binding(1) var<storage, read_write> found: array<f32>;

        @compute @workgroup_size(64)
        fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            if (id.x >= arrayLength(&points) / DIMSu) { return; }
            var x = vecDIMS<f32>();
            for (var axis = 0u; axis < DIMSu; axis++) { x[axis] = points[id.x * DIMSu + axis]; }
            var features = emb_grid(x);
            for (var i = 0u; i < COUNTu; i++) { found[id.x * COUNTu + i] = features[i]; }
        }
    ";
    let mine = mine.replace("DIMS", &config.dims.to_string()).replace("COUNT", &n.to_string());
    let text = reader.wgsl().to_owned() + &mine;
    let shader = Shader::new(context, text, &[READ, WRITE], Some(reader.layout()));
    let count = points.len() / config.dims as usize;
    let (asked, found) = (storage(context, points), storage(context, &vec![0f32; count * n]));
    let mut encoder = caller::encoder(context);
    let reader = Some(reader.bind_group().unwrap());
    shader.dispatch(&mut encoder, &[&asked, &found], reader, (count as u32).div_ceil(64));
    read(context, encoder, &found)
}

/// What a frozen forward gives for these points, `[points, levels, features]`.
fn looked_up(table: &mut dyn Lookup, config: &Config, points: &[f32]) -> Vec<f32> {
    let mut grid = CpuGrid::new(config.clone()).unwrap();
    let outputs = table.forward(grid.bags(points).unwrap(), Mode::Frozen).unwrap();
    let (n, f) = (points.len() / config.dims as usize, config.features as usize);
    let of =
        |point| (0..config.levels as usize).flat_map(move |level| (0..f).map(move |k| (level * n + point) * f + k));
    (0..n).flat_map(of).map(|at| outputs[at]).collect()
}

#[gpu_test]
fn a_shader_reads_the_features_of_a_point(context: &Context) {
    let init = Init::Uniform { low: -1.0, high: 1.0 };
    let mut source = Pcg64::seed_from_u64(hotrow_harness::seed_for("points of a shader"));
    for (dims, features, outside) in
        [(2, 1, Outside::Wrap), (3, 2, Outside::Clamp), (2, 4, Outside::Clamp), (3, 8, Outside::Wrap)]
    {
        let config = Config::new(dims).with_levels(5).with_coarsest(4).with_most_rows(1 << 10);
        let config = config.with_features(features).with_outside(outside);
        let points: Vec<f32> = (0..200 * dims).map(|_| source.random_range(-0.2..1.2)).collect();
        let wanted = |stages| Reader { prefix: "emb", group: 1, stages, grid: Some(&config), ..Reader::default() };
        let wanted = wanted(wgpu::ShaderStages::COMPUTE);
        let rows = config.group().unwrap().with_init(init).with_cache_rows(64);
        let mut group = Group::new(context, rows.with_precision(Precision::Fp16)).unwrap();
        let found = shown(context, &mut group.reader(wanted).unwrap(), &config, &points);
        let right = looked_up(&mut group, &config, &points);
        near("feature", &found, &right).unwrap();
        let array = config.array().unwrap().with_init(init).with_precision(Precision::Int8);
        let mut array = SharedGroup::new(context, array).unwrap();
        let found = shown(context, &mut array.reader(wanted).unwrap(), &config, &points);
        near("feature", &found, &looked_up(&mut array, &config, &points)).unwrap();
        assert!(near("feature", &found, &right).is_err(), "the other table has other rows");

        let other = config.clone().with_levels(4);
        refuses!(group.reader(Reader { grid: Some(&other), ..wanted }), Error::Reader { what: "grid", .. });
        let refused = array.reader(Reader { grid: Some(&other.with_levels(0)), ..wanted });
        refuses!(refused, Error::Grid { what: "levels", .. });
    }
}
