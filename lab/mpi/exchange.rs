//! Steps of a group whose bytes and seconds between the ranks are counted, for comparisons with `hotrow plan dist` and with a network's own counters.

use std::{collections::BTreeMap, fs, path::PathBuf, time::Instant};

use clap::Args;
use hotrow::{Bags, CpuGroup, Error, GroupConfig, Init, Lookup as _, Mode, Precision};
use hotrow_dist::{Comm, Group, Parcels, Phase, RankTraffic, Ticket, hand_on};
use hotrow_harness::ranks::uniform;
use hotrow_report::output;
use serde_json::{Value, json};

use hotrow_dist::mpi::{Mpi, Outcome};

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
    /// Dense layers, as wide as a row, that each rank computes of its outputs in a step.
    #[arg(long, default_value_t = 0)]
    layers: u32,
    /// Prefetches each batch while the one before computes.
    #[arg(long)]
    ahead: bool,
    /// The file of the bytes of each phase and pair.
    #[arg(long)]
    out: PathBuf,
}

/// A rank that measures its exchanges. Each begins when all ranks are there.
#[derive(Debug)]
struct Timed<'m> {
    comm: &'m mut Mpi,
    /// When each exchange under way began.
    starts: BTreeMap<u64, Instant>,
    /// Microseconds of each exchange.
    micros: Vec<u32>,
    /// Microseconds that the rank has waited for others, in any call.
    waited: u32,
}

impl Timed<'_> {
    fn waits<T>(&mut self, call: impl FnOnce(&mut Mpi) -> T) -> T {
        let start = Instant::now();
        let result = call(self.comm);
        self.waited += start.elapsed().as_micros() as u32;
        result
    }
}

impl Comm for Timed<'_> {
    hand_on!(self, self.comm; rank size poll abort);

    fn start(&mut self, send: Parcels, receive: &[usize]) -> Result<Ticket, Error> {
        self.max(0)?;
        let start = Instant::now();
        let ticket = self.comm.start(send, receive)?;
        self.starts.insert(ticket.number(), start);
        Ok(ticket)
    }

    fn finish(&mut self, ticket: Ticket) -> Result<Parcels, Error> {
        let begun = self.starts.remove(&ticket.number());
        let received = self.waits(|comm| comm.finish(ticket))?;
        self.micros.extend(begun.map(|begun| begun.elapsed().as_micros() as u32));
        Ok(received)
    }

    fn all_gather(&mut self, words: &[u32]) -> Result<Vec<u32>, Error> {
        self.waits(|comm| comm.all_gather(words))
    }

    fn max(&mut self, value: u32) -> Result<u32, Error> {
        self.waits(|comm| comm.max(value))
    }
}

