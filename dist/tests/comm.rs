//! Exchanges between ranks in threads of this process, and what becomes of a job whose rank fails.

use std::{sync::mpsc, thread, time::Duration};

use hotrow::Error;
use hotrow_dist::{Comm, Parcels, RankError, Threads, Ticket, hand_on};
use hotrow_harness::comm::{CHECKS, Check, Outcome};

/// The results of `work` on each rank. A rank that still waits after ten seconds fails the test.
fn each<T: Send + 'static>(ranks: u32, work: impl Fn(Threads) -> T + Clone + Send + 'static) -> Vec<thread::Result<T>> {
    let threads: Vec<_> = Threads::new(ranks)
        .into_iter()
        .map(|comm| {
            let (done, wait) = mpsc::channel::<()>();
            let work = work.clone();
            let thread = thread::spawn(move || {
                let _done = done;
                work(comm)
            });
            (thread, wait)
        })
        .collect();
    let joined = threads.into_iter().map(|(thread, wait)| {
        // The sender is dropped, whether the thread returned or panicked.
        let ended = wait.recv_timeout(Duration::from_secs(10));
        assert_eq!(ended, Err(mpsc::RecvTimeoutError::Disconnected), "a rank still waits");
        thread.join()
    });
    joined.collect()
}

#[test]
fn threads_exchange() {
    for ranks in [1, 2, 3, 4, 8] {
        let all = |mut comm: Threads| -> Outcome {
            let one = |check: &Check| (check.run)(&mut comm).map_err(|error| format!("{}: {error}", check.name).into());
            CHECKS.iter().try_for_each(one)
        };
        each(ranks, all).into_iter().for_each(|outcome| outcome.unwrap().unwrap());
    }
    assert!(Threads::new(0).is_empty());
    assert_eq!(Threads::run(0, |_| Ok(())), Ok(vec![]));
}

/// A way in which an implementation can be wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    Rank,
    GatherOrder,
    Signed,
    OwnMaximum,
    LastBit,
    PartOrder,
    LostWord,
    OtherTicket,
    NeverDone,
    Unchecked,
}

/// A rank with a fault.
#[derive(Debug)]
struct Faulty {
    comm: Threads,
    fault: Fault,
    /// The numbers of the exchanges under way.
    open: Vec<u64>,
    polls: u32,
}

impl Comm for Faulty {
    fn rank(&self) -> u32 {
        if self.fault == Fault::Rank { 0 } else { self.comm.rank() }
    }

    hand_on!(self, self.comm; size abort);

    fn start(&mut self, send: Parcels, receive: &[usize]) -> Result<Ticket, Error> {
        let ticket = match self.comm.start(send, receive) {
            Err(Error::Ranks(_)) if self.fault == Fault::Unchecked => return Ok(Ticket::new(0)),
            result => result?,
        };
        self.open.push(ticket.number());
        Ok(ticket)
    }

    fn poll(&mut self, ticket: &Ticket) -> Result<bool, Error> {
        self.polls += 1;
        match self.comm.poll(ticket) {
            Ok(true) if self.fault == Fault::NeverDone => {
                // The list of tests has no limit of time.
                if self.polls < 1000 { Ok(false) } else { Err(ticket.unknown()) }
            }
            result => result,
        }
    }

    fn finish(&mut self, ticket: Ticket) -> Result<Parcels, Error> {
        let number = ticket.number();
        let other = self.open.iter().copied().find(|_| self.fault == Fault::OtherTicket).unwrap_or(number);
        self.open.retain(|&open| open != other);
        let mut parcels = self.comm.finish(Ticket::new(other))?;
        match self.fault {
            Fault::LastBit => parcels.words.iter_mut().last().into_iter().for_each(|word| *word ^= 1),
            Fault::PartOrder => {
                let mut parts: Vec<_> = parcels.iter().map(<[u32]>::to_vec).collect();
                parts.reverse();
                parcels = Parcels { words: parts.concat(), ..parcels };
            }
            Fault::LostWord => parcels.words.truncate(99_999),
            _ => {}
        }
        Ok(parcels)
    }

