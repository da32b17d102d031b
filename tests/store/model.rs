//! Stores against a plain vector, over random calls.

use std::collections::BTreeMap;

use hotrow::{Error, FileStore, GroupConfig, Store, internals::RamStore};
use proptest::prelude::*;

use super::{config, layout};

#[derive(Clone, Debug)]
enum Call {
    /// A list of rows, which may repeat a row.
    Read(Vec<u32>),
    /// The rows, and the values from which their records are made.
    Write(BTreeMap<u32, u8>),
    ReadRange(u32, u32),
    WriteRange(u32, u32, u8),
    /// The store is flushed at this step, closed and opened again.
    Reopen(u32),
}

const ROWS: u32 = 100;
const STRIDE: usize = 20;

fn record(row: u32, value: u8) -> Vec<u8> {
    (0..STRIDE).map(|i| value.wrapping_mul(31).wrapping_add(row as u8).wrapping_add(7 * i as u8)).collect()
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let range = || (0..ROWS, 0..ROWS).prop_map(|(a, b)| (a.min(b), a.max(b)));
    let call = prop_oneof![
        prop::collection::vec(0..ROWS, 0..40).prop_map(Call::Read),
        prop::collection::btree_map(0..ROWS, any::<u8>(), 0..40).prop_map(Call::Write),
        range().prop_map(|(a, b)| Call::ReadRange(a, b)),
        (range(), any::<u8>()).prop_map(|((a, b), value)| Call::WriteRange(a, b, value)),
        any::<u32>().prop_map(Call::Reopen),
    ];
    prop::collection::vec(call, 1..30)
}

/// A store under test. `reopened` closes and opens it again if it has a file.
trait Subject: Store + Sized {
    fn reopened(self) -> Self {
        self
    }
}

impl Subject for RamStore {}

impl Subject for FileStore {
    fn reopened(self) -> Self {
        let path = self.path().to_owned();
        drop(self);
        let store = Self::open(path, &config()).unwrap();
        assert!(store.was_flushed());
        store
    }
}

fn equal<T: PartialEq + std::fmt::Debug>(what: &str, wanted: &T, found: &T) -> Result<(), String> {
    if wanted == found { Ok(()) } else { Err(format!("{what}: wanted {wanted:?}, found {found:?}")) }
}

fn play(mut store: impl Subject, calls: &[Call]) -> Result<(), String> {
    let mut model = vec![vec![0; STRIDE]; ROWS as usize];
    let said = |error: Error| error.to_string();
    store.flushed(0).map_err(said)?;
    for call in calls {
        match call {
            Call::Read(rows) => {
                let mut out = vec![0xff; rows.len() * STRIDE];
                store.read(rows, &mut out).map_err(said)?;
                let wanted: Vec<u8> = rows.iter().flat_map(|&row| model[row as usize].clone()).collect();
                equal("read", &wanted, &out)?;
            }
            Call::Write(values) => {
                // The rows descend, because a list of victims need not ascend either.
                let rows: Vec<u32> = values.keys().rev().copied().collect();
                let records: Vec<u8> = values.iter().rev().flat_map(|(&row, &value)| record(row, value)).collect();
                store.unflushed().map_err(said)?;
                store.write(&rows, &records).map_err(said)?;
                values.iter().for_each(|(&row, &value)| model[row as usize] = record(row, value));
            }
            &Call::ReadRange(first, end) => {
                let mut out = vec![0xff; (end - first) as usize * STRIDE];
                store.read_range(first, &mut out).map_err(said)?;
                equal("range", &model[first as usize..end as usize].concat(), &out)?;
            }
            &Call::WriteRange(first, end, value) => {
                let records: Vec<Vec<u8>> = (first..end).map(|row| record(row, value)).collect();
                store.write_range(first, &records.concat()).map_err(said)?;
                model[first as usize..end as usize].clone_from_slice(&records);
            }
            &Call::Reopen(step) => {
                store.flushed(step).map_err(said)?;
                store = store.reopened();
                equal("step", &step, &store.step())?;
                equal("filled", &true, &store.filled())?;
            }
        }
    }
    let mut all = vec![0xff; ROWS as usize * STRIDE];
    store.read_range(0, &mut all).map_err(said)?;
    equal("all", &model.concat(), &all)
}

proptest! {
    #![proptest_config(hotrow_harness::seed::proptest("stores", 64))]

    #[test]
    fn ram(calls in calls()) {
        prop_assert_eq!(play(RamStore::new(&config()).unwrap(), &calls), Ok(()));
    }

    #[test]
    fn file(calls in calls()) {
        let folder = tempfile::tempdir().unwrap();
        let store = FileStore::create(folder.path().join("table"), &config()).unwrap();
        prop_assert_eq!(play(store, &calls), Ok(()));
    }
}

