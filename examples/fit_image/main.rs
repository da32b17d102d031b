//! Fits a grey image: a hash grid of learned rows (Müller et al. 2022) and a small perceptron that turns the features of a point into its
//! brightness. The set-up is that of tiny-cuda-nn's `config_hash.json`: 16 levels of 2 features in tables of 2^15 rows.
//!
//! `cargo run --release --example fit_image -- --image FILE`, a PNG or a JPEG.
#![allow(clippy::print_stdout, reason = "an example shows its result")]

mod fit;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser as _;
use fit::{Failure, Settings, Training, psnr};
use rand::{RngExt as _, SeedableRng as _};

#[derive(clap::Parser)]
struct Args {
    #[command(flatten)]
    settings: Settings,
    /// Fail if the PSNR at the end is lower, in dB.
    #[arg(long, value_parser = fit::positive)]
    least: Option<f32>,
    /// Folder for the tables without the optimiser's state, the perceptron, and the pictures `fit.png` and `error.png` (grey: no error). The PSNR
    /// of all pixels is printed, too. Pictures and PSNR are those of the saved files.
    #[arg(long, default_value = "target/fit")]
    out: PathBuf,
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
    let folder = &args.out;
    std::fs::create_dir_all(folder).map_err(|error| format!("--out {}: {error}", folder.display()))?;
    let (mut training, line) = Training::new(&args.settings)?;
    println!("{line}");
    let sides = training.image.sides;
    // The same pixels for every seed.
    let mut fixed = rand_pcg::Pcg64::seed_from_u64(0);
    let pixels: Vec<_> = (0..65_536).map(|_| sides.map(|side| fixed.random_range(0..side))).collect();
    let (mut spent, mut reached) = (Duration::ZERO, 0.0);
    loop {
        let start = Instant::now();
        if !training.step()? {
            break;
        }
        let step = training.steps;
        let shown = step % 100 == 0 || step == args.settings.steps;
        let loss = if shown { training.fit.loss()? } else { 0.0 };
        spent += start.elapsed();
        if shown {
            reached = training.psnr(&pixels)?;
            println!("step {step}: loss {loss:.6}, PSNR {reached:.2} dB, {spent:.1?}");
        }
    }
    if let Some(least) = args.least.filter(|least| reached.is_nan() || reached < f64::from(*least)) {
        return Err(format!("--least: wanted a PSNR of {least} dB, found {reached:.2}").into());
    }
    let [width, height] = sides;
    let all: Vec<_> = (0..height).flat_map(|y| (0..width).map(move |x| [x, y])).collect();
    let (mut saved, [tables, perceptron]) = training.fit.save(folder)?;
    println!("tables of {tables} bytes, a perceptron of {perceptron}");
    let found = saved.predict(sides, &all)?;
    println!("all pixels: PSNR {:.2} dB", psnr(&found, &training.image.values));
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
        found.iter().zip(&training.image.values).map(|(found, wanted)| 0.5 + 10.0 * (found - wanted)).collect(),
    )?;
    save("fit.png", found)?;
    Ok(())
}
