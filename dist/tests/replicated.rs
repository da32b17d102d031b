//! Shared arrays over several ranks (SPEC 11): the bits of one rank that has the whole batch.

use std::ops::Range;

use hotrow::{
    Counters, CpuScaler, CpuSharedGroup, Error, GradSlice, GroupConfig, Init, Lookup, LossScale, Optimizer, OutOfRange,
    Policy, Pooling, ScalerState, SharedArray, checkpoint,
    robe::{Backward, Config, RobeSnapshot},
};
use hotrow_dist::{Comm as _, Phase, Replicated, Threads};
use hotrow_harness::ranks::{Batch, PARTS, Steps, configuration, train};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

/// A random array, and the configuration of its rows, of which batches are drawn.
fn drawn(random: &mut StdRng) -> (Config, GroupConfig) {
    let dim = [4, 8, 12][random.random_range(0..3)];
    // Rows of an array have no policy and no padding.
    let rows = configuration(random).with_dim(dim).with_policy(Policy::Lru).with_padding(Vec::new());
    let optimizer = [Optimizer::sgd(0.05), Optimizer::adagrad(0.05), Optimizer::momentum(0.05), Optimizer::adam(0.05)];
    let config = Config::new(&rows.tables, dim, random.random_range(64..600), random.random_range(1..5))
        .with_features(rows.features.clone())
        .with_pooling(rows.pooling)
        .with_out_of_range(rows.out_of_range)
        .with_precision(rows.precision)
        .with_backward([Backward::Auto, Backward::Dense, Backward::Sparse][random.random_range(0..3)])
        .with_optimizer(optimizer[random.random_range(0..4)])
        .with_init(rows.init)
        .with_seed(rows.seed);
    (config, rows)
}

/// Everything that a run shows.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    steps: Steps,
    snapshot: RobeSnapshot,
    counters: Vec<Counters>,
}

/// Trains with the part of a rank; with `spoil` the gradients have the wrong sign.
fn seen(
    array: &mut impl SharedArray,
    rows: &GroupConfig,
    batches: &[Batch],
    pieces: &Range<usize>,
    spoil: bool,
) -> Result<Seen, Error> {
    let steps = train(array, rows, batches, 0..batches.len(), pieces, spoil)?;
    Ok(Seen { steps, snapshot: array.snapshot()?, counters: array.counters()? })
}

/// One rank with the whole batch.
fn alone(config: &Config, rows: &GroupConfig, batches: &[Batch]) -> Seen {
    let mut array = CpuSharedGroup::new(config.clone()).unwrap();
    let Seen { steps, snapshot, counters } = seen(&mut array, rows, batches, &(0..PARTS), false).unwrap();
    Seen { steps: Steps::together(vec![steps]), snapshot, counters }
}

/// What `work` returns on each of some ranks, with its number and its copy of an array of `config`.
fn on<T: Send>(
    ranks: u32,
    config: &Config,
    work: impl Fn(u32, Replicated<&mut Threads, CpuSharedGroup>) -> Result<T, Error> + Sync,
) -> Vec<T> {
    let found =
        Threads::run(ranks, |comm| work(comm.rank(), Replicated::new(comm, CpuSharedGroup::new(config.clone())?)?));
    found.unwrap_or_else(|error| panic!("{error}"))
}

/// The pieces of a rank.
fn part(ranks: usize, rank: usize) -> Range<usize> {
    rank * PARTS / ranks..(rank + 1) * PARTS / ranks
}

fn over(ranks: u32, config: &Config, rows: &GroupConfig, batches: &[Batch], spoil: bool) -> Seen {
    let parts = on(ranks, config, |rank, mut array| {
        seen(&mut array, rows, batches, &part(ranks as usize, rank as usize), spoil)
    });
    assert!(parts.iter().all(|part| (&part.snapshot, &part.counters) == (&parts[0].snapshot, &parts[0].counters)));
    let steps = Steps::together(parts.iter().map(|part| part.steps.clone()).collect());
    Seen { steps, ..parts[0].clone() }
}

#[test]
fn every_number_of_ranks_has_the_bits_of_the_whole_batch() {
    let mut spoiled = 0;
    for seed in hotrow_harness::seeds("replicated", 16) {
        let random = &mut StdRng::seed_from_u64(seed);
        let (config, rows) = drawn(random);
        let mut batches: Vec<Batch> = (0..5).map(|_| Batch::random(random, &rows)).collect();
        if rows.out_of_range == OutOfRange::Error {
            batches[2] = batches[2].clone().with_bad_index(5);
        }
        let wanted = alone(&config, &rows, &batches);
        assert!(wanted.steps.outputs[2].is_empty() == (rows.out_of_range == OutOfRange::Error), "seed {seed}");
        for ranks in [1, 2, 4, 8] {
            let found = over(ranks, &config, &rows, &batches, false);
            assert!(found == wanted, "seed {seed}, {ranks} ranks, {config:?}");
        }
        let wrong = over(4, &config, &rows, &batches, true);
        spoiled += u32::from(wrong.steps != wanted.steps && wrong.snapshot != wanted.snapshot);
    }
    assert!(spoiled > 0, "the comparison can fail");
}

