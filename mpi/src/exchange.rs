//! Steps of a group whose bytes and seconds between the ranks are counted, for comparisons with `hotrow plan dist` and with a network's own counters.

use std::{fmt::Write as _, fs, path::PathBuf, time::Instant};

use clap::Args;
use hotrow::{
    CpuGroup, Error, GroupConfig, Lookup as _, Precision,
    dist::{Comm, Group, Parcels, Phase, RankTraffic, Ticket},
};
use hotrow_harness::ranks::uniform;

use crate::{comm::Mpi, job::Outcome};

/// Trains an FP32 table without a cache on rows that are drawn evenly, and counts what crosses between the ranks.
#[derive(Debug, Args)]
pub(crate) struct Exchange {
    /// Rows of the table.
    #[arg(long)]
    rows: u32,
    /// Floats in a row.
    #[arg(long)]
    dim: u32,
    /// Bags of all ranks.
    #[arg(long)]
    batch: u32,
    /// Accesses of a bag.
    #[arg(long)]
    lookups: u32,
    #[arg(long)]
    steps: u32,
    /// The file of the bytes of each phase and pair, as `hotrow plan dist --counted` takes it.
    #[arg(long)]
    out: PathBuf,
}

/// A rank that measures its exchanges. Each begins when all ranks are there.
#[derive(Debug)]
struct Timed<'m> {
    comm: &'m mut Mpi,
    /// Microseconds of each exchange.
    micros: Vec<u32>,
}

impl Comm for Timed<'_> {
    fn rank(&self) -> u32 {
        self.comm.rank()
    }

    fn size(&self) -> u32 {
        self.comm.size()
    }

    fn start(&mut self, send: Parcels, receive: &[usize]) -> Result<Ticket, Error> {
        self.comm.start(send, receive)
    }

    fn poll(&mut self, ticket: &Ticket) -> Result<bool, Error> {
        self.comm.poll(ticket)
    }

    fn finish(&mut self, ticket: Ticket) -> Result<Parcels, Error> {
        self.comm.finish(ticket)
    }

    fn all_to_all(&mut self, send: Parcels, receive: &[usize]) -> Result<Parcels, Error> {
        self.comm.max(0)?;
        let start = Instant::now();
        let received = self.comm.all_to_all(send, receive)?;
        self.micros.push(start.elapsed().as_micros() as u32);
        Ok(received)
    }

    fn all_gather(&mut self, words: &[u32]) -> Result<Vec<u32>, Error> {
        self.comm.all_gather(words)
    }

    fn max(&mut self, value: u32) -> Result<u32, Error> {
        self.comm.max(value)
    }

    fn abort(&mut self, reason: &str) {
        self.comm.abort(reason);
    }
}

pub(crate) fn run(comm: &mut Mpi, exchange: &Exchange) -> Outcome {
    let &Exchange { rows, dim, batch, lookups, steps, .. } = exchange;
    let (rank, ranks) = (comm.rank(), comm.size());
    let bags = batch / ranks;
    let config = GroupConfig::new(&[rows], dim).with_precision(Precision::Fp32);
    let mut group = Group::new(Timed { comm, micros: Vec::new() }, config, ranks, CpuGroup::new)?;
    for step in 0..steps {
        let indices = uniform(rows, bags * lookups, u64::from(step * ranks + rank));
        let offsets: Vec<u32> = (0..=bags).map(|bag| lookups * bag).collect();
        let outputs = group.forward(&indices, &offsets, None)?;
        group.backward(&outputs)?;
    }
    let traffic = group.traffic().clone();
    let own = std::mem::take(&mut group.comm().micros);
    drop(group);
    let all = comm.all_gather(&own)?;
    // An exchange takes as long as its slowest rank.
    let slowest = |at: usize| all.iter().skip(at).step_by(own.len()).max().map_or(0, |&micros| u64::from(micros));
    let seconds = (0..own.len()).map(slowest).sum::<u64>() as f64 * 1e-6 / f64::from(steps);
    let (pairs, across) = pairs(comm, &traffic)?;
    if rank == 0 {
        fs::write(&exchange.out, format!("{{\"steps\": {steps}, \"pairs\": [{pairs}]}}\n"))?;
        crate::say(&format!(
            "{steps} steps, seconds of a step's exchange: {seconds:.6}, bytes from the first half of the ranks to the second: {}, back: {}",
            across[0], across[1]
        ))?;
    }
    Ok(())
}

/// The bytes of every pair of ranks, as JSON, and those from the first half of the ranks to the second and back.
fn pairs(comm: &mut Mpi, traffic: &RankTraffic) -> Result<(String, [u64; 2]), Error> {
    let ranks = comm.size();
    let own: Vec<u32> = (0..ranks)
        .flat_map(|to| Phase::ALL.map(|phase| traffic.bytes_to(phase, to)))
        .flat_map(|bytes| [bytes as u32, (bytes >> 32) as u32])
        .collect();
    let all = comm.all_gather(&own)?;
    let (mut text, mut across) = (String::new(), [0; 2]);
    for (pair, words) in (0..).zip(all.chunks_exact(2 * Phase::ALL.len())) {
        let (from, to) = (pair / ranks, pair % ranks);
        if from == to {
            continue;
        }
        let separator = if text.is_empty() { "" } else { ", " };
        // Writing to a text cannot fail.
        let _ = write!(text, "{separator}{{\"from\": {from}, \"to\": {to}");
        for (phase, words) in Phase::ALL.iter().zip(words.chunks_exact(2)) {
            let bytes = u64::from(words[0]) | u64::from(words[1]) << 32;
            let _ = write!(text, ", \"{}\": {bytes}", phase.name());
            match (from < ranks / 2, to < ranks / 2) {
                (true, false) => across[0] += bytes,
                (false, true) => across[1] += bytes,
                _ => {}
            }
        }
        text.push('}');
    }
    Ok((text, across))
}
