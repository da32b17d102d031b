//! Each allocation of a group over ranks fails once.

use hotrow::{Bags, CpuGroup, Error, GroupConfig, Init, Lookup as _, Mode, Optimizer, internals::fault};
use hotrow_dist::{Group, RankError, Threads};

use crate::opened;

fn config() -> GroupConfig {
    let config = GroupConfig::new(&[100], 4).with_cache_rows(64).with_init(Init::Uniform { low: -1.0, high: 1.0 });
    config.with_optimizer(Optimizer::adagrad(0.1))
}

/// What a group over ranks does after the allocation behind the first `n` fails.
#[derive(Debug, PartialEq)]
enum End {
    /// None failed.
    Undisturbed,
    /// The second call went on.
    Repeated,
    /// The group refused every call until a checkpoint was loaded.
    Loaded,
}

/// The calls of a run: `f` and `b` for forward and backward, `p` and `n` for prefetch and the forward of the prefetched batch.
const RUNS: [&str; 2] = ["fbfbfb", "pnpbnpbnb"];

fn over_ranks(calls: &str, n: u64) -> Result<(Vec<u32>, End), Error> {
    let folder = tempfile::tempdir().unwrap();
    let mut group = Group::new(Threads::alone(), config(), 4, CpuGroup::new)?;
    group.save(folder.path())?;
    let (mut outputs, mut end, mut k) = (Vec::new(), End::Undisturbed, 0);
    fault::after(n);
    while let Some(name) = calls.get(k..=k) {
        let step = calls[..k].matches(['f', 'p']).count() as u32;
        let batch: Vec<u32> = (0..30).map(|i| (i * i * (step + 3) + 7 * i) % 100).collect();
        let mut call = || match name {
            "f" => group.forward(Bags::new(&batch, &[0, 15, 30]), Mode::Train),
            "p" => group.prefetch(Bags::new(&batch, &[0, 15, 30])).map(|()| Vec::new()),
            "n" => group.forward_prefetched(),
            _ => group.backward(&[0.25; 8]).map(|()| Vec::new()),
        };
        let found = match call() {
            Err(Error::OutOfMemory { .. }) => {
                end = End::Repeated;
                call()
            }
            found => found,
        };
        match opened(found) {
            Ok(found) => outputs.extend(found.iter().map(|value| value.to_bits())),
            Err(Ok(RankError::Exchange { what: "group", .. })) => {
                refuses!(opened(group.save(folder.path())), Ok(RankError::Exchange { what: "group", .. }));
                group.load(folder.path())?;
                (end, k) = (End::Loaded, 0);
                outputs.clear();
                continue;
            }
            Err(error) => return Err(error.map_or_else(|error| error, Into::into)),
        }
        k += 1;
    }
    assert_eq!(fault::withdraw(), end == End::Undisturbed);
    outputs.extend(group.read_rows(&Vec::from_iter(0..100))?.iter().map(|value| value.to_bits()));
    Ok((outputs, end))
}

/// A job of one rank has nobody to end. After an error in the middle of a step some shards have taken it and some have not.
#[test]
fn a_group_over_ranks_goes_on_or_asks_for_a_checkpoint() {
    let (wanted, _) = over_ranks(RUNS[0], u64::MAX).unwrap();
    for calls in RUNS {
        let mut ends = [0; 2];
        for n in 0.. {
            let (found, end) = over_ranks(calls, n).unwrap_or_else(|error| panic!("{calls}, allocation {n}: {error}"));
            assert!(found == wanted, "{calls}, allocation {n}, {end:?}: other bits");
            match end {
                End::Undisturbed => break,
                End::Repeated => ends[0] += 1,
                End::Loaded => ends[1] += 1,
            }
        }
        println!("{calls}: {} allocations failed, one in each run", ends[0] + ends[1]);
        assert!(ends[0] > 2 && ends[1] > 10, "{calls}: {ends:?}");
    }
}
