//! Fits a grey image: a hash grid of learned rows (Müller et al. 2022) and a small perceptron that turns the features of a point into its
//! brightness. The set-up is that of tiny-cuda-nn's `config_hash.json`: 16 levels of 2 features in tables of 2^15 rows.
//!
//! `cargo run --release --example fit_image -- --image FILE`, a PNG or a JPEG.
#![allow(clippy::print_stdout, reason = "an example shows its result")]

mod device;
mod mlp;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser as _;
use device::{Device, Tables};
use hotrow::robe::RobeSnapshot;
use hotrow::{
    CpuGrid, CpuGroup, CpuSharedGroup, Group, Init, Mode, Optimizer, OptimizerKind, Precision, Rounding, SharedGroup,
    StatePrecision, adapter, checkpoint, grid, prelude::*,
};
use mlp::Mlp;
use rand::{RngExt as _, SeedableRng as _};
use rayon::prelude::*;

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[derive(clap::Parser)]
struct Args {
    /// The image, PNG or JPEG; its grey values are fitted.
    #[arg(long)]
    image: PathBuf,
    /// The tables: `rows`, each packed by itself, or `array`, rows side by side in an array with a scale for each block of 64 weights.
    #[arg(long, default_value = "rows", value_parser = ["rows", "array"])]
    table: String,
    /// Precision of the tables: fp32 or fp16; with `--table array` int8, int4 or int2 too.
    #[arg(long, default_value = "fp16")]
    precision: Precision,
    /// Rounding of the tables: nearest or stochastic.
    #[arg(long, default_value = "stochastic")]
    rounding: Rounding,
    /// Type of the optimiser's state: fp32, fp16 or int8 [default: fp32 beside fp32, else fp16].
    #[arg(long)]
    state: Option<StatePrecision>,
    /// Update rule of the tables.
    #[arg(long, default_value = "adagrad")]
    optimizer: OptimizerKind,
    /// Learning rate of the tables [default: 0.05 with AdaGrad, 0.01 with Adam].
    #[arg(long)]
    lr: Option<f32>,
    /// The rule's eps [default: 1e-8 with AdaGrad, 1e-15 with Adam].
    #[arg(long)]
    eps: Option<f32>,
    /// Learning rate of the perceptron.
    #[arg(long, default_value_t = 0.007, value_parser = positive)]
    mlp_lr: f32,
    /// Share of the learning rates that is left at the end; they fall during the second half of the steps [default: 0.1 with AdaGrad, 0.05
    /// with Adam].
    #[arg(long, value_parser = positive)]
    last: Option<f32>,
    #[arg(long, default_value_t = 1200)]
    steps: u32,
    /// Points of a step, at most 2^20.
    #[arg(long, default_value_t = 1 << 14, value_parser = points)]
    batch: usize,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where tables and batches are: cpu, or gpu. The perceptron is on the CPU.
    #[arg(long, default_value = "cpu", value_parser = ["cpu", "gpu"])]
    backend: String,
    /// Fail if the PSNR at the end is lower, in dB.
    #[arg(long, value_parser = positive)]
    least: Option<f32>,
    /// Folder for the tables without the optimiser's state, the perceptron, and the pictures `fit.png` and `error.png` (grey: no error). The PSNR
    /// of all pixels is printed, too. Pictures and PSNR are those of the saved files.
    #[arg(long, default_value = "target/fit")]
    out: PathBuf,
}

/// Reads a finite number above 0.
fn positive(text: &str) -> Result<f32, String> {
    let found = text.parse().ok().filter(|number: &f32| number.is_finite() && *number > 0.0);
    found.ok_or_else(|| "wanted a finite number above 0".to_owned())
}

/// Reads the number of points of a step.
fn points(text: &str) -> Result<usize, String> {
    let found = text.parse().ok().filter(|points| (1..=1 << 20).contains(points));
    found.ok_or_else(|| "wanted 1 to 1048576 points".to_owned())
}

