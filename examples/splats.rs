//! Trains Gaussian splats that do not fit on the GPU, and counts bytes: rows of 59 floats (position, scale, rotation, opacity, spherical
//! harmonics) with Adam's two moments, staged in host memory, with a cache on the device. There is no rasteriser: a written model of views says
//! which splats each step reads, and each row is pulled towards a target of its own.
//!
//! The model: splats lie anywhere in the unit square, which has no edges; the number of a splat says nothing about its place. The camera goes
//! around a circle of radius 1/4. It sees a square, and each step moves it by a tenth of that square's side. So a step reads a tenth of its
//! splats for the first time in a while.
//!
//! `cargo run --release --example splats -- --splats 1000000 --view 0.01 --precision fp16 --check`
#![allow(clippy::print_stdout, reason = "an example shows its result")]

use std::process::ExitCode;

use clap::Parser as _;
use hotrow::{
    Bags, Group, GroupConfig, Init, Mode, Optimizer, Placement, Pooling, Precision, StatePrecision, adapter, prelude::*,
};

type Failure = Box<dyn std::error::Error>;

#[derive(clap::Parser)]
struct Args {
    #[arg(long, default_value_t = 1_000_000)]
    splats: u32,
    /// Share of the splats that a view reads.
    #[arg(long, default_value_t = 0.01, value_parser = share)]
    view: f32,
    /// Share of the splats that the cache holds.
    #[arg(long, default_value_t = 0.1, value_parser = share)]
    cache: f32,
    /// Most splats of a batch, as a share; a larger view is split.
    #[arg(long, default_value_t = 0.0125, value_parser = share)]
    batch: f32,
    /// Precision of the records; their moments are FP32 beside FP32, else of 16 bits.
    #[arg(long, default_value = "fp16")]
    precision: Precision,
    /// Type of the moments in a record: fp32, fp16 or int8 beside fp16 and less.
    #[arg(long)]
    state: Option<StatePrecision>,
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,
    /// Compare with a table in FP32 that lies on the device whole.
    #[arg(long)]
    check: bool,
    /// Fail if the device takes more than this share of the memory of that table, in percent.
    #[arg(long, value_parser = percent)]
    most: Option<f64>,
}

/// Reads a finite number above 0.
fn percent(text: &str) -> Result<f64, String> {
    let found = text.parse().ok().filter(|share: &f64| share.is_finite() && *share > 0.0);
    found.ok_or_else(|| "wanted a finite number above 0".to_owned())
}

/// Floats of a splat: position 3, scale 3, rotation 4, opacity 1, colour 3 x 16.
const DIM: u32 = 59;

/// Numbers from 0 to 1 that belong to a splat: Murmur3's finaliser makes them look random.
fn number(splat: u32, which: u32) -> f32 {
    let mut h = splat.wrapping_mul(64).wrapping_add(which);
    h = (h ^ h >> 16).wrapping_mul(0x85eb_ca6b);
    h = (h ^ h >> 13).wrapping_mul(0xc2b2_ae35);
    ((h ^ h >> 16) >> 8) as f32 / (1 << 24) as f32
}

/// The splats that the camera sees in a step.
fn view(args: &Args, step: u32) -> Vec<u32> {
    let side = args.view.sqrt();
    // A tenth of a side along the circle.
    let angle = step as f32 * 0.1 * side / 0.25;
    let corner = [0.5 + 0.25 * angle.cos() - side / 2.0, 0.5 + 0.25 * angle.sin() - side / 2.0];
    let sees =
        |splat: u32| (0..2u32).all(|axis| (number(splat, 62 + axis) - corner[axis as usize]).rem_euclid(1.0) < side);
    (0..args.splats).filter(|&splat| sees(splat)).collect()
}

/// Reads some splats and pulls them towards their targets.
fn step(table: &mut Group, splats: &[u32]) -> Result<(), Failure> {
    let mut values = table.forward(Bags::new(splats, &[0, splats.len() as u32]), Mode::Train)?;
    for (&splat, row) in splats.iter().zip(values.chunks_exact_mut(DIM as usize)) {
        row.iter_mut().zip(0..).for_each(|(value, e)| *value -= 2.0 * number(splat, e) - 1.0);
    }
    table.backward(&values)?;
    Ok(())
}