pub(crate) fn run(comm: &mut Mpi, exchange: &Exchange) -> Outcome {
    let &Exchange { rows, dim, batch, lookups, steps, layers, ahead, .. } = exchange;
    let (rank, ranks) = (comm.rank(), comm.size());
    let bags = batch / ranks;
    let config = GroupConfig::new(&[rows], dim)
        .with_precision(Precision::Fp32)
        .with_init(Init::Uniform { low: -1.0, high: 1.0 });
    let timed = Timed { comm, starts: BTreeMap::new(), micros: Vec::new(), waited: 0 };
    let mut group = Group::new(timed, config, ranks, CpuGroup::new)?;
    let batch = |step: u32| uniform(rows, bags * lookups, u64::from(step * ranks + rank));
    let offsets: Vec<u32> = (0..=bags).map(|bag| lookups * bag).collect();
    let start = Instant::now();
    if ahead {
        group.prefetch(Bags::new(&batch(0), &offsets))?;
    }
    for step in 0..steps {
        let mut outputs = if ahead {
            group.forward_prefetched()?
        } else {
            group.forward(Bags::new(&batch(step), &offsets), Mode::Train)?
        };
        if ahead && step + 1 < steps {
            group.prefetch(Bags::new(&batch(step + 1), &offsets))?;
        }
        for layer in 0..layers {
            if layer == layers / 4 {
                group.advance()?;
            }
            dense(&mut outputs, dim as usize);
            group.poll()?;
        }
        group.backward(&outputs)?;
    }
    let whole = start.elapsed().as_secs_f64() / f64::from(steps);
    let traffic = group.traffic().clone();
    let sum = group.read_rows(&uniform(rows, 100, 1))?.iter().fold(0_u32, |sum, x| sum.rotate_left(1) ^ x.to_bits());
    let (own, waited) = (std::mem::take(&mut group.comm().micros), group.comm().waited);
    drop(group);
    let all = comm.all_gather(&own)?;
    let waited = f64::from(comm.max(waited)?) * 1e-6 / f64::from(steps);
    // An exchange takes as long as its slowest rank.
    let slowest = |at: usize| all.iter().skip(at).step_by(own.len()).max().map_or(0, |&micros| u64::from(micros));
    let seconds = (0..own.len()).map(slowest).sum::<u64>() as f64 * 1e-6 / f64::from(steps);
    let (pairs, across) = pairs(comm, &traffic)?;
    if rank == 0 {
        fs::write(&exchange.out, format!("{}\n", json!({ "steps": steps, "pairs": pairs })))?;
        output::print(&format!(
            "{steps} steps of {whole:.6} s, rows {sum:08x}, waited at most {waited:.6} s a step, seconds of a step's exchange: {seconds:.6}, \
             bytes from the first half of the ranks to the second: {}, back: {}",
            across[0], across[1]
        ))?;
    }
    Ok(())
}

/// A layer of a perceptron, the same on each bag: its weights are a fixed pattern, and its outputs stay within -1 and 1.
fn dense(outputs: &mut [f32], dim: usize) {
    let weight = |from: usize, to: usize| ((from * 31 + to * 17) % 64) as f32 / 64.0 - 0.5;
    let weights: Vec<f32> = (0..dim * dim).map(|at| weight(at / dim, at % dim) / (dim as f32).sqrt()).collect();
    let mut next = vec![0.0; dim];
    for bag in outputs.chunks_exact_mut(dim) {
        next.fill(0.0);
        for (x, weights) in bag.iter().zip(weights.chunks_exact(dim)) {
            next.iter_mut().zip(weights).for_each(|(sum, weight)| *sum += x * weight);
        }
        bag.iter_mut().zip(&next).for_each(|(x, sum)| *x = sum.tanh());
    }
}

/// The bytes of every pair of ranks, as JSON, and those from the first half of the ranks to the second and back.
fn pairs(comm: &mut Mpi, traffic: &RankTraffic) -> Result<(Vec<Value>, [u64; 2]), Error> {
    let ranks = comm.size();
    let own: Vec<u32> = (0..ranks)
        .flat_map(|to| Phase::ALL.map(|phase| traffic.bytes_to(phase, to)))
        .flat_map(|bytes| [bytes as u32, (bytes >> 32) as u32])
        .collect();
    let all = comm.all_gather(&own)?;
    let (mut pairs, mut across) = (Vec::new(), [0; 2]);
    for (pair, words) in (0..).zip(all.chunks_exact(2 * Phase::ALL.len())) {
        let (from, to) = (pair / ranks, pair % ranks);
        if from == to {
            continue;
        }
        let mut object = json!({ "from": from, "to": to });
        for (phase, words) in Phase::ALL.iter().zip(words.chunks_exact(2)) {
            let bytes = u64::from(words[0]) | u64::from(words[1]) << 32;
            object[phase.name()] = bytes.into();
            match (from < ranks / 2, to < ranks / 2) {
                (true, false) => across[0] += bytes,
                (false, true) => across[1] += bytes,
                _ => {}
            }
        }
        pairs.push(object);
    }
    Ok((pairs, across))
}
