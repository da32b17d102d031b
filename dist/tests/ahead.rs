//! Prefetched batches over several ranks (SPEC 11): the bits of plain forwards, and rows that travel before the backward.

use std::{cell::RefCell, rc::Rc};

use hotrow::{Bags, CpuGroup, Error, GroupConfig, Init, Lookup, Mode, Optimizer, Policy, Precision};
use hotrow_dist::{Comm, Group, Parcels, Phase, RankError, Threads, Ticket, WireForm, WireOptions, hand_on};

use crate::{on, opened};

/// A rank that notes its exchanges as they start and as they are finished.
#[derive(Debug)]
struct Noted<'c> {
    comm: &'c mut Threads,
    notes: Rc<RefCell<Vec<(char, u64)>>>,
}

impl Comm for Noted<'_> {
    hand_on!(self, self.comm; rank size poll all_gather max abort);

    fn start(&mut self, send: Parcels, receive: &[usize]) -> Result<Ticket, Error> {
        let ticket = self.comm.start(send, receive)?;
        self.notes.borrow_mut().push(('s', ticket.number()));
        Ok(ticket)
    }

    fn finish(&mut self, ticket: Ticket) -> Result<Parcels, Error> {
        self.notes.borrow_mut().push(('f', ticket.number()));
        self.comm.finish(ticket)
    }
}

/// Row 2 is in both batches, row 4 and row 6 in the second alone. All are rank 0's, and rank 1 asks for them.
#[test]
fn rows_that_the_last_batch_leaves_alone_travel_before_its_backward() {
    let mut config = GroupConfig::new(&[100], 8).with_precision(Precision::Fp32).with_optimizer(Optimizer::sgd(1.0));
    config.init = Init::Uniform { low: -1.0, high: 1.0 };
    let found = Threads::run(2, |comm: &mut Threads| {
        let notes = Rc::default();
        let mut group = Group::new(Noted { comm, notes: Rc::clone(&notes) }, config.clone(), 2, CpuGroup::new)?;
        let first = group.rank() == 0;
        let batch =
            |rows: &'static [u32]| if first { (&[][..], &[0, 0][..]) } else { (rows, &[0, 1, 2, 3][..rows.len() + 1]) };
        let rows_sent = |group: &Group<Noted<'_>, CpuGroup>| group.traffic().bytes(Phase::Rows) / 32;
        let (indices, offsets) = batch(&[2, 8]);
        let outputs = group.forward(Bags::new(indices, offsets), Mode::Train)?;
        let before = rows_sent(&group);
        let (indices, offsets) = batch(&[2, 4, 6]);
        group.prefetch(Bags::new(indices, offsets))?;
        group.advance()?;
        let early = rows_sent(&group) - before;
        let ticket = notes.borrow().last().copied();
        notes.borrow_mut().clear();
        group.backward(&vec![1.0; outputs.len()])?;
        let in_backward = notes.borrow().clone();
        assert_eq!(rows_sent(&group) - before, early, "the backward sends no rows");
        let second = group.forward_prefetched()?;
        let late = rows_sent(&group) - before - early;
        let finished = notes.borrow().iter().position(|&note| Some(note) == ticket.map(|(_, number)| ('f', number)));
        group.discard_pending();
        Ok((outputs, second, early, late, ticket, in_backward, finished, group.read_rows(&[2, 4, 6])?))
    })
    .unwrap();
    let [_, (outputs, second, _, _, ticket, in_backward, finished, rows)] = &found[..] else { panic!("two ranks") };
    assert_eq!((found[0].2, found[0].3), (2, 1), "rows 4 and 6 early, row 2 late");
    assert_eq!(second, rows, "and all are those after the backward");
    assert!(outputs[..8] != second[..8], "a row 2 that had gone early would be seen");
    // The exchange of the early rows begins before the backward, and nothing waits for it until the gradients have been exchanged and applied.
    assert!(matches!(ticket, Some(('s', _))), "{ticket:?}");
    assert!(in_backward.len() >= 2 && in_backward.iter().all(|(_, number)| Some(*number) != ticket.map(|(_, n)| n)));
    assert!(finished.is_some_and(|at| at >= in_backward.len()), "finished by forward_prefetched: {finished:?}");
}

