//! Fits a grey image: a hash grid of learned rows (Müller et al. 2022) and a small perceptron that turns the features of a point into its
//! brightness. The set-up is that of tiny-cuda-nn's `config_hash.json`: 16 levels of 2 features in tables of 2^15 rows.
//!
//! `cargo run --release --example fit_image -- --image FILE`, a PNG or a JPEG.
#![allow(clippy::print_stdout, reason = "an example shows its result")]

mod mlp;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Parser as _;
use hotrow::{
    CpuGrid, CpuGroup, CpuRobeGroup, Group, Init, Lookup, Optimizer, OptimizerKind, Precision, RobeGroup, adapter, grid,
};
use mlp::{Adam, Mlp};
use rand::{RngExt as _, SeedableRng as _};
use rayon::prelude::*;

type Failure = Box<dyn std::error::Error>;

#[derive(clap::Parser)]
struct Args {
    /// The image, PNG or JPEG; its grey values are fitted.
    #[arg(long)]
    image: PathBuf,
    /// The tables: `rows`, each packed by itself, or `array`, rows side by side in an array with a scale for each block of 64 weights.
    #[arg(long, default_value = "rows", value_parser = ["rows", "array"])]
    table: String,
    /// Precision of the tables: fp32, fp16 or int8.
    #[arg(long, default_value = "fp16")]
    precision: Precision,
    /// Update rule of the tables.
    #[arg(long, default_value = "adagrad")]
    optimizer: OptimizerKind,
    /// Learning rate of the tables [default: 0.05 with AdaGrad, 0.01 with Adam].
    #[arg(long)]
    lr: Option<f32>,
    /// Learning rate of the perceptron.
    #[arg(long, default_value_t = 0.007)]
    mlp_lr: f32,
    /// Share of the learning rates that is left at the end; they fall during the second half of the steps.
    #[arg(long, default_value_t = 0.05)]
    last: f32,
    #[arg(long, default_value_t = 1200)]
    steps: u32,
    /// Points of a step.
    #[arg(long, default_value_t = 1 << 14)]
    batch: usize,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where the tables are: cpu, or gpu.
    #[arg(long, default_value = "cpu", value_parser = ["cpu", "gpu"])]
    backend: String,
    /// Fail if the PSNR at the end is lower, in dB.
    #[arg(long)]
    least: Option<f64>,
    /// Folder for the pictures `fit.png` and `error.png` (grey: no error).
    #[arg(long)]
    out: Option<PathBuf>,
}

const LEVELS: usize = 16;
const FEATURES: usize = 2;
/// Points that are predicted at once.
const AT_ONCE: usize = 1 << 14;

fn main() -> Result<(), Failure> {
    let args = Args::parse();
    let image = Image::open(&args.image)?;
    let mut rng = rand_pcg::Pcg64::seed_from_u64(args.seed);
    let mut fit = Fit::new(&args, &mut rng)?;
    // The same pixels for every seed.
    let mut fixed = rand_pcg::Pcg64::seed_from_u64(0);
    let pixels: Vec<_> = (0..65_536).map(|_| image.sides.map(|side| fixed.random_range(0..side))).collect();
    let (mut spent, mut reached) = (Duration::ZERO, 0.0);
    for step in 1..=args.steps {
        let start = Instant::now();
        let share = args.last.powf((2.0 * step as f32 / args.steps as f32 - 1.0).max(0.0));
        let points: Vec<[f32; 2]> = (0..args.batch).map(|_| [rng.random(), rng.random()]).collect();
        let targets: Vec<_> = points.par_iter().map(|point| image.at(*point)).collect();
        let loss = fit.step(&points, &targets, share)?;
        spent += start.elapsed();
        if step % 100 == 0 || step == args.steps {
            reached = fit.psnr(&image, &pixels)?;
            println!("step {step}: loss {loss:.6}, PSNR {reached:.2} dB, {spent:.1?}");
        }
    }
    if let Some(least) = args.least.filter(|least| reached < *least) {
        return Err(format!("--least: wanted a PSNR of {least} dB, found {reached:.2}").into());
    }
    if let Some(folder) = &args.out {
        std::fs::create_dir_all(folder)?;
        let [width, height] = image.sides;
        let all: Vec<_> = (0..height).flat_map(|y| (0..width).map(move |x| [x, y])).collect();
        let found = fit.predict(&image, &all)?;
        println!("all pixels: PSNR {:.2} dB", psnr(&found, &image.values));
        let save = |name: &str, values: Vec<f32>| {
            let bytes = values.into_iter().map(|value| (value.clamp(0.0, 1.0) * 255.0).round() as u8).collect();
            image::GrayImage::from_raw(width, height, bytes)
                .ok_or("wanted a value for each pixel")?
                .save(folder.join(name))?;
            Ok::<(), Failure>(())
        };
        // Ten times the error, around the middle.
        save(
            "error.png",
            found.iter().zip(&image.values).map(|(found, wanted)| 0.5 + 10.0 * (found - wanted)).collect(),
        )?;
        save("fit.png", found)?;
    }
    Ok(())
}