/// A pair of ranks, each with two bags of a feature. `call` gets the number of the rank.
fn pair<T: Send>(
    call: impl Fn(u32, &mut Replicated<&mut Threads, CpuSharedGroup>) -> Result<T, Error> + Sync,
) -> Vec<T> {
    let config = Config::new(&[50], 4, 64, 4).with_optimizer(Optimizer::sgd(1.0));
    on(2, &config, |rank, mut array| call(rank, &mut array))
}

const BAGS: (&[u32], &[u32]) = (&[1, 2, 3], &[0, 2, 3]);

#[test]
fn what_one_rank_refuses_all_refuse() {
    let refused = |indices: &'static [u32], offsets: &'static [u32], frozen: bool| {
        let errors = pair(|rank, array| {
            let (indices, offsets) = if rank == 1 { (indices, offsets) } else { BAGS };
            let forward = if frozen { Replicated::forward_frozen } else { Replicated::forward };
            let error = forward(array, indices, offsets, None).map_err(|error| error.to_string()).unwrap_err();
            // The next step goes on.
            let outputs = array.forward(BAGS.0, BAGS.1, None)?;
            array.backward(&outputs)?;
            Ok(error)
        });
        assert!(errors[0].starts_with("rank 1: ") && errors[0].contains(&errors[1]), "{errors:?}");
        errors[1].clone()
    };
    for frozen in [false, true] {
        assert!(refused(&[1, 50, 3], &[0, 2, 3], frozen).contains("position 1"));
        assert!(refused(&[1, 2, 3], &[0, 2, 4], frozen).contains("offsets"));
    }
    // A second forward leaves the first one its backward.
    for indices in [&[1, 2][..], &[1, 2, 50], BAGS.0] {
        pair(|rank, array| {
            let outputs = array.forward(BAGS.0, BAGS.1, None)?;
            let before = array.snapshot()?;
            let indices = if rank == 0 { indices } else { BAGS.0 };
            refuses!(array.forward(indices, BAGS.1, None), Error::Order { call: "forward", .. });
            assert!(array.pending() && array.snapshot()? == before);
            array.backward(&outputs)
        });
    }
}

#[test]
fn gradients_and_decisions_that_do_not_fit_are_refused_on_all() {
    let decided = |overflows: bool| -> ScalerState {
        let mut scaler = CpuScaler::new(LossScale::BACKOFF).unwrap();
        scaler.inspect(GradSlice::F32(&[if overflows { f32::INFINITY } else { 1.0 }]));
        scaler.decide().unwrap()
    };
    let errors = pair(|rank, array| {
        let before = array.forward_frozen(BAGS.0, BAGS.1, None)?;
        let none = array.backward(&before).unwrap_err().to_string();
        let outputs = array.forward(BAGS.0, BAGS.1, None)?;
        let short = array.backward(&outputs[rank as usize..]).unwrap_err().to_string();
        let other = array.backward_scaled(GradSlice::F32(&outputs), &decided(rank == 1)).unwrap_err().to_string();
        let wrong = array.weight_gradient(&BAGS.0[1..], BAGS.1, &outputs).unwrap_err().to_string();
        // An overflow on all changes nothing and sends nothing.
        array.backward_scaled(GradSlice::F32(&outputs), &decided(true))?;
        assert_eq!((array.forward_frozen(BAGS.0, BAGS.1, None)?, array.traffic().bytes(Phase::Gradients)), (before, 0));
        Ok([none, short, other, wrong])
    });
    for (rank, [none, short, other, wrong]) in errors.iter().enumerate() {
        assert!(none.contains("a forward before each backward"), "{none}");
        assert!(short.contains("grad_outputs") && short.starts_with("rank 1: ") == (rank == 0), "{short}");
        assert!(other.contains("one decision on all ranks"), "{other}");
        assert!(wrong.contains("indices"), "{wrong}");
    }
    let atomic = Config::new(&[50], 4, 64, 4).with_backward(Backward::Atomic);
    let error = Replicated::new(Threads::alone(), CpuSharedGroup::new(atomic).unwrap()).unwrap_err();
    assert!(error.to_string().contains("fixed order"), "{error}");
}