    fn all_gather(&mut self, words: &[u32]) -> Result<Vec<u32>, Error> {
        let mut all = self.comm.all_gather(words)?;
        if self.fault == Fault::GatherOrder {
            all.reverse();
        }
        Ok(all)
    }

    fn max(&mut self, value: u32) -> Result<u32, Error> {
        let values = self.comm.all_gather(&[value])?;
        Ok(match self.fault {
            Fault::Signed => values.into_iter().map(u32::cast_signed).max().unwrap().cast_unsigned(),
            Fault::OwnMaximum => value,
            _ => values.into_iter().max().unwrap(),
        })
    }
}

/// The tests above can fail: each fault is found by one of them.
#[test]
fn faults_are_found() {
    let faults = [
        (Fault::Rank, "ranks are numbered"),
        (Fault::GatherOrder, "ranks are numbered"),
        (Fault::Signed, "maxima"),
        (Fault::OwnMaximum, "maxima"),
        (Fault::LastBit, "exchanges with empty parts"),
        (Fault::PartOrder, "exchanges with empty parts"),
        (Fault::LostWord, "an exchange of a million words"),
        (Fault::OtherTicket, "eight exchanges finished out of order"),
        (Fault::NeverDone, "an exchange that is polled"),
        (Fault::Unchecked, "counts that do not fit"),
        (Fault::None, ""),
    ];
    for (fault, finder) in faults {
        for check in CHECKS {
            let outcomes = each(2, move |comm| (check.run)(&mut Faulty { comm, fault, open: Vec::new(), polls: 0 }));
            let failed = outcomes.into_iter().any(|outcome| outcome.unwrap().is_err());
            assert!(failed || check.name != finder, "{fault:?} passes {}", check.name);
            assert!(!failed || fault != Fault::None, "{} fails without a fault", check.name);
        }
    }
}

/// A call that waits for the other ranks.
type Wait = fn(&mut Threads) -> Result<(), Error>;

/// What a rank waits for while another one fails.
const WAITS: [Wait; 4] = [
    |comm| comm.all_to_all(Parcels::new(vec![vec![1]; 4]), &[1; 4]).map(drop),
    |comm| comm.all_gather(&[1]).map(drop),
    |comm| comm.max(1).map(drop),
    |comm| {
        let ticket = comm.start(Parcels::new(vec![vec![1]; 4]), &[1; 4])?;
        while !comm.poll(&ticket)? {
            thread::yield_now();
        }
        comm.finish(ticket).map(drop)
    },
];

#[test]
fn a_rank_that_ends_fails_the_calls_of_all() {
    for wait in WAITS {
        for (end, reason) in
            [("abort", "the disk is full"), ("panic", "it panicked"), ("return", "it ended while others waited for it")]
        {
            let outcomes = each(4, move |mut comm| {
                // What a rank sent before it ended arrives.
                wait(&mut comm).unwrap();
                match end {
                    _ if comm.rank() != 2 => {}
                    "abort" => {
                        thread::sleep(Duration::from_millis(10));
                        comm.abort(reason);
                        comm.abort("a second reason");
                    }
                    "panic" => panic!("a panic of this test"),
                    _ => return None,
                }
                Some((wait(&mut comm), wait(&mut comm)))
            });
            let error = Err(RankError::Other { rank: 2, reason: reason.into() }.into());
            for (rank, outcome) in outcomes.into_iter().enumerate() {
                let wanted = (rank != 2 || end == "abort").then(|| (error.clone(), error.clone()));
                assert_eq!(outcome.ok().flatten(), wanted, "rank {rank}, {end}");
            }
        }
    }
}

