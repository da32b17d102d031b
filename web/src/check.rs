//! The self-test: a random small group on the device in lockstep with one on the CPU. Integers must be equal; floats may differ in their last
//! bits, because WGSL lets a driver fuse and reorder within an expression, and a code may then be its neighbour (SPEC 3).

use hotrow::{
    Bags, Context, CpuGroup, Error, Group, GroupConfig, Init, Mode, Optimizer, OptimizerKind, OutOfRange, OutputSlice,
    Placement, Policy, Pooling, Precision, Rounding,
    prelude::*,
    state::{self, Part},
};
use hotrow_report::fmix32;

/// Difference that floats of one expression may have, relative to its largest term.
const RELATIVE: f32 = 16.0 * f32::EPSILON;
/// Bound of the terms: weights stay below 1, and a bag has at most 4 rows of weights below 2.
const SIZE: f32 = 8.0;
const STEPS: u32 = 3;

/// Numbers from a seed.
struct Draw(u32);

impl Draw {
    fn below(&mut self, n: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9E37_79B9);
        fmix32(self.0) % n
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u32) as usize]
    }

    /// In [-1, 1).
    fn float(&mut self) -> f32 {
        self.below(1 << 16) as f32 / 32768.0 - 1.0
    }
}

/// As `Page::check`.
pub(crate) async fn run(context: &Context, seed: u32, spoil: bool) -> String {
    let draw = &mut Draw(fmix32(seed + 1));
    // Every precision comes in turn.
    let precision = Precision::ALL[seed as usize % Precision::ALL.len()];
    let tables = [40 + draw.below(400), 30 + draw.below(100)];
    let mut config = GroupConfig::new(&tables, draw.one_of(&[3, 8, 12, 20, 64]))
        .with_precision(precision)
        .with_cache_rows(draw.one_of(&[0, 32, 64, 128]).min(tables[0]))
        .with_policy(draw.one_of(&[Policy::Lru, Policy::Lfu]))
        .with_pooling(draw.one_of(&[Pooling::Sum, Pooling::Mean, Pooling::None]))
        .with_rounding(draw.one_of(&[Rounding::Nearest, Rounding::Stochastic]))
        .with_optimizer(draw.one_of(&[Optimizer::sgd(0.1), Optimizer::adagrad(0.1), Optimizer::row_wise_adagrad(0.1)]))
        .with_placement(draw.one_of(&[Placement::Device, Placement::Device, Placement::Staged]))
        .with_out_of_range(draw.one_of(&[OutOfRange::Error, OutOfRange::Skip, OutOfRange::Clamp]))
        .with_init(Init::Uniform { low: -0.5, high: 0.5 });
    config.seed = u64::from(seed) as _;
    let name = format!(
        "{}, {} rows x {}, {} cached, {}, {:?}, {:?}",
        precision.name(),
        tables[0] + tables[1],
        config.dim,
        config.cache_rows,
        config.policy.name(),
        config.placement,
        config.pooling
    );
    match lockstep(context, &config, draw, spoil).await {
        Ok(None) => name,
        Ok(Some(difference)) => format!("{name}: {difference}"),
        Err(error) => format!("{name}: {error}"),
    }
}

/// Runs both groups and returns the first difference.
async fn lockstep(
    context: &Context,
    config: &GroupConfig,
    draw: &mut Draw,
    spoil: bool,
) -> Result<Option<String>, Error> {
    let mut gpu = Group::new_async(context, config.clone()).await?;
    let mut cpu = CpuGroup::new(config.clone())?;
    for step in 0..STEPS {
        let (mut indices, mut offsets) = (Vec::new(), vec![0]);
        for &rows in &config.tables {
            for _bag in 0..16 {
                for _index in 0..draw.below(5) {
                    // Half of them come from a few hot rows.
                    let most = if draw.below(2) == 0 { rows / 8 } else { rows };
                    indices.push(draw.below(most));
                }
                offsets.push(indices.len() as u32);
            }
        }
        if config.out_of_range != OutOfRange::Error && !indices.is_empty() {
            indices[0] = u32::MAX;
        }
        let weights: Vec<f32> = indices.iter().map(|_| 1.0 + draw.float()).collect();
        let weights = (draw.below(2) == 0).then_some(weights.as_slice());
        let mut expected = cpu.forward(Bags::new(&indices, &offsets).with_weights(weights), Mode::Train)?;
        let mut outputs = vec![0.0; expected.len()];
        gpu.forward_into_async(
            Bags::new(&indices, &offsets).with_weights(weights),
            Mode::Train,
            OutputSlice::F32(&mut outputs),
        )
        .await?;
        if spoil && let Some(first) = expected.first_mut() {
            *first += 0.25;
        }
        if let Some(difference) = floats("outputs", &outputs, &expected) {
            return Ok(Some(format!("step {step}, {difference}")));
        }
        let grads: Vec<f32> = outputs.iter().map(|_| draw.float()).collect();
        gpu.backward_async(&grads).await?;
        cpu.backward(&grads)?;
        if step + 1 == STEPS {
            gpu.flush_async().await?;
            cpu.flush()?;
        }
        if let Some(difference) = states(&mut gpu, &mut cpu).await? {
            return Ok(Some(format!("step {step}, {difference}")));
        }
    }
    Ok(None)
}