const LEVELS: usize = 16;
const FEATURES: usize = 2;
/// Features of a point, the perceptron's inputs.
const INPUTS: usize = LEVELS * FEATURES;
/// Points that are predicted at once.
const AT_ONCE: usize = 1 << 14;

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), Failure> {
    let folder = &args.out;
    std::fs::create_dir_all(folder).map_err(|error| format!("--out {}: {error}", folder.display()))?;
    let image = Image::open(&args.image)?;
    let mut rng = rand_pcg::Pcg64::seed_from_u64(args.seed);
    let (mut fit, line) = Fit::new(args, &mut rng)?;
    println!("{line}");
    let [width, height] = image.sides;
    // The same pixels for every seed.
    let mut fixed = rand_pcg::Pcg64::seed_from_u64(0);
    let pixels: Vec<_> = (0..65_536).map(|_| image.sides.map(|side| fixed.random_range(0..side))).collect();
    let wanted: Vec<_> = pixels.iter().map(|&[x, y]| image.pixel(x, y)).collect();
    let last = args.last.unwrap_or(if args.optimizer == OptimizerKind::Adam { 0.05 } else { 0.1 });
    let (mut spent, mut reached) = (Duration::ZERO, 0.0);
    for step in 1..=args.steps {
        let start = Instant::now();
        let points: Vec<[f32; 2]> = (0..args.batch).map(|_| [rng.random(), rng.random()]).collect();
        let targets: Vec<_> = points.par_iter().map(|point| image.at(*point)).collect();
        let share = last.powf((2.0 * step as f32 / args.steps as f32 - 1.0).max(0.0));
        let loss = fit.step(&points, &targets, share)?;
        spent += start.elapsed();
        if step % 100 == 0 || step == args.steps {
            reached = psnr(&fit.predict(image.sides, &pixels)?, &wanted);
            println!("step {step}: loss {loss:.6}, PSNR {reached:.2} dB, {spent:.1?}");
        }
    }
    if let Some(least) = args.least.filter(|least| reached.is_nan() || reached < f64::from(*least)) {
        return Err(format!("--least: wanted a PSNR of {least} dB, found {reached:.2}").into());
    }
    let all: Vec<_> = (0..height).flat_map(|y| (0..width).map(move |x| [x, y])).collect();
    let (mut saved, [tables, perceptron]) = fit.save(folder)?;
    println!("tables of {tables} bytes, a perceptron of {perceptron}");
    let found = saved.predict(image.sides, &all)?;
    println!("all pixels: PSNR {:.2} dB", psnr(&found, &image.values));
    let save = |name: &str, values: Vec<f32>| {
        let bytes = values.into_iter().map(|value| (value.clamp(0.0, 1.0) * 255.0).round() as u8).collect();
        let picture = image::GrayImage::from_raw(width, height, bytes).ok_or("wanted a value for each pixel")?;
        picture.save(folder.join(name))?;
        Ok::<(), Failure>(())
    };
    // Ten times the error, around the middle.
    let errors = found.iter().zip(&image.values).map(|(found, wanted)| 0.5 + 10.0 * (found - wanted));
    save("error.png", errors.collect())?;
    save("fit.png", found)
}

/// A grey image, values from 0 to 1.
struct Image {
    sides: [u32; 2],
    values: Vec<f32>,
}

