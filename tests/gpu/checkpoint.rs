//! Checkpoints of a group on the GPU, and from one backend to the other.

use std::fs;

use hotrow::internals::Pieces as _;
use hotrow::{
    Context, CpuGroup, Group, GroupConfig, Init, Placement, Precision, checkpoint, prelude::*, state::Snapshot,
};
use rand::SeedableRng as _;
use rand_pcg::Pcg64;

use hotrow_harness::{
    child,
    data::place,
    device::skipped,
    gpu_test,
    prefetch::{Plan, busy_config, play, random_plans},
    sample_seeds,
};

/// A configuration and two sequences of steps. No backward is pending between the sequences.
fn random_case(seed: u64) -> (GroupConfig, Vec<Plan>, Vec<Plan>) {
    let mut source = Pcg64::seed_from_u64(seed);
    let config = busy_config(&mut source);
    let mut first = random_plans(&config, &mut source, 6);
    let second = random_plans(&config, &mut source, 6);
    first.iter_mut().for_each(|plan| plan.backward = true);
    (config, first, second)
}

fn gpu(context: &Context, config: &GroupConfig) -> Group {
    Group::new(context, config.clone()).unwrap()
}

/// The same configuration with other values of all settings that a loading group may choose.
fn elsewhere(context: &Context, config: &GroupConfig, seed: u64) -> GroupConfig {
    let stride = hotrow::internals::Layout::new(config, u64::MAX).unwrap().stride();
    config
        .clone()
        .with_init(Init::Constant(0.25))
        .with_piece_bytes(if seed.is_multiple_of(2) { None } else { Some(stride * 9) })
        .with_placement(match seed % 3 {
            0 => Placement::Staged,
            1 if context.caps().mappable => Placement::Mapped,
            _ => Placement::Device,
        })
}

/// The integer state of a snapshot, which is the same bit for bit on every backend.
fn integers(snapshot: &Snapshot) -> (u32, &[u32], &[u32], &[hotrow::Counters]) {
    (snapshot.t, &snapshot.ways, &snapshot.freqs, &snapshot.counters)
}

/// In any placement, and on the CPU, whose file has the same bytes.
#[gpu_test]
fn a_loaded_group_goes_on_bit_for_bit(context: &Context) {
    if !context.caps().mappable {
        skipped(&format!("checkpoints in mapped placement: {} cannot", context.caps().name));
    }
    let (_folder, path) = place();
    for seed in sample_seeds(4, "checkpoints", 15) {
        let (config, first, second) = random_case(seed);
        let from = config.clone().with_placement(if seed % 4 < 2 { Placement::Staged } else { Placement::Device });
        let mut straight = gpu(context, &from);
        play(&mut straight, &first, true);
        checkpoint::save(&mut straight, &path).unwrap();
        let (saved, file) = (straight.snapshot().unwrap(), fs::read(&path).unwrap());
        let wanted = play(&mut straight, &second, true);

        let (held, step) = checkpoint::contents(&path).unwrap();
        assert_eq!(step, saved.t);
        let mut loaded = gpu(context, &elsewhere(context, &held, seed));
        let mut mirror = CpuGroup::new(held).unwrap();
        let groups: [&mut dyn Embedding; 2] = [&mut loaded, &mut mirror];
        for group in groups {
            assert_ne!(group.snapshot().unwrap(), saved, "the comparison can fail");
            checkpoint::load(group, &path).unwrap();
            assert_eq!(group.snapshot().unwrap(), saved, "seed {seed}, {config:?}");
        }
        assert_eq!(play(&mut loaded, &second, false), wanted, "seed {seed}, {config:?}");
        checkpoint::save(&mut mirror, &path).unwrap();
        assert!(fs::read(&path).unwrap() == file, "seed {seed}, {config:?}");
        let (_, found) = play(&mut mirror, &second, false);
        assert_eq!(integers(&found), integers(&wanted.1), "seed {seed}, {config:?}");
    }
}

/// Saving and loading a table of 0.5 GiB takes at most 96 MiB of further host memory, for transfers and the driver.
#[cfg(target_os = "linux")]
#[gpu_test]
fn no_second_copy_in_memory(_: &Context) {
    child::no_second_copy("checkpoint::copies_are_measured", 96 << 20, 500 << 20);
}

#[cfg(target_os = "linux")]
#[gpu_test]
#[ignore = "run by no_second_copy_in_memory"]
fn copies_are_measured(context: &Context) {
    let mut group = gpu(context, &GroupConfig::new(&[1 << 20], 128).with_precision(Precision::Fp32));
    // Waits until the table is cleared, so that its own memory is there before the first measurement.
    group.read_rows(&[0]).unwrap();
    child::copies(&mut group);
}