/// Compares the states of both groups, and gives the CPU that of the device.
async fn states(gpu: &mut Group, cpu: &mut CpuGroup) -> Result<Option<String>, Error> {
    for part in Part::ALL {
        let mut theirs = vec![0; part.words(gpu.config(), cpu.layout()) as usize];
        let mut ours = theirs.clone();
        gpu.read_part_async(part, 0, &mut theirs).await?;
        cpu.read_part(part, 0, &mut ours)?;
        let difference = match part {
            Part::Cache => floats("cache", &values(&theirs), &values(&ours)),
            Part::Records => records(gpu.config(), &theirs, &ours)?,
            _ => theirs
                .iter()
                .zip(&ours)
                .position(|(a, b)| a != b)
                .map(|at| format!("{part:?}[{at}]: {} on the device, {} on the CPU", theirs[at], ours[at])),
        };
        if difference.is_some() {
            return Ok(difference);
        }
        cpu.write_part(part, 0, &theirs)?;
    }
    Ok(None)
}

fn values(words: &[u32]) -> Vec<f32> {
    words.iter().map(|&word| f32::from_bits(word)).collect()
}

fn close(a: f32, b: f32, size: f32) -> bool {
    a == b || (a - b).abs() <= RELATIVE * size.max(a.abs()).max(b.abs())
}

fn floats(what: &str, device: &[f32], cpu: &[f32]) -> Option<String> {
    let at = device.iter().zip(cpu).position(|(&a, &b)| !close(a, b, SIZE))?;
    Some(format!("{what}[{at}]: {} on the device, {} on the CPU", device[at], cpu[at]))
}

/// Values are close, or their codes are neighbours.
fn records(config: &GroupConfig, device: &[u32], cpu: &[u32]) -> Result<Option<String>, Error> {
    let words = device.len() / config.total_rows() as usize;
    // Sums of squares in halves; the sum of a row is a float.
    let halves = config.precision != Precision::Fp32 && config.optimizer.kind == OptimizerKind::AdaGrad;
    for (number, (a, b)) in device.chunks_exact(words).zip(cpu.chunks_exact(words)).enumerate() {
        if a == b {
            continue;
        }
        let half = |x: f32, y: f32| x.abs().max(y.abs()) / 1024.0 + 2f32.powi(-24);
        let (device, cpu) = (state::values(config, a)?, state::values(config, b)?);
        for (element, (&x, &y)) in device.iter().zip(&cpu).enumerate() {
            if element >= config.dim as usize {
                let neighbour = if halves { half(x, y) } else { 0.0 };
                if !close(x, y, SIZE * SIZE) && (x - y).abs() > neighbour {
                    return Ok(Some(format!("record {number}, float {element}: {x} on the device, {y} on the CPU")));
                }
                continue;
            }
            let neighbour = match config.precision {
                Precision::Fp32 => 0.0,
                Precision::Fp16 => half(x, y),
                _ => f32::from_bits(a[0]) * 1.001,
            };
            if !close(x, y, SIZE) && (x - y).abs() > neighbour {
                return Ok(Some(format!("record {number}, element {element}: {x} on the device, {y} on the CPU")));
            }
        }
    }
    Ok(None)
}
