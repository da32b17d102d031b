//! Pinned rows on a device, in every placement. `lockstep.rs` and `naive_runs.rs` check each call; `prefetch.rs` checks
//! prefetched batches and staged tables.

use std::sync::atomic::Ordering::Relaxed;

use hotrow::internals::Pieces as _;
use hotrow::{
    Context, Counters, FileStore, Group, Placement, Policy, SharedStore,
    internals::layout::{Field, WAYS, way_at},
    internals::{Layout, RamStore},
    prelude::*,
};

use hotrow_harness::{
    device::placements,
    failing::{Failing, insist},
    gpu_test,
    pins::{self as common, some, step},
};

#[gpu_test]
fn hot_batches_move_nothing(context: &Context) {
    for placement in placements(context) {
        for policy in Policy::ALL {
            let layout = Layout::new(&common::config(policy), u64::MAX).unwrap();
            let mut config = common::config(policy).with_placement(placement);
            // Several pieces, and two windows where the device binds them.
            config.set_piece_bytes(Some(layout.stride() * 100));
            let windows = u64::from(context.caps().choose_windows().min(2));
            config.set_window_bytes(Some(u64::from(layout.slots()) / windows * layout.slot_bytes()));
            let mut group = Group::new(context, config).unwrap();
            common::hot_batches_move_nothing(&mut group);
            // The same test, with the bytes that a staged table copies.
            let copied = |group: &Group| group.traffic().map_or(0, |traffic| traffic.bytes_in + traffic.bytes_out);
            let pinned = group.pinned().unwrap();
            group.flush().unwrap(); // rows that left in the last step go to the store with the next call
            let before = copied(&group);
            step(&mut group, &pinned);
            assert_eq!(copied(&group), before, "{policy:?}");
            step(&mut group, &some(40));
            assert_eq!(copied(&group) != before, placement == Placement::Staged, "{policy:?}");
        }
    }
}

#[gpu_test]
fn fp32_shows_nothing(context: &Context) {
    for placement in placements(context) {
        common::fp32_shows_nothing(&|config| Box::new(Group::new(context, config.with_placement(placement)).unwrap()));
    }
}

/// The cache grows and shrinks from two windows to none, one and three, where the device binds them.
#[gpu_test]
fn a_resized_cache_is_as_a_new_one(context: &Context) {
    for placement in [Placement::Device, Placement::Staged] {
        common::a_resized_cache_is_as_a_new_one(&|config| {
            let layout = Layout::new(&config, u64::MAX).unwrap();
            let window_bytes = (context.caps().choose_windows() >= 3).then(|| 64 * layout.slot_bytes());
            Box::new(Group::new(context, config.with_placement(placement).with_window_bytes(window_bytes)).unwrap())
        });
    }
}

#[gpu_test]
fn misuse_is_refused(context: &Context) {
    for placement in [Placement::Device, Placement::Staged] {
        common::misuse_is_refused(&|config| Box::new(Group::new(context, config.with_placement(placement)).unwrap()));
    }
}

/// A row that a pin loads is clean, so a flushed file stays flushed and opens again. The updates of a step clear its flag.
#[gpu_test]
fn a_file_stays_flushed(context: &Context) {
    let folder = tempfile::tempdir().unwrap();
    for pins in [true, false] {
        let path = folder.path().join(format!("{pins}.hotrow"));
        let config = common::config(Policy::Static).with_placement(Placement::Staged);
        let store = SharedStore::new(FileStore::create(&path, &config).unwrap());
        let mut group = Group::with_store(context, config.clone(), store).unwrap();
        step(&mut group, &some(1));
        if pins {
            group.pin(&some(2), 30).unwrap();
        } else {
            group.flush().unwrap();
            step(&mut group, &some(1));
        }
        drop(group);
        assert_eq!(FileStore::open(&path, &config).unwrap().was_flushed(), pins);
    }
}

/// The state of a group without the ways of rows inside a set. After a failed call, loaded rows take the ways in another order.
fn whole(group: &mut Group) -> (Vec<[u32; 5]>, Vec<u32>, Vec<Counters>, Vec<f32>) {
    let found = group.snapshot().unwrap();
    let mut ways: Vec<[u32; 5]> = (0..found.ways.len() as u32 / 4)
        .map(|slot| {
            let word = |field| found.ways[way_at(WAYS, slot, field)];
            [slot / WAYS, word(Field::Tag), word(Field::Stamp), word(Field::Freq), word(Field::Flags)]
        })
        .collect();
    ways.sort_unstable();
    let rows = group.read_rows(&(0..801).collect::<Vec<_>>()).unwrap();
    (ways, found.records, found.counters, rows)
}

/// A call to the store may fail at any point of the flush or the loads. Rows that failed to load are not in the cache, and the repeated
/// call gives the same state as a call that never failed.
#[gpu_test]
fn a_store_that_fails_loses_nothing(context: &Context) {
    for policy in [Policy::Lfu, Policy::Static] {
        let config = common::config(policy).with_placement(Placement::Staged);
        let rows = [some(7), (0..60).collect()].concat();
        let mut wanted = None;
        let (mut failures, mut loading) = (0, 0);
        for patience in [i64::MAX].into_iter().chain(0..20) {
            let store = Failing::new(RamStore::new(&config).unwrap());
            let left = store.patience.clone();
            let mut group = Group::with_store(context, config.clone(), SharedStore::new(store)).unwrap();
            group.pin(&some(3), 9).unwrap();
            (0..3).for_each(|seed| drop(step(&mut group, &some(seed))));
            let before = failures;
            left.store(patience, Relaxed);
            let left_out = insist(&mut failures, || {
                let done = group.pin(&rows, 20);
                if done.is_err() {
                    // The state after the failure is valid.
                    let half = group.snapshot().unwrap();
                    let mut other = Group::new(context, config.clone()).unwrap();
                    other.restore(&half).unwrap();
                    assert_eq!(other.pinned(), group.pinned());
                    loading += usize::from(group.pinned().unwrap().iter().all(|row| rows.contains(row)));
                }
                done
            });
            left.store(i64::MAX, Relaxed);
            let pinned = whole(&mut group);
            assert!(left_out.len() > 5, "{left_out:?}");
            let mut rows = group.pinned().unwrap();
            rows.sort_unstable(); // the order in which a bag is summed
            step(&mut group, &rows);
            group.flush().unwrap();
            let found = (left_out, pinned, whole(&mut group));
            // `assert_eq` would print every record.
            let first = wanted.get_or_insert_with(|| found.clone());
            assert!(*first == found, "{policy:?}, patience {patience}");
            // One pin fewer must be noticed.
            group.pin(&rows[1..], 32).unwrap();
            assert!(first.2 != whole(&mut group));
            if failures == before && patience != i64::MAX {
                break; // the patience was longer than all calls
            }
        }
        assert!(failures >= 2 && loading >= 1, "{policy:?}: {failures} failures, {loading} while rows were loaded");
    }
}