/// A grey image, values from 0 to 1.
struct Image {
    sides: [u32; 2],
    values: Vec<f32>,
}

impl Image {
    fn open(file: &std::path::Path) -> Result<Self, Failure> {
        let grey = image::open(file).map_err(|error| format!("{}: {error}", file.display()))?.into_luma8();
        let sides = [grey.width(), grey.height()];
        Ok(Self { sides, values: grey.into_raw().into_iter().map(|value| f32::from(value) / 255.0).collect() })
    }

    /// The value of a pixel; behind the edge, that of the edge.
    fn pixel(&self, x: u32, y: u32) -> f32 {
        self.values[y.min(self.sides[1] - 1) as usize * self.sides[0] as usize + x.min(self.sides[0] - 1) as usize]
    }

    /// The bilinear value at a point of the unit square.
    fn at(&self, point: [f32; 2]) -> f32 {
        let place = [0, 1].map(|i| (point[i] * self.sides[i] as f32 - 0.5).max(0.0));
        let [x, y] = place.map(|at| at as u32);
        let [u, v] = [place[0] - x as f32, place[1] - y as f32];
        let line = |y| self.pixel(x, y) * (1.0 - u) + self.pixel(x + 1, y) * u;
        line(y) * (1.0 - v) + line(y + 1) * v
    }

    /// The middle of a pixel.
    fn point(&self, pixel: [u32; 2]) -> [f32; 2] {
        [0, 1].map(|i| (pixel[i] as f32 + 0.5) / self.sides[i] as f32)
    }
}

/// The ratio of the largest value's square, 1, to the mean squared error, in dB.
fn psnr(found: &[f32], wanted: &[f32]) -> f64 {
    let off = |(found, wanted): (&f32, &f32)| f64::from(found.clamp(0.0, 1.0) - wanted).powi(2);
    -10.0 * (found.iter().zip(wanted).map(off).sum::<f64>() / wanted.len() as f64).log10()
}

/// What is learned.
struct Fit {
    grid: CpuGrid,
    tables: Box<dyn Lookup>,
    mlp: Mlp,
    lr: f32,
    mlp_lr: f32,
}

