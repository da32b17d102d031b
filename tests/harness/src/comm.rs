//! The tests of an implementation of `Comm`: each rank of a job runs them, over threads or over MPI.

use std::{error, thread, time::Duration};

use hotrow::{Error, internals::hash::fmix32};
use hotrow_dist::{Comm, Parcels, RankError, Ticket};

/// What went wrong on this rank.
pub type Outcome = Result<(), Box<dyn error::Error + Send + Sync>>;

/// A test that all ranks of a job run.
#[derive(Clone, Copy)]
pub struct Check {
    pub name: &'static str,
    pub run: fn(&mut dyn Comm) -> Outcome,
}

/// Every test, in the order in which the ranks run them.
pub const CHECKS: [Check; 9] = [
    Check { name: "ranks are numbered", run: ranks_are_numbered },
    Check { name: "gathers of 0, 1 and 1,000 words", run: gathers },
    Check { name: "maxima", run: maxima },
    Check { name: "exchanges with empty parts", run: exchanges },
    Check { name: "an exchange of a million words", run: large },
    Check { name: "late ranks", run: late },
    Check { name: "eight exchanges finished out of order", run: interleaved },
    Check { name: "an exchange that is polled", run: polled },
    Check { name: "counts that do not fit", run: misuse },
];

fn ensure(holds: bool, wrong: impl FnOnce() -> String) -> Outcome {
    if holds { Ok(()) } else { Err(wrong().into()) }
}

fn hash(parts: &[u32]) -> u32 {
    parts.iter().fold(17, |state, &part| fmix32(state.wrapping_mul(0x9e37_79b9).wrapping_add(part)))
}

/// The words that rank `from` sends to rank `to` in an exchange: none in two of five, at most `most`.
fn part(exchange: u32, from: u32, to: u32, most: u32) -> Vec<u32> {
    let random = hash(&[exchange, from, to]);
    let count = if random % 5 < 2 { 0 } else { hash(&[random]) % (most + 1) };
    (0..count).map(|at| hash(&[exchange, from, to, at])).collect()
}

fn parcels(ranks: u32, part: impl Fn(u32) -> Vec<u32>) -> Parcels {
    Parcels::new((0..ranks).map(part))
}

/// What this rank sends in an exchange, and what it should get.
fn both(comm: &dyn Comm, exchange: u32, most: u32) -> (Parcels, Parcels) {
    let (own, ranks) = (comm.rank(), comm.size());
    (parcels(ranks, |to| part(exchange, own, to, most)), parcels(ranks, |from| part(exchange, from, own, most)))
}

fn equal(comm: &dyn Comm, exchange: u32, wanted: &Parcels, found: &Parcels) -> Outcome {
    let of = format!("rank {}, exchange {exchange}", comm.rank());
    let counts = [&wanted.counts, &found.counts];
    ensure(counts[0] == counts[1], || format!("{of}: wanted and found counts {counts:?}"))?;
    let Some(at) = wanted.words.iter().zip(&found.words).position(|(wanted, found)| wanted != found) else {
        let [wanted, found] = [wanted, found].map(|parcels| parcels.words.len());
        return ensure(wanted == found, || format!("{of}: wanted {wanted} words, found {found}"));
    };
    let (wanted, found) = (wanted.words[at], found.words[at]);
    Err(format!("{of}, word {at}: wanted {wanted:#x}, found {found:#x}").into())
}

fn ranks_are_numbered(comm: &mut dyn Comm) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    ensure(rank < size, || format!("wanted a rank below {size}, found {rank}"))?;
    let (wanted, found) = ((0..size).collect::<Vec<_>>(), comm.all_gather(&[rank])?);
    ensure(wanted == found, || format!("wanted ranks {wanted:?}, found {found:?}"))
}

fn gathers(comm: &mut dyn Comm) -> Outcome {
    for count in [0, 1, 1000] {
        let of = |rank| (0..count).map(move |at| hash(&[rank, at]));
        let found = comm.all_gather(&of(comm.rank()).collect::<Vec<_>>())?;
        let wanted: Vec<u32> = (0..comm.size()).flat_map(of).collect();
        ensure(wanted == found, || format!("{count} words a rank: rank {} found others", comm.rank()))?;
    }
    Ok(())
}

fn maxima(comm: &mut dyn Comm) -> Outcome {
    // Each rank has the greatest value once; all bits count, and values are unsigned.
    for greatest in 0..comm.size() {
        for (high, low) in [(u32::MAX, 0), (0x8000_0000, 0x7fff_ffff), (1, 0), (0, 0)] {
            let found = comm.max(if comm.rank() == greatest { high } else { low })?;
            ensure(found == high, || format!("rank {}: wanted {high} of rank {greatest}, found {found}", comm.rank()))?;
        }
    }
    Ok(())
}

fn exchanges(comm: &mut dyn Comm) -> Outcome {
    for exchange in 0..60 {
        // Every eighth is empty everywhere.
        let (send, wanted) = both(comm, exchange, [0, 1, 7, 100, 1000, 3, 20_000, 50][exchange as usize % 8]);
        let found = comm.all_to_all(send, &wanted.counts)?;
        equal(comm, exchange, &wanted, &found)?;
    }
    Ok(())
}