/// Under LFU a dirty row of an INT8 table may be written back before its own batch reads it, so it is not sent early; a clean one is.
#[test]
fn a_row_that_may_be_rounded_goes_late() {
    for (policy, precision, early) in
        [(Policy::Lfu, Precision::Int8, 1), (Policy::Lru, Precision::Int8, 2), (Policy::Lfu, Precision::Fp32, 2)]
    {
        let mut config = GroupConfig::new(&[100], 32).with_precision(precision).with_cache_rows(64);
        config.policy = policy;
        let sent = on((2, 2), &config, |mut group| {
            let empty = group.rank() == 0;
            let mut batch = |rows: &'static [u32], prefetch: bool| {
                let (indices, offsets) = if empty { (&[][..], &[0][..]) } else { (rows, &[0, 1, 2][..rows.len() + 1]) };
                if prefetch {
                    group.prefetch(Bags::new(indices, offsets))?;
                    return group.advance();
                }
                let outputs = group.forward(Bags::new(indices, offsets), Mode::Train)?;
                group.backward(&outputs)
            };
            batch(&[2], false)?;
            batch(&[2, 4], true)?;
            Ok(group.traffic().clone())
        });
        // A packed row has 10 words and the list one; a row in FP32 has 32.
        let first = if precision == Precision::Int8 { 11 } else { 32 };
        let rest = sent[0].bytes(Phase::Rows) / 4 - first;
        let wanted = match (precision, early) {
            (Precision::Int8, 1) => 11,
            (Precision::Int8, _) => 1 + 10 + 32,
            _ => 64,
        };
        assert_eq!(rest, wanted, "{policy}, {precision}");
    }
}

/// The bytes of a prefetched step are those of a plain one, and one bit for each row asked for.
#[test]
fn a_prefetched_step_sends_one_bit_a_row_more() {
    let config = GroupConfig::new(&[1000], 4).with_precision(Precision::Fp32);
    let sent = |ahead: bool| {
        on((4, 4), &config, |mut group| {
            let of = |step: u32| (0..70).map(|i| (i * (step + 3) * 4 + i % 7 + 4) % 1000).collect::<Vec<u32>>();
            let offsets: Vec<u32> = (0..=70).collect();
            let first = group.forward(Bags::new(&of(0), &offsets), Mode::Train)?;
            if ahead {
                group.prefetch(Bags::new(&of(1), &offsets))?;
            }
            group.backward(&first)?;
            let second = if ahead {
                group.forward_prefetched()?
            } else {
                group.forward(Bags::new(&of(1), &offsets), Mode::Train)?
            };
            group.backward(&second)?;
            let asked = (0..4).filter(|&rank| rank != group.rank()).map(|rank| {
                let mut rows: Vec<u32> = of(1).into_iter().filter(|row| row % 4 == rank).collect();
                rows.sort_unstable();
                rows.dedup();
                4 * rows.len().div_ceil(32) as u64
            });
            Ok((group.traffic().clone(), asked.sum::<u64>()))
        })
    };
    let (plain, ahead) = (sent(false), sent(true));
    let all = |of: &[(hotrow_dist::RankTraffic, u64)], phase| of.iter().map(|(sent, _)| sent.bytes(phase)).sum::<u64>();
    for phase in Phase::ALL {
        let more = if phase == Phase::Sizes { plain.iter().map(|&(_, bits)| bits).sum() } else { 0 };
        assert_eq!(all(&ahead, phase), all(&plain, phase) + more, "{}", phase.name());
    }
    assert!(all(&ahead, Phase::Sizes) > 0, "the comparison can fail");
}

