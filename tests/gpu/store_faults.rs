//! A table file that fails once, at its n-th call, for every n of a run: filled, trained, flushed, saved, trained on, loaded, trained again.

use std::{
    ops::Range,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
};

use hotrow::{
    Bags, Context, Error, FileStore, Group, GroupConfig, Init, Mode, Optimizer, Placement, Precision, SharedStore,
    checkpoint, prelude::*, state::Snapshot,
};
use hotrow_harness::{
    failing::{Failing, insist},
    gpu_test,
};

fn config() -> GroupConfig {
    GroupConfig::new(&[300], 6)
        .with_precision(Precision::Int8)
        .with_cache_rows(32)
        .with_optimizer(Optimizer::adagrad(0.05))
        .with_init(Init::Uniform { low: -1.0, high: 1.0 }) // the gradients are the outputs
        .with_placement(Placement::Staged)
}

/// The files of a run.
struct Place<'a> {
    folder: &'a Path,
    context: &'a Context,
    overlap: bool,
}

/// Trains, and prefetches each next batch before the backward if `overlap`.
fn train(group: &mut Group, steps: Range<u32>, overlap: bool, failures: &mut u32) {
    let offsets: Vec<u32> = (0..=20).map(|bag| bag * 4).collect();
    let batch = |step: u32| (0..80u32).map(|i| (i * i * 31 + step * 97) % 300).collect::<Vec<u32>>();
    let mut ahead = false;
    for step in steps.clone() {
        let outputs = insist(failures, || {
            // After a failure the batch waits like a prefetched one.
            if std::mem::replace(&mut ahead, true) {
                let again = group.forward_prefetched();
                if !matches!(again, Err(Error::Order { .. })) {
                    return again;
                }
            }
            group.forward(Bags::new(&batch(step), &offsets), Mode::Train)
        });
        ahead = overlap && step + 1 < steps.end;
        if ahead {
            insist(failures, || group.prefetch(Bags::new(&batch(step + 1), &offsets)));
        }
        insist(failures, || group.backward(&outputs));
    }
}

/// The table in the file after each flush of an undisturbed run, by step.
type Flushed = Vec<(u32, Vec<u8>)>;

impl Place<'_> {
    fn group(&self, patience: &Arc<AtomicI64>, failures: &mut u32) -> (Group, SharedStore) {
        let _ = std::fs::remove_file(self.folder.join("table"));
        let inner = FileStore::create(self.folder.join("table"), &config()).unwrap();
        let store = SharedStore::new(Failing { patience: patience.clone(), ..Failing::new(inner) });
        let group = insist(failures, || Group::with_store(self.context, config(), store.clone()));
        (group, store)
    }

    /// Makes every call again that fails. Returns the end, the number of failures, the table after each flush, and the number of the store's calls.
    fn run(&self, patience: i64) -> (Snapshot, u32, Flushed, i64) {
        let left = Arc::new(AtomicI64::new(patience));
        let table = |store: &SharedStore| table(store, &left);
        let mut failures = 0;
        let (mut group, store) = self.group(&left, &mut failures);
        let mut flushed = vec![(0, table(&store))];
        let saved = self.folder.join("checkpoint");
        for steps in [0..3, 3..5] {
            train(&mut group, steps.clone(), self.overlap, &mut failures);
            insist(&mut failures, || group.flush());
            flushed.push((steps.end, table(&store)));
            if steps.start == 0 {
                insist(&mut failures, || checkpoint::save(&mut group, &saved));
            }
        }
        insist(&mut failures, || checkpoint::load(&mut group, &saved));
        train(&mut group, 3..7, self.overlap, &mut failures);
        insist(&mut failures, || group.flush());
        flushed.push((7, table(&store)));
        let end = insist(&mut failures, || group.snapshot());
        (end, failures, flushed, patience - left.load(Relaxed))
    }
}

/// The records in the store, read past its faults, which it does not count.
fn table(store: &SharedStore, left: &AtomicI64) -> Vec<u8> {
    let before = left.swap(i64::MAX, Relaxed);
    let all = store.with(|store| {
        let mut all = vec![0; store.rows() as usize * store.stride() as usize];
        store.read_range(0, &mut all).map(|()| all)
    });
    left.store(before, Relaxed);
    all.unwrap()
}

#[gpu_test]
fn every_failure_of_a_file_can_be_called_again(context: &Context) {
    for overlap in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let place = Place { folder: folder.path(), context, overlap };
        let (wanted, none, flushed, calls) = place.run(i64::MAX);
        assert_eq!(none, 0);
        for patience in 0..calls {
            let (found, failures, tables, _) = place.run(patience);
            assert!(failures > 0, "call {patience} of {calls} did not fail");
            assert!(found == wanted, "another end after call {patience} failed");
            assert!(tables == flushed, "another table after a flush, after call {patience} failed");
        }
        println!("{calls} faults");
        assert!(calls >= 30, "{calls}");
    }
}
