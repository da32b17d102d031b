//! Shared arrays over several ranks (docs/scale-out.md): each takes the gradient of its own bags, all take the sum, and each takes the step.

use hotrow::{
    Bags, CpuScaler, CpuSharedGroup, Error, GradSlice, GroupConfig, LossScale, Mode, Optimizer, OutOfRange, Policy,
    prelude::*,
    robe::{Backward, Config, RobeSnapshot},
};
use hotrow_dist::{Comm, Parcels, Threads};
use hotrow_harness::ranks::{Batch, PARTS, configuration};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

/// A random array, and the configuration of its rows, of which batches are drawn.
fn drawn(random: &mut StdRng) -> (Config, GroupConfig) {
    // Rows of an array have no policy and no padding.
    let rows = configuration(random).with_policy(Policy::Lru).with_padding(Vec::new());
    let rows = rows.with_out_of_range(OutOfRange::Skip);
    let optimizer = [Optimizer::sgd(0.05), Optimizer::adagrad(0.05), Optimizer::momentum(0.05), Optimizer::adam(0.05)];
    let optimizer = [&optimizer[..], &[Optimizer::ftrl(0.05).with_l1(0.5), Optimizer::lion(0.01)]].concat();
    let config = Config::new(&rows.tables, rows.dim, random.random_range(64..600), random.random_range(1..5))
        .with_features(rows.features.clone())
        .with_pooling(rows.pooling)
        .with_out_of_range(rows.out_of_range)
        .with_precision(rows.precision)
        .with_backward([Backward::Auto, Backward::Dense, Backward::Sparse][random.random_range(0..3)])
        .with_optimizer(optimizer[random.random_range(0..6)])
        .with_init(rows.init)
        .with_seed(rows.seed);
    (config, rows)
}

/// The sums of all ranks' floats, added in the order of the ranks: the recipe of docs/scale-out.md.
fn sum(comm: &mut impl Comm, own: &[f32]) -> Result<Vec<f32>, Error> {
    let (rank, ranks) = (comm.rank() as usize, comm.size() as usize);
    let slice = |of: usize| own.len() * of / ranks..own.len() * (of + 1) / ranks;
    let words = |floats: &[f32]| floats.iter().map(|x| x.to_bits()).collect::<Vec<u32>>();
    let mine = slice(rank).len();
    let found = comm.all_to_all(Parcels::new((0..ranks).map(|to| words(&own[slice(to)]))), &vec![mine; ranks])?;
    let mut sums = vec![-0.0; mine];
    for other in found.iter() {
        sums.iter_mut().zip(other).for_each(|(sum, &word)| *sum += f32::from_bits(word));
    }
    let lengths: Vec<usize> = (0..ranks).map(|of| slice(of).len()).collect();
    let all = comm.all_to_all(Parcels::new(vec![words(&sums); ranks]), &lengths)?;
    Ok(all.words.into_iter().map(f32::from_bits).collect())
}

/// Weights, states and step number.
fn state(array: &mut CpuSharedGroup) -> RobeSnapshot {
    RobeSnapshot { counters: Default::default(), ..array.snapshot().unwrap() }
}

#[test]
fn ranks_have_the_bits_of_one_rank_with_the_summed_gradient() {
    let (mut moved, mut spoiled) = (0, 0);
    for seed in hotrow_harness::seeds("data parallel", 16) {
        let random = &mut StdRng::seed_from_u64(seed);
        let (config, rows) = drawn(random);
        let batches: Vec<Batch> = (0..5).map(|_| Batch::random(random, &rows)).collect();
        for ranks in [2, 3] {
            // The summed gradients of the steps, and the array behind them.
            let found = Threads::run(ranks, |comm: &mut Threads| {
                let (rank, ranks) = (comm.rank() as usize, ranks as usize);
                let mut array = CpuSharedGroup::new(config.clone())?;
                let mut sums = Vec::new();
                for (step, batch) in batches.iter().enumerate() {
                    let part = batch.part(&rows, rank * PARTS / ranks..(rank + 1) * PARTS / ranks);
                    array.forward(part.bags(), Mode::Train)?;
                    let own = array.gradient(GradSlice::F32(&part.gradients(step)))?;
                    sums.push(sum(comm, &own)?);
                    array.step(&sums[step])?;
                }
                Ok((sums, state(&mut array)))
            })
            .unwrap();
            let (sums, wanted) = &found[0];
            assert!(found.iter().all(|(_, other)| other == wanted), "seed {seed}, {ranks} ranks, {config:?}");
            // One rank, with a batch that has no access.
            let alone = |change: f32| {
                let mut array = CpuSharedGroup::new(config.clone()).unwrap();
                let fresh = state(&mut array);
                for sum in sums {
                    array.forward(Bags::new(&[], &[0]), Mode::Train).unwrap();
                    array.step(&sum.iter().map(|x| change * x).collect::<Vec<_>>()).unwrap();
                }
                (fresh, state(&mut array))
            };
            let (fresh, same) = alone(1.0);
            assert!(same == *wanted, "seed {seed}, {ranks} ranks, {config:?}");
            moved += u32::from(fresh.weight_words != wanted.weight_words);
            spoiled += u32::from(alone(-1.0).1 != *wanted);
        }
    }
    assert!(moved > 20 && spoiled > 20, "the comparison can fail: {moved}, {spoiled}");
}

/// A scaled loss: one decision for all ranks, of which one has no bag.
#[test]
fn ranks_with_a_scaled_loss_stay_alike() {
    let config = Config::new(&[50], 4, 64, 4).with_optimizer(Optimizer::adam(0.1));
    let run = |overflows: bool| {
        Threads::run(2, |comm: &mut Threads| {
            let mut array = CpuSharedGroup::new(config.clone())?;
            let (indices, offsets): (&[u32], &[u32]) = if comm.rank() == 0 { (&[7, 9], &[0, 2]) } else { (&[], &[0]) };
            for step in 0..3 {
                let grads: Vec<f32> =
                    array.forward(Bags::new(indices, offsets), Mode::Train)?.iter().map(|x| 16.0 * x).collect();
                let greatest = grads.iter().fold(0, |most, g| most.max(g.abs().to_bits()));
                let greatest = if overflows && step == 1 { f32::INFINITY.to_bits() } else { comm.max(greatest)? };
                let mut scaler = CpuScaler::new(LossScale::Static { scale: 16.0 })?;
                scaler.inspect(GradSlice::F32(&[f32::from_bits(greatest)]));
                let own = array.gradient(GradSlice::F32(&grads))?;
                array.step_scaled(&sum(comm, &own)?, &scaler.decide()?)?;
            }
            Ok(state(&mut array))
        })
        .unwrap()
    };
    let [found, overflowed] = [run(false), run(true)];
    assert!(found[0] == found[1] && overflowed[0] == overflowed[1]);
    assert_eq!((found[0].t, overflowed[0].t), (3, 3));
    assert!(found[0] != overflowed[0], "the comparison can fail");
}