#[test]
fn calls_out_of_order_are_refused_on_every_rank() {
    let folder = tempfile::tempdir().unwrap();
    let config = GroupConfig::new(&[100], 4).with_cache_rows(32).with_init(Init::Constant(1.0));
    on((2, 2), &config, |mut group| {
        let first = group.rank() == 0;
        let order = |found: Result<Vec<f32>, Error>| assert!(matches!(found, Err(Error::Order { .. })), "{found:?}");
        order(group.forward_prefetched());
        group.advance()?;
        assert!(group.poll()?, "nothing is under way");
        let outputs = group.forward(Bags::new(&[1, 2], &[0, 2]), Mode::Train)?;
        // A bad index on one rank: refused on both, and the forward goes on waiting.
        let refused = group.prefetch(Bags::new(&[if first { 100 } else { 3 }], &[0, 1]));
        refuses!(opened(refused), Err(Error::IndexOutOfRange { .. }) | Ok(RankError::Other { rank: 0, .. }));
        let refused = group.prefetch(Bags::new(&[3], if first { &[0, 1] } else { &[0, 9] }));
        refuses!(opened(refused), Err(Error::BadOffsets { .. }) | Ok(RankError::Other { rank: 1, .. }));
        assert!(group.pending());
        order(group.forward_prefetched());
        group.prefetch(Bags::new(&[3, 1], &[0, 2]))?;
        order(group.forward(Bags::new(&[1], &[0, 1]), Mode::Train));
        order(group.forward(Bags::new(&[1], &[0, 1]), Mode::Frozen));
        order(group.read_rows(&[1]));
        order(group.prefetch(Bags::new(&[3], &[0, 1])).map(|()| Vec::new()));
        order(group.flush().map(|()| Vec::new()));
        for found in [group.save(folder.path()), group.load(folder.path())] {
            order(found.map(|()| Vec::new()));
        }
        assert_eq!(group.counters()?[0].accesses, 4);
        // A row of ones, and the gradient of a bag of two such rows.
        assert_eq!(group.weight_gradient(Bags::new(&[1, 2], &[0, 2]), &outputs)?, [8.0; 2]);
        // A backward that is refused may be made again, with the early rows under way.
        let refused = group.backward(if first { &outputs } else { &outputs[1..] });
        refuses!(opened(refused), Err(Error::Length { .. }) | Ok(RankError::Other { rank: 1, .. }));
        group.backward(&outputs)?;
        group.forward_prefetched()?;
        group.discard_pending();
        // One rank prefetches, the other does not.
        let both = if first {
            group.prefetch(Bags::new(&[1], &[0, 1])).map(|()| Vec::new())
        } else {
            group.forward(Bags::new(&[1], &[0, 1]), Mode::Train)
        };
        refuses!(opened(both), Ok(RankError::Exchange { what: "call", .. }));
        group.forward(Bags::new(&[1], &[0, 1]), Mode::Train).map(drop)
    });
    let group = Group::new(Threads::alone(), config, 2, CpuGroup::new).unwrap();
    let wire = WireOptions { rows: WireForm::Fp16, ..WireOptions::default() };
    let mut group = group.with_wire(WireOptions::default()).unwrap();
    group.prefetch(Bags::new(&[1], &[0, 1])).unwrap();
    refuses!(group.with_wire(wire).map(drop), Error::Order { call: "with_wire", .. });
}

/// What may come between a prefetch and its forward: another learning rate, and no backward at all. A batch that is given up takes no step.
#[test]
fn what_comes_between_counts_as_it_does_in_turn() {
    let config = GroupConfig::new(&[100], 8).with_cache_rows(32).with_init(Init::Uniform { low: -1.0, high: 1.0 });
    let run = |ahead: bool, rate: f32| {
        on((2, 2), &config, |mut group| {
            let mut seen = Vec::new();
            let batch = |step: u32| [step, step + 1, 7];
            for step in 0..6 {
                let outputs = if ahead && step > 0 {
                    group.forward_prefetched()?
                } else {
                    group.forward(Bags::new(&batch(step), &[0, 2, 3]), Mode::Train)?
                };
                seen.extend(outputs.iter().map(|x| x.to_bits()));
                if ahead {
                    group.prefetch(Bags::new(&[50 + step], &[0, 1]))?;
                    if step % 2 == 0 {
                        group.advance()?;
                    }
                    group.abandon_prefetched()?;
                    group.abandon_prefetched()?;
                    group.prefetch(Bags::new(&batch(step + 1), &[0, 2, 3]))?;
                    group.advance()?;
                }
                group.set_learning_rate(rate * step as f32)?;
                if step % 3 == 0 {
                    if ahead {
                        refuses!(group.forward_prefetched(), Error::Order { call: "forward", .. });
                    }
                    group.backward(&outputs)?;
                } else {
                    group.discard_pending();
                }
            }
            group.abandon_prefetched()?;
            group.discard_pending();
            seen.extend(group.read_rows(&Vec::from_iter(0..100))?.iter().map(|x| x.to_bits()));
            Ok((seen, group.counters()?))
        })
    };
    assert!(run(true, 0.1) == run(false, 0.1));
    assert!(run(true, 0.1) != run(false, 0.2), "the comparison can fail");
}