#[test]
fn the_first_failure_of_a_run_is_its_error() {
    let bad = Error::Bags { features: 3, bags: 4 };
    let fails = |on: u32| {
        let bad = bad.clone();
        Threads::run(4, move |comm| {
            comm.max(1)?;
            if comm.rank() == on {
                return Err(bad.clone());
            }
            comm.max(2)
        })
    };
    assert_eq!(fails(4), Ok(vec![2; 4]));
    let error = fails(2).unwrap_err();
    assert_eq!(RankError::of(&error), Some(&RankError::Other { rank: 2, reason: bad.to_string() }));
    assert_eq!(
        error.to_string(),
        "rank 2: wanted it to take part in the call, found: bags: wanted a multiple of the 3 features, found 4; pass the same number of \
         bags for each feature; correct the cause on that rank"
    );
    let error = Threads::run(3, |comm| {
        assert!(comm.rank() != 1, "a panic of rank {}", comm.rank());
        comm.max(1)
    });
    assert_eq!(error, Err(RankError::Other { rank: 1, reason: "it panicked: a panic of rank 1".into() }.into()));
}

/// Every rank gets an error, and one says what did not fit.
fn rejected(work: impl Fn(&mut Threads) -> Result<(), Error> + Clone + Send + 'static, says: &str) {
    let errors: Vec<String> = each(2, move |mut comm| work(&mut comm).err())
        .into_iter()
        .filter_map(|outcome| outcome.unwrap().map(|error| error.to_string()))
        .collect();
    assert!(errors.iter().any(|error| error == says), "{errors:#?}");
}

#[test]
fn calls_of_two_ranks_that_do_not_fit_are_rejected() {
    rejected(
        |comm| {
            // Rank 0 sends a word to rank 1, which expects two.
            let (send, receive) = if comm.rank() == 0 { (vec![1, 1], [1, 0]) } else { (vec![0, 1], [2, 1]) };
            let send = Parcels::new(send.into_iter().map(|count| vec![5; count]));
            comm.all_to_all(send, &receive).map(drop)
        },
        "exchange, words: wanted 2 from rank 0 to rank 1, found 1; give the count of the other rank",
    );
    rejected(
        |comm| comm.all_gather(&vec![5; 3 + comm.rank() as usize]).map(drop),
        "exchange, words: wanted 4 from rank 0 to rank 1, found 3; give the count of the other rank",
    );
    rejected(
        |comm| if comm.rank() == 0 { comm.max(1).map(drop) } else { comm.all_gather(&[1]).map(drop) },
        "exchange, call: wanted max of every rank as call 0, found all_gather of rank 1; make the same calls in the same order on every rank",
    );
}

#[test]
fn messages_name_what_is_wanted() {
    let send = || Parcels::new([vec![1, 2], vec![3]]);
    for (wrong, message) in [
        (
            send().check(0, 3, &[2, 1, 0]),
            "exchange, counts to send: wanted one for each of 3 ranks, found 2; give a count for each rank, 0 where nothing goes",
        ),
        (
            send().check(1, 2, &[1]),
            "exchange, counts to receive: wanted one for each of 2 ranks, found 1; give a count for each rank, 0 where nothing goes",
        ),
        (
            Parcels { words: vec![1], ..send() }.check(0, 2, &[2, 0]),
            "exchange, words to send: wanted as many as the counts add up to, 3, found 1; make parcels by Parcels::new",
        ),
        (
            send().check(1, 2, &[5, 2]),
            "exchange, counts to receive: wanted 1 words of rank 1 itself, as it sends, found 2; give the same count twice",
        ),
    ] {
        assert_eq!(wrong.unwrap_err().to_string(), message);
    }
    assert_eq!(send().check(1, 2, &[5, 1]), Ok(()));
    let unknown = Threads::alone().finish(Ticket::new(9)).unwrap_err().to_string();
    assert_eq!(
        unknown,
        "exchange, ticket: wanted one that this rank's start returned, found 9; keep the ticket until finish"
    );
}
