//! Pinned rows on the CPU backend and in the simulator. `naive.rs` checks each call against the FP64 model.

use hotrow::{Bags, CpuGroup, Error, GroupConfig, Mode, Policy, prelude::*};
use hotrow_harness::pins;
use hotrow_plan::simulate::Simulator;
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64;

use crate::cpu::unlike;

fn group(config: GroupConfig) -> Box<dyn Embedding> {
    Box::new(CpuGroup::new(config).unwrap())
}

#[test]
fn hot_batches_move_nothing() {
    for policy in Policy::ALL {
        pins::hot_batches_move_nothing(&mut *group(pins::config(policy)));
    }
}

#[test]
fn fp32_shows_nothing() {
    pins::fp32_shows_nothing(&group);
}

#[test]
fn a_resized_cache_is_as_a_new_one() {
    pins::a_resized_cache_is_as_a_new_one(&group);
}

#[test]
fn misuse_is_refused() {
    pins::misuse_is_refused(&group);
}

/// Compares the simulator's counters and residents with a group's, over random batches and pins, in sets of 1 to 40
/// ways. `bend` changes the rows and ways that the simulator gets.
fn simulated(seed: u64, policy: Policy, bend: impl Fn(&mut Vec<u32>, &mut u32)) -> Result<(), String> {
    let mut source = Pcg64::seed_from_u64(seed);
    let rows = source.random_range(20..300);
    let mut config = GroupConfig::new(&[rows], 1);
    (config.policy, config.ways) = (policy, [1, 2, 7, 32, 40][source.random_range(0..5)]);
    config.cache_rows = source.random_range(1..=rows);
    config.window_ways = 4.min(config.ways - 1);
    let mut cache = Simulator::new(&config).unwrap();
    let mut group = CpuGroup::new(config).unwrap();
    let ways = group.layout().ways;
    for step in 0..12 {
        if source.random_bool(0.4) {
            let count = [0, 4, 60][source.random_range(0..3)];
            let mut list: Vec<u32> = (0..count).map(|_| source.random_range(0..rows)).collect();
            let mut share = source.random_range(1..=ways);
            let wanted = group.pin(&list, share).unwrap();
            bend(&mut list, &mut share);
            let found = cache.pin(&list, share);
            if found != wanted {
                return Err(format!("step {step}: left out {found:?}, a group {wanted:?}"));
            }
        }
        let batch: Vec<u32> = (0..source.random_range(1..60)).map(|_| source.random_range(0..rows)).collect();
        cache.step(&batch);
        group.forward(Bags::new(&batch, &[0, batch.len() as u32]), Mode::Train).unwrap();
        group.discard_pending();
        if let Some(difference) = unlike(&mut group, &cache) {
            return Err(format!("step {step}: {difference}"));
        }
    }
    Ok(())
}

#[test]
fn the_simulator_pins_as_a_group_does() {
    for policy in Policy::ALL {
        for seed in hotrow_harness::seeds("simulated pins", 150) {
            simulated(seed, policy, |_, _| ()).unwrap_or_else(|error| panic!("seed {seed}, {policy:?}: {error}"));
        }
        // Of fixed runs, for certain, the comparison must notice one row fewer, one way fewer, and another order.
        let wrong = |bend: fn(&mut Vec<u32>, &mut u32)| (0..20).any(|seed| simulated(seed, policy, bend).is_err());
        assert!(wrong(|rows, _| rows.truncate(rows.len().saturating_sub(1))));
        assert!(wrong(|_, share| *share -= 1));
        assert!(wrong(|rows, _| rows.reverse()));
    }
}

/// Metadata that no group writes is refused: an unpinned row under Static. (`gpu/bad_input.rs` has other flags.)
#[test]
fn foreign_flags_are_refused() {
    for policy in Policy::ALL {
        let mut group = group(pins::config(policy));
        group.pin(&[5], 1).unwrap();
        pins::step(&mut *group, &[5]);
        let right = group.snapshot().unwrap();
        let at = right.ways.iter().position(|&word| word == 5).unwrap() + 96;
        assert_eq!(right.ways[at], 3, "dirty and pinned");
        for (word, refused) in [(0, policy == Policy::Static), (1, policy == Policy::Static), (4, true), (7, true)] {
            let mut other = right.clone();
            other.ways[at] = word;
            let found = group.restore(&other);
            assert_eq!(matches!(found, Err(Error::Snapshot { what: "flags", .. })), refused, "{word}: {found:?}");
        }
    }
}
