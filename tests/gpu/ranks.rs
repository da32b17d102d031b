//! Groups over several ranks, on a device: the same bits for every number of ranks, and those of a plain group with one shard.

use hotrow::{Group, Placement, Policy};
use hotrow_harness::{
    device::{share, with_gpu},
    ranks::{Batch, alone, configuration, over_ranks},
};
use rand::{SeedableRng as _, rngs::StdRng};

#[test]
fn ranks_change_no_bit() {
    with_gpu(|context| {
        let mut spoiled = 0;
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
            spoiled += u32::from(over_ranks(&config, 4, 2, &batches, true, make) != one);
        }
        assert!(spoiled > 0, "the comparison can fail");
    });
}
