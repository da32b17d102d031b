//! Steps of a hash grid in the set-up of tiny-cuda-nn's `config_hash.json`, without the perceptron: points to batches, their forward, the
//! gradient of the coordinates, the backward. Rows of a table, rows side by side in an array; sums by a sort, and by atomic additions.

use anyhow::ensure;
use hotrow::internals::Device as _;
use hotrow::{
    CpuGrid, CpuGroup, CpuRobeGroup, Grid, Group, Lookup, Optimizer, Precision, RobeGroup, StatePrecision,
    grid::Config, hash::fmix32, robe::Backward, wgpu,
};

use super::bench::{Bench, LR};
use crate::report::{Setting, Unit};

const LEVELS: u32 = 16;
const FEATURES: u32 = 2;
/// Corners of a cell of the plane.
const CORNERS: u32 = 4;

/// What is measured, by name.
const TABLES: [&str; 4] =
    ["rows, FP16, AdaGrad", "array, FP16, Adam in INT8", "array, FP32, AdaGrad", "array, FP32, AdaGrad, atomic"];

enum Tables {
    Rows(Box<Group>),
    Array(Box<RobeGroup>),
}

macro_rules! either {
    ($tables:expr, $one:ident => $call:expr) => {
        match $tables {
            Tables::Rows($one) => $call,
            Tables::Array($one) => $call,
        }
    };
}

pub(super) fn run(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    for name in TABLES {
        if let Some(reason) = bench.deadline.over() {
            bench.run.leave_out(format!("grid, {name}"), reason);
            continue;
        }
        one(bench, name)?;
        // The driver frees the tables when the device is next polled.
        bench.lab.submit(bench.lab.encoder())?;
    }
    Ok(())
}

/// The tables on the device, and the same on the host.
fn tables(bench: &Bench<'_>, config: &Config, name: &str) -> anyhow::Result<(Tables, Box<dyn Lookup>)> {
    let context = &bench.lab.timed;
    if name.starts_with("rows") {
        let rows = config.group()?.with_precision(Precision::Fp16).with_optimizer(Optimizer::adagrad(LR));
        return Ok((Tables::Rows(Box::new(Group::new(context, rows.clone())?)), Box::new(CpuGroup::new(rows)?)));
    }
    let array = config.array()?.with_optimizer(Optimizer::adagrad(LR));
    let array = match name {
        "array, FP16, Adam in INT8" => array
            .with_precision(Precision::Fp16)
            .with_state(Some(StatePrecision::Int8))
            .with_optimizer(Optimizer::adam(LR)),
        "array, FP32, AdaGrad, atomic" => array.with_backward(Backward::Atomic),
        _ => array,
    };
    Ok((Tables::Array(Box::new(RobeGroup::new(context, array.clone())?)), Box::new(CpuRobeGroup::new(array)?)))
}

fn one(bench: &mut Bench<'_>, name: &str) -> anyhow::Result<()> {
    let lab = bench.lab;
    let points = bench.size.of(1 << 10, 1 << 18);
    let config =
        Config::new(2).with_levels(LEVELS).with_features(FEATURES).with_most_rows(bench.size.of(1 << 12, 1 << 15));
    let (mut tables, mut host) = tables(bench, &config, name)?;
    let grid = Grid::new(&lab.timed, config.clone())?;
    let bags = grid.bags(points)?;
    let places: Vec<f32> = (0..2 * points).map(|i| (fmix32(i) >> 8) as f32 / (1 << 24) as f32).collect();
    let at = lab.storage(bytemuck::cast_slice(&places));
    let none = wgpu::BufferUsages::empty();
    let outputs_bytes = u64::from(LEVELS * points * FEATURES) * 4;
    let [outputs, slopes, moves] = [outputs_bytes, u64::from(LEVELS * points * CORNERS) * 4, u64::from(2 * points) * 4]
        .map(|bytes| lab.room(bytes, none));
    let mut encoder = lab.encoder();
    grid.record(&mut encoder, at.slice(..), &bags)?;
    let batch = bags.batch(points)?;
    either!(&mut tables, one => one.record_forward_frozen(&mut encoder, &batch, outputs.slice(..outputs_bytes)))?;
    let found = lab.timed.download(encoder, &[(&outputs, outputs_bytes)])?;
    let wanted = CpuGrid::new(config)?.bags(&places)?;
    let wanted = host.forward_frozen(&wanted.indices, &wanted.offsets, Some(&wanted.weights))?;
    let wrong = found[0].iter().zip(&wanted).position(|(&a, b)| (f32::from_bits(a) - b).abs() > 1e-5 * b.abs() + 1e-9);
    ensure!(found[0].len() == wanted.len(), "wanted {} outputs of the grid, found {}", wanted.len(), found[0].len());
    if let Some(i) = wrong {
        let found = f32::from_bits(found[0][i]);
        bench.run.wrong.push(format!("grid, {name}: wanted output {i} to be {}, found {found}", wanted[i]));
        return Ok(());
    }
    // The gradients are the outputs themselves.
    let measured = lab.measure(&["grid", "forward", "coordinates", "backward"], |phase, encoder| {
        let outputs = outputs.slice(..outputs_bytes);
        match phase {
            0 => grid.record(encoder, at.slice(..), &bags)?,
            1 => either!(&mut tables, one => one.record_forward(encoder, &batch, outputs))?,
            2 => {
                either!(&mut tables, one => one.record_weight_gradient(encoder, &batch, outputs, slopes.slice(..)))?;
                grid.record_coordinate_gradient(encoder, at.slice(..), slopes.slice(..), moves.slice(..))?;
            }
            _ => either!(&mut tables, one => one.record_backward(encoder, outputs))?,
        }
        Ok(())
    })?;
    bench.run.describe(
        "grid",
        format!("{points} points of a plane, {LEVELS} levels of {FEATURES} features, as tiny-cuda-nn's config_hash.json; no perceptron"),
    );
    let mut record = bench.run.at("grid", &Setting::default().with("tables", name));
    let mut step = Some(0.0);
    for phase in ["grid", "forward", "coordinates", "backward"] {
        let times = measured.phase(phase);
        step = step.zip(times).map(|(step, times)| step + times.median);
        record.timed(phase, times);
    }
    record.push("step", step, Unit::Seconds);
    Ok(())
}