impl Image {
    fn open(file: &Path) -> Result<Self, Failure> {
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
}

/// The middle of a pixel of a picture with these sides, as a point of the unit square.
fn middle(sides: [u32; 2], pixel: [u32; 2]) -> [f32; 2] {
    [0, 1].map(|i| (pixel[i] as f32 + 0.5) / sides[i] as f32)
}

/// The ratio of the largest value's square, 1, to the mean squared error, in dB.
fn psnr(found: &[f32], wanted: &[f32]) -> f64 {
    let off = |(found, wanted): (&f32, &f32)| f64::from(found.clamp(0.0, 1.0) - wanted).powi(2);
    -10.0 * (found.iter().zip(wanted).map(off).sum::<f64>() / wanted.len() as f64).log10()
}

fn levels() -> grid::Config {
    grid::Config::new(2).with_levels(LEVELS as u32).with_features(FEATURES as u32).with_most_rows(1 << 15)
}

/// What is learned.
struct Fit {
    place: Place,
    mlp: Mlp,
    lr: f32,
    mlp_lr: f32,
}

/// Where tables and batches are.
enum Place {
    Host(Box<CpuGrid>, Box<dyn Lookup + Send>),
    Device(Box<Device>),
}

impl Place {
    fn tables(&mut self) -> &mut dyn Lookup {
        match self {
            Self::Host(_, tables) => &mut **tables,
            Self::Device(device) => device.tables(),
        }
    }

    /// The features of points, level by level. A training forward waits for its backward.
    fn features(&mut self, points: &[[f32; 2]], train: bool) -> Result<Vec<f32>, Failure> {
        match self {
            Self::Host(grid, tables) => {
                let mode = if train { Mode::Train } else { Mode::Frozen };
                Ok(tables.forward(grid.bags(points.as_flattened())?, mode)?)
            }
            Self::Device(device) => device.features(points, train),
        }
    }
}

impl Fit {
    fn new(args: &Args, rng: &mut impl rand::Rng) -> Result<(Self, String), Failure> {
        let config = levels();
        let (rows, init) = (config.tables()?, Init::Uniform { low: -1e-4, high: 1e-4 });
        let (default, rule) = match args.optimizer {
            OptimizerKind::AdaGrad => (0.05, Optimizer::adagrad(0.05)),
            OptimizerKind::Adam => (0.01, Optimizer::adam(0.01).with_beta2(0.99).with_eps(1e-15)),
            other => return Err(format!("--optimizer: wanted adagrad or adam, found {other}").into()),
        };
        let lr = args.lr.unwrap_or(default);
        let rule = rule.with_lr(lr);
        let rule = args.eps.map_or(rule, |eps| rule.with_eps(eps));
        let mlp = Mlp::new(rng);
        let context = (args.backend == "gpu").then(adapter::open_best).transpose()?;
        let host = |tables| -> Result<_, Failure> { Ok(Place::Host(Box::new(CpuGrid::new(config.clone())?), tables)) };
        let device = |context, tables| -> Result<_, Failure> {
            Ok(Place::Device(Box::new(Device::new(context, config.clone(), tables, args.batch.max(AT_ONCE))?)))
        };
        let mut place = if args.table == "rows" {
            if !matches!(args.precision, Precision::Fp32 | Precision::Fp16) {
                let found = args.precision;
                return Err(format!(
                    "--precision: wanted fp32 or fp16 with --table rows, found {found}: a scale of its own costs a row of two features more than it \
                     saves; take --table array"
                )
                .into());
            }
            let rows = config.group()?.with_precision(args.precision).with_state(args.state);
            let rows =
                rows.with_rounding(args.rounding).with_optimizer(rule).with_init(init).with_seed(args.seed as u32);
            match &context {
                Some(context) => device(context, Tables::Rows(Box::new(Group::new(context, rows)?)))?,
                None => host(Box::new(CpuGroup::new(rows)?))?,
            }
        } else {
            let array = config.array()?.with_precision(args.precision).with_state(args.state);
            let array =
                array.with_rounding(args.rounding).with_optimizer(rule).with_init(init).with_seed(args.seed as u32);
            match &context {
                Some(context) => device(context, Tables::Array(Box::new(SharedGroup::new(context, array)?)))?,
                None => host(Box::new(CpuSharedGroup::new(array)?))?,
            }
        };
        let parameters = rows.iter().map(|rows| *rows as usize).sum::<usize>() * FEATURES;
        let memory = place.tables().memory();
        let line = format!(
            "{parameters} parameters in tables of {} bytes and states of {}: {:.3} bytes a parameter while training; {} in the perceptron",
            memory.payload + memory.scales,
            memory.record_state,
            (memory.payload + memory.scales + memory.record_state) as f64 / parameters as f64,
            mlp.weights().len(),
        );
        Ok((Self { place, mlp, lr, mlp_lr: args.mlp_lr }, line))
    }

