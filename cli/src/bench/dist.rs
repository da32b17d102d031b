//! `hotrow bench dist`: what a step sends, and its time, over ranks and batch sizes.

use super::common::{Common, Table};
use crate::plan::dist::run::{Batches, Seen};
use hotrow::CpuGroup;
use hotrow_dist::{Group, Phase, Threads};
use hotrow_report::failure::Failure;
use hotrow_report::options::{Options, WireArgs, whole};
use hotrow_report::output;
use hotrow_report::progress::Progress;
use hotrow_report::records::{Setting, Unit};
use hotrow_report::run::{Machine, Run};
use hotrow_report::units::Times;
use std::time::Instant;

/// Measure groups over ranks, in threads of this machine: bytes, messages and seconds of a step
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    common: Common,
    /// A trace whose bags are looked up: a file, a name in the data folder, or generated; see `hotrow simulate --help`
    #[arg(long, value_name = "T", default_value = "zipf:rows=100000,s=1.05,n=1000000")]
    trace: String,
    #[command(flatten)]
    table: Table,
    /// Ranks, powers of two
    #[arg(long, value_name = "R[,R]", value_delimiter = ',', default_values_t = [1, 2, 4, 8], value_parser = whole(1u32..=64))]
    ranks: Vec<u32>,
    /// Virtual shards, a power of two [default: the most ranks, rounded up]
    #[arg(long, value_name = "V", value_parser = whole(1u32..=1 << 16))]
    shards: Option<u32>,
    /// Bags of a batch of all ranks together
    #[arg(long, value_name = "N[,N]", value_delimiter = ',', default_values_t = [256, 4096], value_parser = whole(1u32..=1 << 20))]
    batch: Vec<u32>,
    #[command(flatten)]
    wire: WireArgs,
    /// Steps that are counted and timed
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = whole(2u32..=1 << 16))]
    steps: u32,
}

pub(super) fn run(options: &Options, args: &Args) -> Result<(), Failure> {
    options.check_used(false, true)?;
    let (mut ranks, mut batches) = (args.ranks.clone(), args.batch.clone());
    [&mut ranks, &mut batches].into_iter().for_each(|list| {
        list.sort_unstable();
        list.dedup();
    });
    let most = ranks.last().copied().unwrap_or(1);
    let shards = args.shards.unwrap_or(most.next_power_of_two());
    if let Some(found) = ranks.iter().find(|ranks| !ranks.is_power_of_two() || !shards.is_multiple_of(**ranks)) {
        return Err(Failure::Usage(format!(
            "--ranks: wanted powers of two that divide the {shards} virtual shards, found {found}; take others, or more --shards"
        )));
    }
    let read = options.trace_files(std::slice::from_ref(&args.trace));
    output::check_files(options.json.as_deref(), None, &[], &read)?;
    args.common.make_folder(options)?;
    let trace = options.trace(&args.trace, &args.table.reading, None)?;
    let offsets = args.table.bags(&trace)?;
    let mut bags = Batches { ids: trace.ids.clone(), offsets, order: Vec::new(), batch: 0 };
    let config = args.table.config(&trace, options.group_seed());
    let wire = args.wire.options();
    // A group whose options do not fit fails before the work.
    Threads::run(1, |comm: &mut Threads| {
        Group::new(comm, config.clone(), shards, CpuGroup::new)?.with_wire(wire).map(drop)
    })
    .map_err(|error| Failure::Usage(error.to_string()))?;

    let mut run = args.common.start(options, "bench dist", "given");
    run.on(Machine::cpu());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let shared = format!(
        "ranks are threads of this machine and share its {cores} cores: bytes and messages hold anywhere, seconds only here"
    );
    output::note(&format!("bench dist: {shared}"));
    run.describe("times", shared);
    let (rows, name, summed) = (config.total_rows(), &trace.name, if wire.summed { " and summed" } else { "" });
    let table = format!("{rows} rows x {} in {}, {shards} virtual shards, {name} bags", config.dim, config.precision);
    run.describe("step", format!("{table}; rows go {}, gradients {}{summed}", wire.rows, wire.gradients));
    let progress = Progress::new("bench dist", (ranks.len() * batches.len()) as u64);
    let start = Instant::now();
    for &batch in &batches {
        let all = bags.offsets.len() as u64 - 1;
        let turn = (0..u64::from(args.steps) * u64::from(batch)).map(|bag| (bag % all) as u32);
        (bags.order, bags.batch) = (turn.collect(), batch);
        for &ranks in &ranks {
            let found = bags.play(&config, [ranks, shards], wire, false).map_err(anyhow::Error::from)?;
            record(&mut run, batch, args.steps, &found);
            progress.advance(1);
        }
    }
    drop(progress);
    run.judge(false, start.elapsed().as_secs_f64());
    Ok(args.common.finish(options, &run, "dist", usize::MAX, &[])?)
}

fn record(run: &mut Run, batch: u32, steps: u32, found: &[Seen]) {
    let setting = Setting::default().with("batch", batch).with("ranks", found.len() as u32);
    let a_step = |sum: u64| sum as f64 / f64::from(steps);
    for phase in Phase::ALL {
        let mut at = run.at("step", &setting.clone().with("phase", phase.name()));
        at.push("bytes", a_step(found.iter().map(|seen| seen.traffic.bytes(phase)).sum()), Unit::Bytes);
        at.push("messages", a_step(found.iter().map(|seen| seen.traffic.messages(phase)).sum()), Unit::Count);
    }
    run.at("step", &setting).timed("whole step", Times::of(found[0].seconds.clone()));
}
