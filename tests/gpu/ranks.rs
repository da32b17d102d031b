//! Groups over several ranks, on a device: the same bits for every number of ranks, and those of a plain group with one shard.

use hotrow::{
    Group, Placement, Policy,
    dist::{WireForm, WireOptions},
};
use hotrow_harness::{
    device::{share, with_gpu},
    ranks::{Batch, alone, configuration, over_ahead, over_ranks, over_wire},
};
use rand::{SeedableRng as _, rngs::StdRng};

#[test]
fn ranks_change_no_bit() {
    with_gpu(|context| {
        let (mut spoiled, mut rounded) = (0, 0);
        for seed in share(0..6) {
            let random = &mut StdRng::seed_from_u64(seed);
            let mut config = configuration(random);
            config.ways = 32;
            if seed == 1 {
                (config.policy, config.cache_rows) = (Policy::Static, config.total_rows() as u32);
            }
            config.placement = if seed % 3 == 2 { Placement::Staged } else { Placement::Device };
            let batches: Vec<Batch> = (0..3).map(|_| Batch::random(random, &config)).collect();
            let make = {
                let context = context.clone();
                move |config| Group::new(&context, config)
            };
            let one = over_ranks(&config, 4, 1, &batches, false, make.clone());
            let more = over_ranks(&config, 4, 2, &batches, false, make.clone());
            assert!(more == one, "seed {seed}, {config:?}");
            let plain = alone(Group::new(context, config.clone()).unwrap(), &batches);
            assert!(over_ranks(&config, 1, 1, &batches, false, make.clone()) == plain, "seed {seed}, {config:?}");
            // A lossy wire wants four floats a row.
            let mut wide = config.clone();
            wide.dim = wide.dim.max(4);
            let even: Vec<Batch> = batches.iter().map(|batch| batch.clone().even()).collect();
            let wire = WireOptions { rows: WireForm::Int8, gradients: WireForm::Fp16, summed: true };
            let over = |wire, ranks| over_wire(wire, &wide, (4, ranks), &even, false, make.clone());
            let lossy = over(wire, 1);
            assert!(over(wire, 2) == lossy, "seed {seed}, lossy, {wide:?}");
            assert!(
                over_ahead(wire, &wide, (4, 2), &even, false, make.clone()) == lossy,
                "seed {seed}, ahead, {wide:?}"
            );
            rounded += u32::from(over(WireOptions::default(), 1) != lossy);
            spoiled += u32::from(over_ranks(&config, 4, 2, &batches, true, make) != one);
        }
        assert!(spoiled > 0 && rounded > 0, "the comparison can fail: {spoiled}, {rounded} lossy");
    });
}
