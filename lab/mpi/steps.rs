//! A small training over the ranks of this job that saves after every step and goes on from the last checkpoint: for tests of faults.

use std::path::PathBuf;

use clap::Args;
use hotrow::{CpuGroup, Embedding as _, GroupConfig, Init, Lookup as _, Optimizer, Part, Precision};
use hotrow_dist::{Comm as _, Group};
use hotrow_harness::ranks::uniform;

use hotrow_dist::mpi::{Mpi, Outcome};

/// The rows of the table; a checkpoint has 16 MiB.
const ROWS: u32 = 60_000;
const SHARDS: u32 = 8;

/// Trains a table, and saves it after every step.
#[derive(Debug, Args)]
pub(crate) struct Steps {
    /// The folder of the checkpoint: the training goes on from the one that is there.
    #[arg(long)]
    folder: PathBuf,
    /// The step after which it ends.
    #[arg(long)]
    end: u32,
}

pub(crate) fn run(comm: &mut Mpi, steps: &Steps) -> Outcome {
    let mut config = GroupConfig::new(&[ROWS], 64).with_precision(Precision::Fp16).with_cache_rows(2048);
    config.optimizer = Optimizer::adagrad(0.05);
    config.init = Init::Uniform { low: -1.0, high: 1.0 };
    let bags = SHARDS / comm.size();
    let mut group = Group::new(&mut *comm, config, SHARDS, CpuGroup::new)?;
    if steps.folder.join("shards.json").exists() {
        group.load(&steps.folder)?;
    }
    let mut step = [0];
    if let Some((_, Some(shard))) = group.shards().next() {
        shard.read_part(Part::Clock, 0, &mut step)?;
    }
    let begun = step[0];
    for step in begun..steps.end {
        // The bags of all ranks are the same for every number of ranks.
        let first = group.rank() * bags;
        let indices: Vec<u32> =
            (first..first + bags).flat_map(|bag| uniform(ROWS, 100, u64::from(step * SHARDS + bag))).collect();
        let offsets: Vec<u32> = (0..=bags).map(|bag| 100 * bag).collect();
        let outputs = group.forward(&indices, &offsets, None)?;
        group.backward(&outputs)?;
        group.save(&steps.folder)?;
    }
    if comm.rank() == 0 {
        crate::say(&format!("from step {begun} to {}", steps.end))?;
    }
    Ok(())
}