/// The last rank sends to rank 0 alone: too much for a message that a network sends before it is asked for.
fn large(comm: &mut dyn Comm) -> Outcome {
    let last = comm.size() - 1;
    let own = comm.rank();
    let part = |from, to| {
        let count = if (from, to) == (last, 0) { 1_000_000 } else { 0 };
        (0..count).map(|at| hash(&[at])).collect()
    };
    let wanted = parcels(last + 1, |from| part(from, own));
    let found = comm.all_to_all(parcels(last + 1, |to| part(own, to)), &wanted.counts)?;
    equal(comm, 0, &wanted, &found)
}

fn late(comm: &mut dyn Comm) -> Outcome {
    for exchange in 0..2 * comm.size() {
        if exchange % comm.size() == comm.rank() {
            thread::sleep(Duration::from_millis(3));
        }
        let (send, wanted) = both(comm, exchange, 30);
        let found = comm.all_to_all(send, &wanted.counts)?;
        equal(comm, exchange, &wanted, &found)?;
    }
    Ok(())
}

fn interleaved(comm: &mut dyn Comm) -> Outcome {
    let rank = comm.rank();
    for round in 0..6 {
        let mut open: Vec<(u32, Parcels, Ticket)> = Vec::new();
        for exchange in 0..8 {
            let exchange = 8 * round + exchange;
            let (send, wanted) = both(comm, exchange, if exchange % 3 == 0 { 5000 } else { 40 });
            let ticket = comm.start(send, &wanted.counts)?;
            open.push((exchange, wanted, ticket));
            // Other calls between start and finish.
            if exchange % 3 == 1 {
                let found = comm.max(hash(&[exchange, rank]))?;
                let wanted = (0..comm.size()).map(|rank| hash(&[exchange, rank])).max().unwrap();
                ensure(found == wanted, || format!("rank {rank}: wanted {wanted}, found {found}"))?;
                comm.poll(&open[hash(&[exchange]) as usize % open.len()].2)?;
            }
        }
        let found = comm.all_gather(&[round])?;
        ensure(found == vec![round; comm.size() as usize], || {
            format!("rank {rank}: wanted {round}s, found {found:?}")
        })?;
        // Each rank has an order of its own.
        while !open.is_empty() {
            let at = hash(&[rank, round, open.len() as u32]) as usize % open.len();
            let (exchange, wanted, ticket) = open.swap_remove(at);
            let found = comm.finish(ticket)?;
            equal(comm, exchange, &wanted, &found)?;
        }
    }
    Ok(())
}

fn polled(comm: &mut dyn Comm) -> Outcome {
    for exchange in 0..20 {
        let (send, wanted) = both(comm, exchange, 20_000);
        let ticket = comm.start(send, &wanted.counts)?;
        while !comm.poll(&ticket)? {
            thread::yield_now();
        }
        ensure(comm.poll(&ticket)?, || format!("rank {}: an exchange that was done is not", comm.rank()))?;
        let found = comm.finish(ticket)?;
        equal(comm, exchange, &wanted, &found)?;
    }
    Ok(())
}

/// Nothing of a wrong call goes out: the calls after it are as ever.
fn misuse(comm: &mut dyn Comm) -> Outcome {
    let (rank, ranks) = (comm.rank() as usize, comm.size() as usize);
    let even = |words| Parcels::new((0..ranks).map(|_| vec![7; words]));
    let mut self_differs = vec![2; ranks];
    self_differs[rank] = 1;
    let mut few_words = even(2);
    few_words.words.pop();
    let mut huge = even(1);
    huge.counts[rank] = usize::MAX;
    for (what, send, receive) in [
        ("a rank without a count to send", Parcels::new((1..ranks).map(|_| vec![7; 2])), vec![2; ranks]),
        ("a count to receive too many", even(2), vec![2; ranks + 1]),
        ("no count", Parcels::default(), vec![]),
        ("a word too few", few_words, vec![2; ranks]),
        ("a count beyond all memory", huge, vec![1; ranks]),
        ("another count of oneself", even(2), self_differs),
    ] {
        let found = comm.start(send, &receive);
        ensure(is_exchange(&found), || format!("{what}: rank {rank} found {found:?}"))?;
        let found = comm.all_to_all(even(1), &vec![1; ranks])?;
        ensure(found == even(1), || format!("after {what}: rank {rank} found {found:?}"))?;
    }
    let stray = Ticket::new(u64::MAX);
    let found = comm.poll(&stray);
    ensure(is_exchange(&found), || format!("poll: rank {rank} found {found:?}"))?;
    let found = comm.finish(stray);
    ensure(is_exchange(&found), || format!("finish: rank {rank} found {found:?}"))
}

fn is_exchange<T>(found: &Result<T, Error>) -> bool {
    matches!(found.as_ref().map_err(RankError::of), Err(Some(RankError::Exchange { .. })))
}