    /// Moves everything once. `share` is the part of the learning rates that is in force. Returns the loss before the step.
    fn step(&mut self, points: &[[f32; 2]], targets: &[f32], share: f32) -> Result<f64, Failure> {
        let features = turned(&self.place.features(points, true)?, points.len(), LEVELS);
        let mut grads = vec![0.0; features.len()];
        let loss = self.mlp.train(&features, targets, &mut grads, self.mlp_lr * share);
        // Of the sum of the errors, not of their mean: both rules go by the gradient's direction, and FP16 states hold it.
        grads.iter_mut().for_each(|grad| *grad *= points.len() as f32);
        let tables = self.place.tables();
        tables.set_learning_rate(self.lr * share)?;
        tables.backward(&turned(&grads, LEVELS, points.len()))?;
        Ok(loss)
    }

    /// The values of pixels of a picture with these sides.
    fn predict(&mut self, sides: [u32; 2], pixels: &[[u32; 2]]) -> Result<Vec<f32>, Failure> {
        let mut found = Vec::with_capacity(pixels.len());
        for pixels in pixels.chunks(AT_ONCE) {
            let points: Vec<_> = pixels.iter().map(|pixel| middle(sides, *pixel)).collect();
            found.extend(self.mlp.forward(&turned(&self.place.features(&points, false)?, points.len(), LEVELS)));
        }
        Ok(found)
    }

    /// Saves what a program needs that shows the image: the tables without the optimiser's state in `tables.hotrow`, the perceptron's weights
    /// in `perceptron.f32`. Returns the fit that it reads back from there, and the bytes of both files.
    fn save(&mut self, folder: &Path) -> Result<(Self, [u64; 2]), Failure> {
        let files = ["tables.hotrow", "perceptron.f32"].map(|name| folder.join(name));
        // Without a state, as plain SGD has none.
        let rule = Optimizer::sgd(0.0);
        let tables = self.place.tables();
        let mut tables: Box<dyn Lookup + Send> = if let Some(array) = tables.as_shared_array() {
            let config = array.config().clone().with_optimizer(rule).with_state(None);
            let mut tables = CpuSharedGroup::new(config.clone())?;
            tables.restore(&RobeSnapshot { state_words: Vec::new(), ..array.snapshot()? })?;
            checkpoint::save_lookup(&mut tables, &files[0])?;
            Box::new(CpuSharedGroup::new(config)?)
        } else {
            let group = tables.as_embedding().ok_or("wanted tables of one process")?;
            let config = group.config().clone().with_optimizer(rule).with_state(None);
            let mut tables = CpuGroup::new(config.clone())?;
            let rows: Vec<_> = (0..config.tables.iter().sum()).collect();
            tables.write_rows(&rows, &group.read_rows(&rows)?)?;
            checkpoint::save_lookup(&mut tables, &files[0])?;
            Box::new(CpuGroup::new(config)?)
        };
        checkpoint::load_lookup(&mut *tables, &files[0])?;
        std::fs::write(&files[1], bytemuck::cast_slice(self.mlp.weights()))?;
        let mlp = Mlp::of(bytemuck::pod_collect_to_vec(&std::fs::read(&files[1])?));
        let bytes = [std::fs::metadata(&files[0])?.len(), std::fs::metadata(&files[1])?.len()];
        Ok((Self { place: Place::Host(Box::new(CpuGrid::new(levels())?), tables), mlp, lr: 0.0, mlp_lr: 0.0 }, bytes))
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