/// Reads a share of the splats.
fn share(text: &str) -> Result<f32, String> {
    let found = text.parse().ok().filter(|share| *share > 0.0 && *share <= 1.0);
    found.ok_or_else(|| "wanted a share above 0, at most 1".to_owned())
}

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
    let context = adapter::open_best()?;
    let optimizer = Optimizer::adam(0.01);
    let config = GroupConfig::new(&[args.splats], DIM).with_pooling(Pooling::None).with_optimizer(optimizer);
    let config = config.with_init(Init::Uniform { low: -1.0, high: 1.0 });
    let resident = config.clone().with_precision(Precision::Fp32);
    let config = config.with_precision(args.precision).with_state(args.state).with_placement(Placement::Staged);
    let mut table = Group::new(&context, config.with_cache_rows((args.splats as f32 * args.cache) as u32))?;
    let mut whole = if args.check { Some(Group::new(&context, resident)?) } else { None };

    let most = ((args.splats as f32 * args.batch) as usize).max(1);
    let mut seen = vec![false; args.splats as usize];
    let mut crossed = Vec::new();
    for k in 0..args.steps {
        let splats = view(args, k);
        let before = table.traffic().map_or(0, |traffic| traffic.bytes());
        for batch in splats.chunks(most) {
            step(&mut table, batch)?;
            if let Some(whole) = &mut whole {
                step(whole, batch)?;
            }
            batch.iter().for_each(|&splat| seen[splat as usize] = true);
        }
        crossed.push(table.traffic().map_or(0, |traffic| traffic.bytes()) - before);
        if k % 5 == 4 || k + 1 == args.steps {
            let (step, megabytes) = (k + 1, crossed[k as usize] as f64 / 1e6);
            println!("step {step}: {} splats in view, {megabytes:.2} MB over the bus", splats.len());
        }
    }

    if seen.iter().all(|seen| !seen) {
        return Err("--splats: wanted as many as some view sees, found none in view; take more".into());
    }
    let memory = table.memory();
    let records = memory.payload + memory.scales + memory.record_state;
    // Everything but the records, although a part of the staging lies in the host's memory.
    let (device, all) = (memory.total() - records, u64::from(args.splats) * u64::from(DIM) * 3 * 4);
    let share = 100.0 * device as f64 / all as f64;
    println!(
        "host: {:.1} MB of records; device: {:.1} MB, of these cache {:.1}, staging {:.1}, scratch {:.1}",
        records as f64 / 1e6,
        device as f64 / 1e6,
        (memory.cache_weights + memory.cache_state + memory.tags + memory.stamps) as f64 / 1e6,
        memory.staging as f64 / 1e6,
        memory.scratch as f64 / 1e6
    );
    println!("all in FP32 on the device: {:.1} MB, {:.2} times as much", all as f64 / 1e6, 100.0 / share);
    crossed.sort_unstable();
    println!("median over the bus: {:.2} MB a step", crossed[crossed.len() / 2] as f64 / 1e6);
    if let Some(most) = args.most.filter(|most| share > *most) {
        return Err(format!("--most: wanted at most {most} %, found {share:.2}").into());
    }

    let Some(whole) = &mut whole else { return Ok(()) };
    let rows: Vec<u32> = (0..args.splats).filter(|&splat| seen[splat as usize]).collect();
    let (mut squares, mut moved, mut equal) = (0.0, 0, true);
    for rows in rows.chunks(1 << 14) {
        let (found, wanted) = (table.read_rows(rows)?, whole.read_rows(rows)?);
        for (found, wanted) in found.iter().zip(&wanted) {
            squares += f64::from(found - wanted).powi(2);
            equal &= found.to_bits() == wanted.to_bits();
            moved += 1;
        }
    }
    let rms = (squares / f64::from(moved)).sqrt();
    println!("{} splats seen; RMS from the table in FP32: {rms:.3e}, same bits: {equal}", rows.len());
    if args.precision == Precision::Fp32 && !equal {
        return Err("--check: wanted the bits of the table on the device, found others".into());
    }
    let most = if args.state == Some(StatePrecision::Int8) { 5e-3 } else { 5e-4 };
    if !rms.is_finite() || rms > most {
        return Err(format!("--check: wanted an RMS of at most {most:e}, found {rms:.3e}").into());
    }
    Ok(())
}
