//! `hotrow bench`: bandwidth against hit rate, forward and backward (P1 Figure 9); by options the suite or shared tables instead.

mod cpu;
mod gpu;
mod report;
mod robe;
mod shape;
mod staged;
mod sweep;
mod uvm;

use crate::failure::Failure;
use crate::names::{OptimizerName, PlacementName, PolicyName, PrecisionName};
use crate::options::{Backend, Options};
use crate::output;
use crate::plot::Chart;
use crate::suite;
use hotrow::{Context, Placement, adapter};
use shape::Shape;
use std::path::PathBuf;
use std::time::Duration;
use sweep::{Sweep, Target};

/// Bandwidth against hit rate, forward and backward, for precisions x policies, with its bounds
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Folder for bench.json, bench.csv and the plots
    #[arg(long, value_name = "DIR", default_value = "results")]
    out: PathBuf,
    /// Precisions of the table
    #[arg(long, value_enum, value_delimiter = ',',
          default_values_t = [PrecisionName::Fp32, PrecisionName::Fp16, PrecisionName::Int8, PrecisionName::Int4, PrecisionName::Int2])]
    precision: Vec<PrecisionName>,
    /// Replacement policies
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [PolicyName::Lru, PolicyName::Lfu])]
    policy: Vec<PolicyName>,
    /// Hit rates to aim at, in percent of the accesses
    #[arg(long, value_name = "P[,P]", value_delimiter = ',', default_values_t = [0.0, 25.0, 50.0, 75.0, 90.0, 95.0, 100.0],
          allow_negative_numbers = true, value_parser = percent)]
    hit_rate: Vec<f64>,
    /// Where the table lives [default: device; mapped and staged beside it with INT8 and one policy]
    #[arg(long, value_enum, value_delimiter = ',')]
    placement: Vec<PlacementName>,
    /// Update rule
    #[arg(long, value_enum, default_value_t = OptimizerName::Sgd)]
    optimizer: OptimizerName,
    /// Rows of the table [default: what suits the backend]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(64..=4_294_967_294))]
    rows: Option<u32>,
    /// Floats in a row
    #[arg(long, value_name = "D", value_parser = clap::value_parser!(u32).range(1..=65536))]
    dim: Option<u32>,
    /// Accesses in a batch
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    batch: Option<u32>,
    /// Seconds each backend may take, about [default: 20]; seconds after which the suite begins no further part [default: 240, small 90],
    /// --robe no further cell or gradient [default: 300, on the CPU 900, small 180]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: Option<u64>,
    #[command(flatten)]
    uvm: uvm::UvmArgs,
    #[command(flatten)]
    suite: suite::Args,
    #[command(flatten)]
    robe: robe::Args,
}

fn percent(text: &str) -> Result<f64, String> {
    match text.trim().parse() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent),
        _ => Err("wanted a number from 0 to 100".to_owned()),
    }
}

impl Args {
    /// `beside`: what else there is to compare the table in GPU memory with, if nothing was asked for.
    fn sweep(&self, shape: Shape, seed: u32, beside: Vec<Placement>) -> Sweep {
        let (placements, beside) = match &self.placement[..] {
            [] => (vec![Placement::Device], beside),
            asked => (asked.iter().map(|name| name.placement()).collect(), Vec::new()),
        };
        let mut shape = shape;
        shape.rows = self.rows.unwrap_or(shape.rows);
        shape.dim = self.dim.unwrap_or(shape.dim);
        shape.batch = self.batch.unwrap_or(shape.batch);
        Sweep {
            shape,
            precisions: self.precision.iter().map(|name| name.precision()).collect(),
            policies: self.policy.iter().map(|name| name.policy()).collect(),
            placements,
            beside,
            hit_rates: self.hit_rate.iter().map(|percent| percent / 100.0).collect(),
            optimizer: self.optimizer.optimizer(1e-3),
            seed,
            budget: Duration::from_secs(self.seconds.unwrap_or(20)),
            uvm: self.uvm.models(),
        }
    }
}

/// What a device can do beside a table in its own memory.
fn beside(context: &Context) -> Vec<Placement> {
    let mapped = context.caps().mappable.then_some(Placement::Mapped);
    mapped.into_iter().chain([Placement::Staged]).collect()
}

/// Runs the subcommand.
pub(crate) fn run(options: &Options, args: &Args) -> Result<(), Failure> {
    if args.suite.suite {
        return suite::run(options, &args.suite, &args.out, args.seconds);
    }
    if args.robe.robe {
        let asked = robe::Asked {
            suite: &args.suite,
            out: &args.out,
            seconds: args.seconds,
            dim: args.dim,
            batch: args.batch,
            optimizer: args.optimizer.optimizer(1e-3),
        };
        return robe::run(options, &args.robe, &asked);
    }
    if options.backend == Backend::Cpu && args.placement.iter().any(|&name| name != PlacementName::Device) {
        return Err(Failure::Usage(
            "--placement: wanted device with --backend cpu, found another; a CPU has one memory".into(),
        ));
    }
    output::check_folder("--out", &args.out)?;
    let mut runs = Vec::new();
    let gpu = options.backend.open("running")?;
    match gpu {
        Some(context) => {
            let hardware = context.caps().is_hardware();
            let shape = if hardware { Shape::GPU } else { Shape::SOFTWARE };
            let sweep = args.sweep(shape, options.group_seed(), beside(&context));
            runs.push(sweep.run(&Target::Gpu(&context))?);
        }
        None => {
            let mut sweep = args.sweep(Shape::CPU, options.group_seed(), Vec::new());
            sweep.placements = vec![Placement::Device];
            runs.push(sweep.run(&Target::Cpu)?);
            // Without a GPU the kernels are shown to work, not to be fast.
            if options.backend == Backend::Auto {
                match adapter::open_best(adapter::Wanted::Any) {
                    Ok(context) => {
                        let sweep = args.sweep(Shape::SOFTWARE, options.group_seed(), beside(&context));
                        runs.push(sweep.run(&Target::Gpu(&context))?);
                    }
                    Err(reason) => output::note(&format!("the WGSL kernels were left out: {reason}")),
                }
            }
        }
    }
    let mut written = Vec::new();
    for run in &runs {
        output::print(&run.table())?;
        for (stem, chart) in run.charts() {
            let chart: Chart = chart;
            written.extend(chart.write(&args.out.join(stem))?);
        }
    }
    let json = options.json.clone().unwrap_or_else(|| args.out.join("bench.json"));
    output::write_json(&json, &report::Report::new(&runs, options.seed))?;
    let csv = args.out.join("bench.csv");
    output::write_csv(&csv, &report::lines(&runs))?;
    for path in written.iter().chain([&json, &csv]) {
        output::print(&format!("wrote {}", path.display()))?;
    }
    Ok(())
}
