//! A table file that fails once, at its n-th call, for every n of a run: filled, trained, flushed, saved, trained on, loaded, trained again.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
};

use hotrow::{
    Context, Error, FileStore, Group, GroupConfig, Layout, Optimizer, Placement, Precision, SharedStore, Snapshot,
    Store, checkpoint, prelude::*,
};
use hotrow_harness::device::with_gpu;

use crate::staged::insist;

fn config() -> GroupConfig {
    GroupConfig::new(&[300], 6)
        .with_precision(Precision::Int8)
        .with_cache_rows(32)
        .with_optimizer(Optimizer::adagrad(0.05))
        .with_placement(Placement::Staged)
}

#[derive(Debug)]
struct Fails {
    inner: FileStore,
    /// Number of calls before the one that fails.
    patience: Arc<AtomicI64>,
}

impl Fails {
    fn attempt(&self) -> Result<(), Error> {
        if self.patience.fetch_sub(1, Relaxed) != 0 {
            return Ok(());
        }
        let (wanted, found) = ("a disk that works".into(), "none".into());
        Err(Error::Store { store: "test".into(), what: "disk", wanted, found, remedy: "call again", source: None })
    }
}

impl Store for Fails {
    fn rows(&self) -> u32 {
        self.inner.rows()
    }
    fn stride(&self) -> u64 {
        self.inner.stride()
    }
    fn read(&self, rows: &[u32], out: &mut [u8]) -> Result<(), Error> {
        self.attempt()?;
        self.inner.read(rows, out)
    }
    fn write(&mut self, rows: &[u32], records: &[u8]) -> Result<(), Error> {
        // Half of the records are there before the failure.
        let half = rows.len() / 2;
        self.inner.write(&rows[..half], &records[..half * self.inner.stride() as usize])?;
        self.attempt()?;
        self.inner.write(rows, records)
    }
    fn read_range(&self, first_row: u32, out: &mut [u8]) -> Result<(), Error> {
        self.attempt()?;
        self.inner.read_range(first_row, out)
    }
    fn write_range(&mut self, first_row: u32, records: &[u8]) -> Result<(), Error> {
        self.attempt()?;
        self.inner.write_range(first_row, records)
    }
    fn unflushed(&mut self) -> Result<(), Error> {
        self.attempt()?;
        self.inner.unflushed()
    }
    fn flushed(&mut self, step: u32) -> Result<(), Error> {
        self.attempt()?;
        self.inner.flushed(step)
    }
    fn step(&self) -> u32 {
        self.inner.step()
    }
    fn check(&self, config: &GroupConfig, layout: &Layout) -> Result<(), Error> {
        self.inner.check(config, layout)
    }
    fn filled(&self) -> bool {
        self.inner.filled()
    }
}

/// The files of a run.
struct Place<'a> {
    folder: &'a Path,
    context: &'a Context,
}

fn train(group: &mut Group, steps: std::ops::Range<u32>, failures: &mut u32) {
    for step in steps {
        let indices: Vec<u32> = (0..80u32).map(|i| (i * i * 31 + step * 97) % 300).collect();
        let offsets: Vec<u32> = (0..=20).map(|bag| bag * 4).collect();
        let mut waits = false;
        let outputs = insist(failures, || {
            // After a failure the batch waits like a prefetched one.
            if std::mem::replace(&mut waits, true) {
                let again = group.forward_prefetched();
                if !matches!(again, Err(Error::Order { .. })) {
                    return again;
                }
            }
            group.forward(&indices, &offsets, None)
        });
        insist(failures, || group.backward(&outputs));
    }
}

/// The table in the file after each flush of an undisturbed run, by step.
type Flushed = Vec<(u32, Vec<u8>)>;

impl Place<'_> {
    fn group(&self, patience: &Arc<AtomicI64>, failures: &mut u32) -> (Group, SharedStore) {
        let _ = std::fs::remove_file(self.folder.join("table"));
        let patience = patience.clone();
        let inner = FileStore::create(self.folder.join("table"), &config()).unwrap();
        let store = SharedStore::new(Fails { inner, patience });
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
            train(&mut group, steps.clone(), &mut failures);
            insist(&mut failures, || group.flush());
            flushed.push((steps.end, table(&store)));
            if steps.start == 0 {
                insist(&mut failures, || checkpoint::save(&mut group, &saved));
            }
        }
        insist(&mut failures, || checkpoint::load(&mut group, &saved));
        train(&mut group, 3..7, &mut failures);
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

#[test]
fn every_failure_of_a_file_can_be_called_again() {
    with_gpu(|context| {
        let folder = tempfile::tempdir().unwrap();
        let place = Place { folder: folder.path(), context };
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
    });
}