/// A store with one fault.
#[derive(Debug)]
struct Wrong(RamStore, &'static str);

impl Subject for Wrong {}

impl Store for Wrong {
    goes_on! { 0;
        fn rows(self: &Self) -> u32;
        fn stride(self: &Self) -> u64;
        fn step(self: &Self) -> u32;
        fn filled(self: &Self) -> bool;
        fn read_range(self: &Self, first_row: u32, out: &mut [u8]) -> Result<(), Error>;
        fn unflushed(self: &mut Self) -> Result<(), Error>;
    }

    fn read(&self, rows: &[u32], out: &mut [u8]) -> Result<(), Error> {
        let mut rows = rows.to_vec();
        if self.1 == "order" {
            rows.sort_unstable();
        }
        self.0.read(&rows, out)
    }
    fn write(&mut self, rows: &[u32], records: &[u8]) -> Result<(), Error> {
        match self.1 {
            "neighbour" => self.0.write(&rows.iter().map(|row| (row + 1) % ROWS).collect::<Vec<_>>(), records),
            "last" => self.0.write(&rows[..rows.len() - 1], &records[..records.len() - STRIDE]),
            _ => self.0.write(rows, records),
        }
    }
    fn write_range(&mut self, first_row: u32, records: &[u8]) -> Result<(), Error> {
        if self.1 == "range" { Ok(()) } else { self.0.write_range(first_row, records) }
    }
    fn flushed(&mut self, step: u32) -> Result<(), Error> {
        self.0.flushed(if self.1 == "step" { step + 1 } else { step })
    }
}

#[test]
fn wrong_stores_are_found_out() {
    let calls = [
        Call::Write(BTreeMap::from([(3, 1), (4, 2), (9, 3)])),
        Call::Read(vec![9, 3, 3]),
        Call::WriteRange(50, 60, 4),
        Call::ReadRange(45, 55),
        Call::Reopen(17),
    ];
    let wrong = |what| play(Wrong(RamStore::new(&config()).unwrap(), what), &calls);
    assert_eq!(wrong("nothing"), Ok(()));
    for what in ["order", "neighbour", "last", "range", "step"] {
        assert!(wrong(what).is_err(), "{what}");
    }
}

/// A store of either kind, and the folder of the file.
fn both(config: &GroupConfig) -> (tempfile::TempDir, [Box<dyn Store>; 2]) {
    let folder = tempfile::tempdir().unwrap();
    let file = FileStore::create(folder.path().join("table"), config).unwrap();
    (folder, [Box::new(RamStore::new(config).unwrap()), Box::new(file)])
}

/// Lists that several threads share, of scattered and of neighbouring rows.
#[test]
fn long_lists() {
    let config = GroupConfig::new(&[1 << 16], 128);
    let layout = layout(&config);
    let stride = layout.stride() as usize;
    let (_folder, mut stores) = both(&config);
    for store in &mut stores {
        // 40,503 and 2^16 have no common divisor.
        let scattered: Vec<u32> = (0..20_000u32).map(|k| k * 40_503 % (1 << 16)).collect();
        let crowded: Vec<u32> = (0..5_000).rev().collect();
        let mut wanted = vec![0; layout.table_bytes() as usize];
        for (value, rows) in [(1u8, &scattered), (2, &crowded)] {
            let records: Vec<u8> = (0..rows.len() * stride).map(|i| (i / 4) as u8 ^ value).collect();
            store.write(rows, &records).unwrap();
            for (&row, record) in rows.iter().zip(records.chunks_exact(stride)) {
                wanted[row as usize * stride..][..stride].copy_from_slice(record);
            }
            let mut out = vec![0; records.len()];
            store.read(rows, &mut out).unwrap();
            assert!(out == records);
        }
        let mut all = vec![0; wanted.len()];
        store.read_range(0, &mut all).unwrap();
        assert!(all == wanted);
    }
}

#[test]
fn calls_at_fault_change_nothing() {
    let (_folder, mut stores) = both(&config());
    for store in &mut stores {
        let what = |result: Result<(), Error>| match result {
            Err(Error::Store { what, .. }) => what,
            other => panic!("{other:?}"),
        };
        let mut out = [1; 40];
        assert_eq!(what(store.read(&[3, 100], &mut out)), "row");
        assert_eq!(what(store.read(&[3], &mut out)), "records");
        assert_eq!(what(store.read_range(99, &mut out)), "row");
        assert_eq!(what(store.read_range(9, &mut out[..39])), "records");
        assert_eq!(out, [1; 40]);
        assert_eq!(what(store.write(&[u32::MAX, 3], &out)), "row");
        assert_eq!(what(store.write(&[3], &out)), "records");
        assert_eq!(what(store.write_range(u32::MAX, &out)), "row");
        assert_eq!(what(store.write_range(0, &out[..1])), "records");
        let mut all = vec![1; 2000];
        store.read_range(0, &mut all).unwrap();
        assert!(all.iter().all(|&byte| byte == 0));
        store.read(&[], &mut []).unwrap();
        store.write(&[], &[]).unwrap();
        store.read_range(100, &mut []).unwrap();
    }
}
