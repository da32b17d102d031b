//! Steps of a hash grid in the set-up of tiny-cuda-nn's `config_hash.json`, without the perceptron: points to batches, their forward, the
//! gradient of the coordinates, the backward. Rows lie side by side in an array; sums by a sort, and by atomic additions.

use hotrow::internals::Device as _;
use hotrow::{
    CpuGrid, CpuSharedGroup, Grid, Mode, Optimizer, Precision, SharedGroup, StatePrecision, grid,
    internals::hash::fmix32, prelude::*, robe::Backward, robe::Config, wgpu,
};

use super::bench::{Bench, LR};
use hotrow_report::records::{Setting, Unit};

const LEVELS: u32 = 16;
const FEATURES: u32 = 2;
/// Corners of a cell of the plane.
const CORNERS: u32 = 4;

/// An array's name, and its settings beside AdaGrad's.
type Table = (&'static str, fn(Config) -> Config);

const TABLES: [Table; 3] = [
    ("array, FP16, Adam in INT8", |array| {
        array.with_precision(Precision::Fp16).with_state(Some(StatePrecision::Int8)).with_optimizer(Optimizer::adam(LR))
    }),
    ("array, FP32, AdaGrad", |array| array),
    ("array, FP32, AdaGrad, atomic", |array| array.with_backward(Backward::Atomic)),
];

const PHASES: [&str; 4] = ["grid", "forward", "coordinates", "backward"];

pub(super) fn run(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    bench.each(TABLES.map(|table| (format!("grid, {}", table.0), table)), one)
}

fn one(bench: &mut Bench<'_>, (name, settings): Table) -> anyhow::Result<()> {
    let clock = bench.clock;
    let points = bench.size.of(1 << 10, 1 << 18);
    let config = grid::Config::new(2)
        .with_levels(LEVELS)
        .with_features(FEATURES)
        .with_most_rows(bench.size.of(1 << 12, 1 << 15));
    let array = settings(config.array()?.with_optimizer(Optimizer::adagrad(LR)));
    let mut table = SharedGroup::new(&clock.timed, array.clone())?;
    let grid = Grid::new(&clock.timed, config.clone(), points)?;
    let places: Vec<f32> = (0..2 * points).map(|i| (fmix32(i) >> 8) as f32 / (1 << 24) as f32).collect();
    let at = clock.storage(bytemuck::cast_slice(&places));
    let outputs_bytes = u64::from(LEVELS * points * FEATURES) * 4;
    let [outputs, slopes, moves] = [outputs_bytes, u64::from(LEVELS * points * CORNERS) * 4, u64::from(2 * points) * 4]
        .map(|bytes| clock.room(bytes, wgpu::BufferUsages::empty()));
    let mut encoder = clock.encoder();
    let batch = grid.encode(&mut encoder, at.slice(..))?;
    table.encode_forward(&mut encoder, &batch, outputs.slice(..outputs_bytes), Mode::Frozen)?;
    let found = clock.timed.download(encoder, &[(&outputs, outputs_bytes)])?;
    let found: Vec<f32> = found[0].iter().map(|&word| f32::from_bits(word)).collect();
    let wanted = CpuSharedGroup::new(array)?.forward(CpuGrid::new(config)?.bags(&places)?, Mode::Frozen)?;
    let wrong = found.iter().zip(&wanted).position(|(a, b)| (a - b).abs() > 1e-5 * b.abs() + 1e-9);
    if let Some(i) = wrong.or_else(|| (found.len() != wanted.len()).then_some(0)) {
        bench.run.wrong.push(format!("grid, {name}: wanted output {i} to be {}, found {}", wanted[i], found[i]));
        return Ok(());
    }
    // The gradients are the outputs themselves.
    let measured = clock.measure(&PHASES, |phase, encoder| {
        let outputs = outputs.slice(..outputs_bytes);
        match phase {
            0 => drop(grid.encode(encoder, at.slice(..))?),
            1 => table.encode_forward(encoder, &batch, outputs, Mode::Train)?,
            2 => {
                table.encode_weight_gradient(encoder, &batch, outputs, slopes.slice(..))?;
                grid.encode_coordinate_gradient(encoder, at.slice(..), slopes.slice(..), moves.slice(..))?;
            }
            _ => table.encode_backward(encoder, outputs)?,
        }
        Ok(())
    })?;
    bench.run.describe(
        "grid",
        format!("{points} points of a plane, {LEVELS} levels of {FEATURES} features, as tiny-cuda-nn's config_hash.json; no perceptron"),
    );
    let mut record = bench.run.at("grid", &Setting::default().with("tables", name));
    PHASES.into_iter().for_each(|phase| record.timed(phase, measured.phase(phase)));
    let step: Option<f64> = PHASES.into_iter().map(|phase| Some(measured.phase(phase)?.median)).sum();
    record.push("step", step, Unit::Seconds);
    Ok(())
}
