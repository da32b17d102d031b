//! Parameter-shared tables on the GPU at the edges: batches around the sizes of a workgroup and of a sort, arrays with more blocks than a
//! dispatch has workgroups, one row many times, chunks of 1 and longer than a row, and illegal configurations.

use hotrow::{
    Context, CpuSharedGroup, Error, GradSlice, Init, Optimizer, RankBody,
    prelude::*,
    robe::{Backward, Config, Gradient, hash::PRIME},
};

use hotrow_harness::{
    arrays,
    device::{again, options, with_gpu},
    shared::{Bags, WAYS, forward, nudge, random_grads},
};

/// Runs a step on the device and on the CPU: outputs, gradient and state are equal bit for bit. Returns the gradient.
fn same_as_the_cpu(context: &Context, config: &Config, bags: &Bags) -> Gradient {
    let mut group = hotrow::SharedGroup::new(context, config.clone()).unwrap();
    let mut mirror = CpuSharedGroup::new(config.clone()).unwrap();
    let outputs = forward(&mut group, bags);
    assert!(outputs == forward(&mut mirror, bags), "outputs, {config:?}");
    let grads = random_grads(1, outputs.len());
    let gradient = group.gradient(GradSlice::F32(&grads)).unwrap();
    assert!(gradient == mirror.gradient(GradSlice::F32(&grads)).unwrap(), "gradient, {config:?}");
    group.backward(&grads).unwrap();
    mirror.backward(&grads).unwrap();
    let after = group.snapshot().unwrap();
    assert!(after == mirror.snapshot(), "after, {config:?}");
    let mut wrong = after.clone();
    nudge(&mut wrong, 0, 1.0);
    assert!(wrong != after, "the comparison can fail");
    gradient
}

#[test]
fn batches_around_a_workgroup_and_a_sort() {
    with_gpu(|context| {
        let narrow = again(&options().rank(RankBody::Portable).max_groups(3));
        for n in [0, 1, 127, 128, 129, 255, 256, 257, 1023, 1024, 1025, 3071, 3072, 3073] {
            let indices: Vec<u32> = (0..n).map(|i| i * i % 977).collect();
            let bags = Bags { indices, offsets: vec![0, n / 3, n / 3, n], weights: None };
            for (k, backward) in (0..).zip(WAYS) {
                // One chunk an index, several chunks, and a chunk longer than a row.
                for [dim, chunk, weights] in [[8, 8, 700], [5, 1, 4000], [3, 40, 900]] {
                    let config = Config::new(&[1000], dim, weights, chunk)
                        .with_backward(backward)
                        .with_optimizer(Optimizer::sgd(0.5));
                    same_as_the_cpu(if n % 2 == k { context } else { &narrow }, &config, &bags);
                }
            }
        }
    });
}

/// An array with more blocks of weights than one dimension of a dispatch has workgroups.
#[test]
fn an_array_of_more_than_65535_blocks() {
    with_gpu(|context| {
        let weights = 65_536 * 256 + 1000;
        if u64::from(weights) * 4 > context.caps().choose_piece_bytes() {
            return hotrow_harness::device::skipped("an array of 64 MiB: the device binds less");
        }
        let bags = Bags { indices: (0..500).map(|i| i * 7_919).collect(), offsets: vec![0, 100, 500], weights: None };
        for backward in [Backward::Dense, Backward::Sparse, Backward::Atomic] {
            let mut config = Config::new(&[u32::MAX - 1], 16, weights, 8);
            (config.backward, config.optimizer, config.init) = (backward, Optimizer::sgd(0.5), Init::Constant(0.25));
            let gradient = same_as_the_cpu(context, &config, &bags);
            let covered = match gradient {
                Gradient::Dense(sums) => {
                    assert!(sums[65_536 * 256..].len() == 1000);
                    sums.iter().filter(|&&sum| sum != 0.0).count()
                }
                Gradient::Sparse { locations, .. } => locations.len(),
            };
            // Few of the 1,000 chunks overlap, among 16 million weights.
            assert!((7900..=8000).contains(&covered), "{covered}");
        }
    });
}

/// Sums of many chunks at each start.
#[test]
fn one_row_a_hundred_thousand_times() {
    with_gpu(|context| {
        let new = |config: &Config| hotrow::SharedGroup::new(context, config.clone()).unwrap();
        WAYS.into_iter().for_each(|backward| arrays::one_row_a_hundred_thousand_times(&new, backward, 0.0));
    });
}

#[test]
fn configurations_that_cannot_be_are_named() {
    with_gpu(|context| {
        let good = Config::new(&[100, 7], 10, 64, 8);
        hotrow::SharedGroup::new(context, good.clone()).unwrap();
        for (config, field, found) in [
            (good.clone().with_chunk(65), "weights", "64"),
            (good.clone().with_weights(PRIME + 1), "weights", "2038074744"),
            (good.clone().with_dim(0), "dim", "0"),
            (good.clone().with_chunk(0), "chunk", "0"),
            (good.clone().with_tables(vec![u32::MAX, u32::MAX]), "tables", "8589934590"),
            (good.clone().with_tables(vec![u32::MAX]), "tables", "4294967295"),
        ] {
            let of = |error| match error {
                Error::Config { field, found, .. } => (field, found),
                other => panic!("{other:?}"),
            };
            let wanted = (field, found.to_owned());
            assert_eq!(of(CpuSharedGroup::new(config.clone()).unwrap_err()), wanted);
            assert_eq!(of(hotrow::SharedGroup::new(context, config).unwrap_err()), wanted);
        }
        // The most rows that 32 bits can number, and a look-up of the last row.
        let most = good.with_tables(vec![u32::MAX - 2, 1]);
        let mut group = hotrow::SharedGroup::new(context, most.clone()).unwrap();
        let mut mirror = CpuSharedGroup::new(most).unwrap();
        let rows = [u32::MAX - 2, u32::MAX - 3, 0];
        assert_eq!(group.read_rows(&rows).unwrap(), mirror.read_rows(&rows).unwrap());
        for compression in [1e9, 0.5, f64::INFINITY, f64::NAN] {
            let made = Config::compressed(&[1000], 64, compression, 32);
            assert!(matches!(made, Err(Error::Config { field: "compression", .. })), "{compression}");
        }
    });
}
