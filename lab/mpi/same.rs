//! The listed runs of groups on the ranks of this job, with files that are the same bytes for every number of ranks.

use std::{fs, path::PathBuf};

use clap::Args;
use hotrow::CpuGroup;
use hotrow_dist::Comm as _;
use hotrow_harness::ranks::{How, Listed, Share, listed, on_rank};
use hotrow_report::output;

use hotrow_dist::mpi::{Mpi, Outcome};

/// The virtual shards of every run.
const SHARDS: u32 = 8;

/// Runs a fixed list of groups over the ranks of this job, and writes what they compute.
#[derive(Debug, Args)]
pub(crate) struct Same {
    /// The folder of the files, which all ranks see.
    #[arg(long)]
    out: PathBuf,
    /// Makes gradients wrong, to show that the files then differ.
    #[arg(long)]
    spoil: bool,
    /// Prefetches each batch while the one before waits for its backward.
    #[arg(long)]
    ahead: bool,
}

/// Writes, of each run, the checkpoint (rows, states, tags, counters), the outputs and the gradients of the weights of each piece of the batches, and what
/// all ranks read. A piece's file comes from the rank that has it.
pub(crate) fn run(comm: &mut Mpi, same: &Same) -> Outcome {
    let runs = listed();
    for Listed { name, config, wire, batches } in &runs {
        let folder = same.out.join(name);
        fs::create_dir_all(&folder)?;
        let save = folder.join("checkpoint");
        let how = How { wire: *wire, ahead: same.ahead, spoil: same.spoil };
        let found = on_rank(&mut *comm, (config, SHARDS, how), batches, CpuGroup::new, Some(&save));
        let Share { steps, counters, rows, .. } = found.map_err(|error| format!("{name}: {error}"))?;
        let mut text = String::new();
        for (what, steps) in [("outputs", &steps.outputs), ("weight-gradients", &steps.of_weights)] {
            for (step, pieces) in steps.iter().enumerate() {
                for ((piece, feature), bits) in pieces {
                    fs::write(folder.join(format!("{what}-{step}-{piece}-{feature}")), format!("{bits:08x?}\n"))?;
                }
                if pieces.is_empty() && what == "outputs" {
                    text += &format!("step {step} was refused\n");
                }
            }
        }
        text += &format!("{counters:#?}\n{rows:08x?}\n");
        let own = folder.join(format!("all-of-{}", comm.rank()));
        fs::write(&own, &text)?;
        comm.max(0)?;
        let first = fs::read_to_string(folder.join("all-of-0"))?;
        if first != text {
            return Err(format!("{name}: wanted the counters, rows and refused steps of rank 0, found others").into());
        }
        comm.max(0)?;
        if comm.rank() != 0 {
            fs::remove_file(own)?;
        }
    }
    if comm.rank() == 0 {
        output::print(&format!("{} runs, ranks: {}", runs.len(), comm.size()))?;
    }
    Ok(())
}
