//! Checkpoints of a group on the GPU, and from one backend to the other.

use std::process::Command;

use hotrow::internals::Pieces as _;
use hotrow::{
    Context, CpuGroup, Error, Group, GroupConfig, Init, Placement, Precision, Snapshot, checkpoint, prelude::*,
};
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64;
use tempfile::tempdir;

use hotrow_harness::{
    device::{skipped, with_gpu},
    prefetch::{Plan, busy_config, play, random_plans},
    sample_seeds, seed_for,
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
    let stride = hotrow::Layout::new(config, u64::MAX).unwrap().stride();
    config
        .clone()
        .with_init(Init::Constant(0.25))
        .with_shard_bytes(if seed.is_multiple_of(2) { None } else { Some(stride * 9) })
        .with_placement(match seed % 3 {
            0 => Placement::Staged,
            1 if context.caps().mappable => Placement::Mapped,
            _ => Placement::Device,
        })
}

#[test]
fn a_loaded_group_goes_on_bit_for_bit() {
    with_gpu(|context| {
        if !context.caps().mappable {
            skipped(&format!("checkpoints in mapped placement: {} cannot", context.caps().name));
        }
        let folder = tempdir().unwrap();
        let path = folder.path().join("group.safetensors");
        for seed in sample_seeds(4, "checkpoints", 15) {
            let (config, first, second) = random_case(seed);
            let from = config.clone().with_placement(if seed % 4 < 2 { Placement::Staged } else { Placement::Device });
            let mut straight = gpu(context, &from);
            play(&mut straight, &first, true);
            checkpoint::save(&mut straight, &path).unwrap();
            let saved = straight.snapshot().unwrap();
            let wanted = play(&mut straight, &second, true);

            let contents = checkpoint::contents(&path).unwrap();
            assert_eq!(contents.step, saved.t);
            let mut loaded = gpu(context, &elsewhere(context, &contents.config, seed));
            assert_ne!(loaded.snapshot().unwrap(), saved, "the comparison can fail");
            checkpoint::load(&mut loaded, &path).unwrap();
            assert_eq!(loaded.snapshot().unwrap(), saved, "seed {seed}, {config:?}");
            assert_eq!(play(&mut loaded, &second, false), wanted, "seed {seed}, {config:?}");
        }
    });
}

/// The integer state of a snapshot, which is the same bit for bit on every backend.
fn integers(snapshot: &Snapshot) -> (u32, &[u32], &[u32], &[hotrow::Counters]) {
    (snapshot.t, &snapshot.ways, &snapshot.freqs, &snapshot.counters)
}

#[test]
fn from_one_backend_to_the_other() {
    with_gpu(|context| {
        let folder = tempdir().unwrap();
        let path = folder.path().join("group.safetensors");
        for seed in sample_seeds(3, "from backend to backend", 8) {
            let (config, first, second) = random_case(seed);
            let pair = || -> [Box<dyn Embedding>; 2] {
                [Box::new(gpu(context, &config)), Box::new(CpuGroup::new(config.clone()).unwrap())]
            };
            for reverse in [false, true] {
                let ([mut from, _], [_, mut to]) = (pair(), pair());
                if reverse {
                    std::mem::swap(&mut from, &mut to);
                }
                play(&mut *from, &first, false);
                checkpoint::save(&mut *from, &path).unwrap();
                checkpoint::load(&mut *to, &path).unwrap();
                assert_eq!(to.snapshot().unwrap(), from.snapshot().unwrap());
                let ((_, a), (_, b)) = (play(&mut *from, &second, false), play(&mut *to, &second, false));
                assert_eq!(integers(&a), integers(&b), "seed {seed}, {config:?}");
            }
        }
    });
}

#[test]
fn damage_changes_nothing_on_the_device() {
    with_gpu(|context| {
        let folder = tempdir().unwrap();
        let path = folder.path().join("group.safetensors");
        let (config, first, second) = random_case(3);
        let mut group = gpu(context, &config);
        play(&mut group, &first, false);
        checkpoint::save(&mut group, &path).unwrap();
        let (_, before) = play(&mut group, &second, false);
        if group.pending() {
            group.abandon_backward();
        }
        let right = std::fs::read(&path).unwrap();
        let mut source = Pcg64::seed_from_u64(seed_for("damage"));
        for _ in 0..50 {
            let mut wrong = right.clone();
            wrong[source.random_range(0..right.len())] ^= 1 << source.random_range(0..8);
            std::fs::write(&path, wrong).unwrap();
            let result = checkpoint::load(&mut group, &path);
            assert!(matches!(result, Err(Error::Checkpoint { .. })), "{result:?}");
            assert_eq!(group.snapshot().unwrap(), before);
        }
        std::fs::write(&path, right).unwrap();
        checkpoint::load(&mut group, &path).unwrap();
        assert_ne!(group.snapshot().unwrap(), before);
    });
}

const CHILD: &str = "HOTROW_TEST_CHECKPOINT";

/// The figure in a line of `/proc/self/status`, in bytes.
#[cfg(target_os = "linux")]
fn memory(line: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let value = status.lines().find_map(|text| text.strip_prefix(line)).unwrap();
    value.trim_start_matches(':').trim_end_matches("kB").trim().parse::<u64>().unwrap() << 10
}

/// Saving and loading a table of 0.5 GiB takes at most 96 MiB of further host memory, for transfers and the driver.
#[cfg(target_os = "linux")]
#[test]
fn no_second_copy_in_memory() {
    with_gpu(|context| {
        let Some(path) = std::env::var_os(CHILD) else {
            let folder = tempdir().unwrap();
            let mut child = Command::new(std::env::current_exe().unwrap());
            child.args(["--exact", "checkpoint::no_second_copy_in_memory", "--nocapture"]);
            let output = child.env(CHILD, folder.path().join("group.safetensors")).output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
            let added: Vec<u64> = text.lines().filter_map(|line| line.strip_prefix("added ")?.parse().ok()).collect();
            let [save, load, snapshot] = added[..] else { panic!("{text}") };
            assert!(save <= 96 << 20, "saving added {save} bytes");
            assert!(load <= 96 << 20, "loading added {load} bytes");
            assert!(snapshot > 500 << 20, "a copy would have been seen: {snapshot} bytes");
            return;
        };
        let config = GroupConfig::new(&[1 << 20], 128).with_precision(Precision::Fp32);
        let mut group = gpu(context, &config);
        // Waits until the table is cleared, so that its own memory is there before the first measurement.
        group.read_rows(&[0]).unwrap();
        let mut measure = |work: &mut dyn FnMut(&mut Group)| {
            std::fs::write("/proc/self/clear_refs", "5").unwrap(); // the peak starts again from now
            let before = memory("VmRSS");
            work(&mut group);
            println!("added {}", memory("VmHWM").saturating_sub(before));
        };
        measure(&mut |group| checkpoint::save(group, &path).unwrap());
        measure(&mut |group| checkpoint::load(group, &path).unwrap());
        measure(&mut |group| drop(group.snapshot().unwrap()));
    });
}