impl Fit {
    fn new(args: &Args, rng: &mut impl rand::Rng) -> Result<Self, Failure> {
        let config =
            grid::Config::new(2).with_levels(LEVELS as u32).with_features(FEATURES as u32).with_most_rows(1 << 15);
        let grid = CpuGrid::new(config.clone())?;
        let (rows, init) = (config.tables()?, Init::Uniform { low: -1e-4, high: 1e-4 });
        let (default, rule) = match args.optimizer {
            OptimizerKind::AdaGrad => (0.05, Optimizer::adagrad(0.05)),
            OptimizerKind::Adam => (0.01, Optimizer::adam(0.01).with_beta2(0.99).with_eps(1e-15)),
            other => return Err(format!("--optimizer: wanted adagrad or adam, found {other}").into()),
        };
        let lr = args.lr.unwrap_or(default);
        let rule = rule.with_lr(lr);
        let context = match args.backend.as_str() {
            "gpu" => Some(adapter::open_best(adapter::Wanted::Any)?),
            _ => None,
        };
        let tables: Box<dyn Lookup> = if args.table == "rows" {
            let config = config.group()?.with_precision(args.precision);
            let config = config.with_optimizer(rule).with_init(init).with_seed(args.seed as u32);
            match &context {
                Some(context) => Box::new(Group::new(context, config)?),
                None => Box::new(CpuGroup::new(config)?),
            }
        } else {
            let config = config.array()?.with_precision(args.precision);
            let config = config.with_optimizer(rule).with_init(init).with_seed(args.seed as u32);
            match &context {
                Some(context) => Box::new(RobeGroup::new(context, config)?),
                None => Box::new(CpuRobeGroup::new(config)?),
            }
        };
        let mlp = Mlp::new(LEVELS * FEATURES, rng);
        let parameters = rows.iter().map(|rows| *rows as usize).sum::<usize>() * FEATURES;
        let memory = tables.memory();
        println!(
            "{parameters} parameters in tables of {} bytes and states of {}: {:.3} bytes a parameter while training; {} in the perceptron",
            memory.payload + memory.scales,
            memory.record_state,
            (memory.payload + memory.scales + memory.record_state) as f64 / parameters as f64,
            mlp.parameters()
        );
        Ok(Self { grid, tables, mlp, lr, mlp_lr: args.mlp_lr })
    }

    /// Moves everything once. `share` is the part of the learning rates that is in force.
    fn step(&mut self, points: &[[f32; 2]], targets: &[f32], share: f32) -> Result<f64, Failure> {
        let bags = self.grid.bags(points.as_flattened())?;
        let outputs = self.tables.forward(&bags.indices, &bags.offsets, Some(&bags.weights))?;
        let features = turned(&outputs, points.len(), LEVELS);
        let mut grads = vec![0.0; features.len()];
        let adam = Adam { lr: self.mlp_lr * share, betas: [0.9, 0.99], eps: 1e-15 };
        let loss = self.mlp.train(&features, targets, &mut grads, adam);
        // Of the sum of the errors, not of their mean: both rules go by the gradient's direction, and FP16 states hold it.
        grads.iter_mut().for_each(|grad| *grad *= points.len() as f32);
        self.tables.set_learning_rate(self.lr * share)?;
        self.tables.backward(&turned(&grads, LEVELS, points.len()))?;
        Ok(loss)
    }

    fn predict(&mut self, image: &Image, pixels: &[[u32; 2]]) -> Result<Vec<f32>, Failure> {
        let mut found = Vec::with_capacity(pixels.len());
        for pixels in pixels.chunks(AT_ONCE) {
            let points: Vec<_> = pixels.iter().map(|pixel| image.point(*pixel)).collect();
            let bags = self.grid.bags(points.as_flattened())?;
            let outputs = self.tables.forward_frozen(&bags.indices, &bags.offsets, Some(&bags.weights))?;
            found.extend(self.mlp.forward(&turned(&outputs, points.len(), LEVELS)));
        }
        Ok(found)
    }

    fn psnr(&mut self, image: &Image, pixels: &[[u32; 2]]) -> Result<f64, Failure> {
        let wanted: Vec<_> = pixels.iter().map(|&[x, y]| image.pixel(x, y)).collect();
        Ok(psnr(&self.predict(image, pixels)?, &wanted))
    }
}

/// `[columns, rows, FEATURES]` as `[rows, columns, FEATURES]`.
fn turned(from: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    let mut to = vec![0.0; from.len()];
    to.par_chunks_mut(columns * FEATURES).enumerate().for_each(|(row, to)| {
        for (column, to) in to.chunks_exact_mut(FEATURES).enumerate() {
            to.copy_from_slice(&from[(column * rows + row) * FEATURES..][..FEATURES]);
        }
    });
    to
}