#[test]
fn halves_are_their_floats_and_bytes_are_those_of_the_parts() {
    let halves = [0x3c00, 0x4000, 0xb800, 0x0001, 0x3555, 0x3c00, 0x0000, 0xc000]; // two bags
    let run = |half: bool, weighted: bool| {
        pair(move |rank, array| {
            let weights = (weighted && rank == 0).then_some(&[1.0, 1.0, 1.0][..]);
            array.forward(BAGS.0, BAGS.1, weights)?;
            if half {
                array.backward_half(&halves)?;
            } else {
                let floats = halves.map(|half| half::f16::from_bits(half).to_f32());
                array.backward(&floats)?;
            }
            let bytes = [Phase::Requests, Phase::Gradients].map(|phase| array.traffic().bytes(phase));
            Ok((array.snapshot()?.weight_words, bytes))
        })
    };
    let (floats, bytes) = run(false, false).remove(0);
    assert_eq!(run(true, false)[1].0, floats);
    let weighted = run(false, true);
    assert_eq!(weighted[1].0, floats);
    // Three indices and three offsets; gradients of two bags.
    assert_eq!((bytes, weighted[0].1, weighted[1].1), ([24, 32], [36, 32], [24, 32]));
    let first = pair(|_, array| Ok(array.snapshot()?.weight_words)).remove(0);
    assert_ne!(floats, first, "the comparison can fail");
}

#[test]
fn one_rank_saves_and_all_load() {
    let folder = tempfile::tempdir().unwrap();
    let random = &mut StdRng::seed_from_u64(1);
    let (config, rows) = drawn(random);
    let batches: Vec<Batch> = (0..4).map(|_| Batch::random(random, &rows)).collect();
    let wanted = alone(&config, &rows, &batches);
    let path = folder.path().join("array");
    on(2, &config, |rank, mut array| {
        train(&mut array, &rows, &batches, 0..2, &part(2, rank as usize), false)?;
        if rank == 0 { checkpoint::save_lookup(&mut array, &path) } else { Ok(()) }
    });
    let found = on(4, &config, |rank, mut array| {
        let fresh = array.snapshot()?;
        checkpoint::load_lookup(&mut array, &path)?;
        assert!(fresh != array.snapshot()?);
        train(&mut array, &rows, &batches, 2..4, &part(4, rank as usize), false)?;
        array.snapshot()
    });
    assert!(found.iter().all(|found| *found == wanted.snapshot));
}

/// Batches that are legal on each rank, and too large together.
#[test]
fn a_batch_too_large_together_is_refused_on_all() {
    let (indices, offsets) = (vec![7; 1 << 23], [0, 1 << 23]);
    let found = on(2, &Config::new(&[100], 128, 1000, 1), |_, mut array| {
        let error = array.forward(&indices, &offsets, None).unwrap_err();
        let outputs = array.forward(&[7], &[0, 1], None)?;
        array.backward(&outputs)?;
        Ok(error)
    });
    assert!(found.iter().all(|error| matches!(error, Error::TooLarge { .. })));
}

/// One rank has weights: those of the other are 1.
#[test]
fn weights_of_one_rank_stay_with_its_indices() {
    let config =
        Config::new(&[50, 30], 4, 64, 4).with_pooling(Pooling::Mean).with_init(Init::Uniform { low: -1.0, high: 1.0 });
    // Two features, a bag of each on each rank.
    let parts: [(&[u32], &[u32]); 2] = [(&[1, 2, 3], &[0, 2, 3]), (&[4, 5, 6], &[0, 1, 3])];
    let weights = [0.5, -2.0, 3.0];
    let run = |weights: &[f32]| {
        on(2, &config, |rank, mut array| {
            let (indices, offsets) = parts[rank as usize];
            let outputs = array.forward(indices, offsets, (rank == 0).then_some(weights))?;
            array.backward(&outputs)?;
            Ok(array.snapshot()?.weight_words)
        })
    };
    // Feature by feature: rank 0, then rank 1.
    let mut plain = CpuSharedGroup::new(config.clone()).unwrap();
    let outputs = plain.forward(&[1, 2, 4, 3, 5, 6], &[0, 2, 3, 4, 6], Some(&[0.5, -2.0, 1.0, 3.0, 1.0, 1.0])).unwrap();
    plain.backward(&outputs).unwrap();
    let wanted = plain.snapshot().weight_words;
    assert!(run(&weights).iter().all(|found| *found == wanted));
    assert!(run(&[0.5, 3.0, -2.0])[0] != wanted, "the comparison can fail");
}
