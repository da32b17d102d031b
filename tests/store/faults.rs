//! Faults of a table file: each has a named error, and the rest of the table stays whole.

#[cfg(unix)]
use std::{
    fs::File,
    os::unix::fs::{FileExt as _, MetadataExt as _},
    thread,
    time::{Duration, Instant},
};
use std::{
    fs::{self, OpenOptions},
    path::PathBuf,
};

use hotrow::{Error, FileStore, GroupConfig, OptimizerKind, Precision, SharedStore, Store, store};
use tempfile::TempDir;

use hotrow_harness::child;

use super::config;

const HEADER: u64 = 4096;
const STRIDE: usize = 20;

struct Place {
    _folder: TempDir,
    path: PathBuf,
}

fn place() -> Place {
    let folder = tempfile::tempdir().unwrap();
    Place { path: folder.path().join("table"), _folder: folder }
}

/// A filled table, flushed at step 7.
fn made(config: &GroupConfig) -> Place {
    let place = place();
    let mut made = FileStore::create(&place.path, config).unwrap();
    assert!(!made.filled() && !made.was_flushed());
    let values: Vec<f32> = (0..1200).map(|i| i as f32).collect();
    store::fill(&mut made, config, Some(&values)).unwrap();
    made.flushed(7).unwrap();
    place
}

/// The error's parts: what is wrong, wanted and found.
fn refused<T: std::fmt::Debug>(result: Result<T, Error>) -> (&'static str, String, String) {
    match result {
        Err(Error::Store { what, wanted, found, .. }) => (what, wanted, found),
        other => panic!("{other:?}"),
    }
}

fn read(store: &dyn Store, row: u32) -> Result<Vec<u8>, Error> {
    let mut out = vec![0; store.stride() as usize];
    store.read(&[row], &mut out)?;
    Ok(out)
}

/// Opens the file like another program that writes to it.
#[cfg(unix)]
fn other(place: &Place) -> File {
    thread::sleep(Duration::from_millis(20)); // clocks of file systems advance in milliseconds
    OpenOptions::new().write(true).open(&place.path).unwrap()
}

#[test]
fn opened_again() {
    let place = made(&config());
    let store = FileStore::open(&place.path, &config()).unwrap();
    assert!(store.filled() && store.was_flushed());
    assert_eq!(store.step(), 7);
    // The owner reads the table that a lost device has left.
    let shared = SharedStore::new(store);
    let rows = shared.read_rows(&config(), &[99, 0]).unwrap();
    let wanted = |row: u32| (0..12).map(move |e| (row * 12 + e) as f32);
    for (x, wanted) in rows.iter().zip(wanted(99).chain(wanted(0))) {
        assert!((x - wanted).abs() <= 11.0 / 255.0, "{x} {wanted}");
    }
    assert_eq!(refused(shared.read_rows(&GroupConfig::new(&[100], 13), &[0])).0, "shape");
    assert_eq!(refused(shared.read_rows(&config(), &[100])).0, "row");
}

#[test]
fn created_once() {
    let place = made(&config());
    let before = fs::read(&place.path).unwrap();
    let (what, _, found) = refused(FileStore::create(&place.path, &config()));
    assert_eq!(what, "creation");
    assert!(found.contains("exists"), "{found}");
    assert_eq!(fs::read(&place.path).unwrap(), before);
    assert_eq!(refused(FileStore::create(place.path.join("below a file"), &config())).0, "creation");
    assert_eq!(refused(FileStore::open(place.path.with_file_name("none"), &config())).0, "opening");
}

/// The largest table, in a sparse file. Written out it would have 51 GB, which Windows would take from the disk.
#[cfg(unix)]
#[test]
fn the_largest_table_is_created_sparse() {
    let place = place();
    let config = GroupConfig::new(&[u32::MAX - 1], 4);
    let began = Instant::now();
    let mut made = FileStore::create(&place.path, &config).unwrap();
    store::fill(&mut made, &config, None).unwrap();
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    let last = u32::MAX - 2;
    made.write(&[last, 0], &[&[3; 12][..], &[4; 12]].concat()).unwrap();
    made.flushed(1).unwrap();
    drop(made);
    let data = fs::metadata(&place.path).unwrap();
    assert_eq!(data.len(), HEADER + u64::from(u32::MAX - 1) * 12);
    assert!(data.blocks() * 512 < 1 << 20);
    let store = FileStore::open(&place.path, &config).unwrap();
    let mut out = [1; 48];
    store.read(&[0, last - 1, 1 << 31, last], &mut out).unwrap();
    assert_eq!(out, *[[4; 12], [0; 12], [0; 12], [3; 12]].concat());
    assert_eq!(refused(read(&store, last + 1)).0, "row");
}

#[test]
fn truncated() {
    let place = made(&config());
    let whole = HEADER + 2000;
    for length in [0, 10, HEADER - 1, HEADER, whole - 1, whole + 1] {
        OpenOptions::new().write(true).open(&place.path).unwrap().set_len(length).unwrap();
        let refusal = refused(FileStore::open(&place.path, &config()));
        assert_eq!(refusal, ("length", format!("{whole} bytes"), format!("{length} bytes")));
        let again = made(&config());
        fs::copy(&again.path, &place.path).unwrap();
    }
    assert!(FileStore::open(&place.path, &config()).is_ok());
}

#[test]
fn foreign_and_damaged() {
    let place = made(&config());
    let good = fs::read(&place.path).unwrap();
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] ^= byte;
        fs::write(&place.path, bytes).unwrap();
        refused(FileStore::open(&place.path, &config()))
    };
    assert_eq!(with(0, 1).0, "format");
    assert_eq!(with(8, 1), ("version", "2".into(), "3".into()));
    for at in 12..64 {
        assert_eq!(with(at, 1).0, "header", "{at}");
    }
    for text in ["note", "some text", &"some text that is longer than a header. ".repeat(10)] {
        fs::write(&place.path, text).unwrap();
        assert_eq!(refused(FileStore::open(&place.path, &config())).0, "format");
    }
    fs::write(&place.path, good).unwrap();
    assert!(FileStore::open(&place.path, &config()).is_ok());
}

/// `tests/data/version-1.hotrow` is a table of version 1. If the checksum of the bytes of today changes, raise the version, and keep a file of the version
/// before.
#[test]
fn another_version_is_refused_and_other_bytes_are_one() {
    let (place, before) = (place(), concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/version-1.hotrow"));
    fs::copy(before, &place.path).unwrap();
    assert_eq!(refused(FileStore::open(&place.path, &GroupConfig::new(&[3], 4))), ("version", "2".into(), "1".into()));
    let sum = |place: Place| format!("{:08x}", crc32fast::hash(&fs::read(&place.path).unwrap()));
    assert_eq!(("2", sum(made(&config()))), ("2", "5f606f71".to_owned()));
}

#[test]
fn of_another_shape() {
    let place = made(&config());
    let with = |change: fn(&mut GroupConfig)| {
        let mut other = config();
        change(&mut other);
        refused(FileStore::open(&place.path, &other))
    };
    assert_eq!(with(|c| c.tables = vec![60, 41]), ("rows", "101".into(), "100".into()));
    assert_eq!(with(|c| c.tables = vec![40, 60]).0, "checksum of the tables' rows");
    assert_eq!(with(|c| c.dim = 11), ("dim", "11".into(), "12".into()));
    assert_eq!(with(|c| c.precision = Precision::Int4), ("precision", "int4".into(), "int8".into()));
    let optimizer = with(|c| c.optimizer.kind = OptimizerKind::RowWiseAdaGrad);
    assert_eq!(optimizer, ("optimizer", "row-wise-adagrad".into(), "sgd".into()));
    assert_eq!(with(|c| c.seed = 5), ("seed", "5".into(), "0".into()));
    // Settings that may change from run to run.
    let mut other = config();
    (other.cache_rows, other.policy, other.optimizer.lr) = (32, hotrow::Policy::Lfu, 0.5);
    assert!(FileStore::open(&place.path, &other).is_ok());
}

/// Windows lets no other handle change a locked file.
#[cfg(unix)]
#[test]
fn truncated_under_us() {
    let place = made(&config());
    let mut store = FileStore::open(&place.path, &config()).unwrap();
    let record = read(&store, 99).unwrap();
    other(&place).set_len(HEADER + 100).unwrap();
    let mut out = [0; STRIDE];
    let short = ("length", "6096 bytes".to_owned(), "4196 bytes".to_owned());
    assert_eq!(refused(store.read(&[99], &mut out)), short);
    assert_eq!(refused(store.read_range(99, &mut out)), short);
    assert_eq!(refused(store.write(&[99], &record)), short);
    assert_eq!(refused(store.write_range(99, &record)), short);
    assert_eq!(refused(store.flushed(8)), short);
    // The file has its old length, but another time of change.
    other(&place).set_len(HEADER + 2000).unwrap();
    assert_eq!(refused(store.read(&[99], &mut out)).0, "time of change");
}

/// Windows lets no other handle change a locked file.
#[cfg(unix)]
#[test]
fn changed_under_us() {
    let place = made(&config());
    let mut store = FileStore::open(&place.path, &config()).unwrap();
    let record = read(&store, 3).unwrap();
    // The store's own writes are no fault, however often the clock ticks between them.
    for row in 0..3 {
        store.write(&[row], &record).unwrap();
        thread::sleep(Duration::from_millis(10));
        assert_eq!(read(&store, row).unwrap(), record);
    }
    store.flushed(8).unwrap();
    assert_eq!(read(&store, 0).unwrap(), record);
    other(&place).write_all_at(&[9; STRIDE], HEADER).unwrap();
    assert_eq!(refused(read(&store, 0)).0, "time of change");
    assert_eq!(refused(store.write(&[0], &record)).0, "time of change");
    assert_eq!(refused(store.flushed(9)).0, "time of change");
    assert!(FileStore::open(&place.path, &config()).is_err(), "still locked");
}

#[cfg(unix)]
#[test]
fn replaced_under_us() {
    let (place, another) = (made(&config()), made(&config()));
    let mut store = FileStore::open(&place.path, &config()).unwrap();
    let record = read(&store, 3).unwrap();
    store.write(&[4], &record).unwrap();
    fs::rename(&another.path, &place.path).unwrap();
    assert_eq!(refused(store.flushed(8)).0, "file");
    assert_eq!(read(&store, 4).unwrap(), record, "still to be saved");
    fs::remove_file(&place.path).unwrap();
    assert_eq!(refused(store.flushed(8)).0, "file");
}

#[test]
fn one_writer() {
    let place = made(&config());
    let first = FileStore::open(&place.path, &config()).unwrap();
    assert_eq!(refused(FileStore::open(&place.path, &config())).0, "lock");
    drop(first);
    let child = child::Waiting::at(child::command("store::faults::holds", &place.path), "open");
    let (what, _, found) = refused(FileStore::open(&place.path, &config()));
    assert_eq!(what, "lock");
    assert!(found.contains("another writer"), "{found}");
    child.kill();
    assert!(FileStore::open(&place.path, &config()).unwrap().was_flushed());
}

#[test]
#[ignore = "a child: run by one_writer"]
fn holds() {
    let _store = FileStore::open(child::path(), &config()).unwrap();
    child::wait("open");
}

/// A table trained by a process that is killed between two steps.
#[test]
fn killed_between_steps() {
    let place = place();
    child::Waiting::at(child::command("store::faults::killed_while_filling", &place.path), "filling").kill();
    assert_eq!(refused(FileStore::open(&place.path, &config())).0, "filling");
    fs::remove_file(&place.path).unwrap();

    child::Waiting::at(child::command("store::faults::killed_when_unflushed", &place.path), "unflushed").kill();
    let store = FileStore::open(&place.path, &config()).unwrap();
    assert!(store.filled() && !store.was_flushed());
    assert_eq!(store.step(), 5, "the last that was flushed");
    assert_eq!(read(&store, 2).unwrap(), [2; STRIDE]);
    assert_eq!(read(&store, 3).unwrap(), [3; STRIDE], "written before the end");
    assert_eq!(read(&store, 4).unwrap(), [1; STRIDE]);
    drop(store);
    // An opened file counts as not flushed until the next flush.
    assert!(!FileStore::open(&place.path, &config()).unwrap().was_flushed());
    FileStore::open(&place.path, &config()).unwrap().flushed(6).unwrap();
    assert!(FileStore::open(&place.path, &config()).unwrap().was_flushed());

    child::Waiting::at(child::command("store::faults::killed_when_flushed", &place.path), "flushed").kill();
    let store = FileStore::open(&place.path, &config()).unwrap();
    assert!(store.was_flushed());
    assert_eq!((store.step(), read(&store, 3).unwrap()), (9, vec![4; STRIDE]));
}

#[test]
#[ignore = "a child: run by killed_between_steps"]
fn killed_while_filling() {
    let mut store = FileStore::create(child::path(), &config()).unwrap();
    store.write_range(0, &[1; 50 * STRIDE]).unwrap();
    child::wait("filling");
}

#[test]
#[ignore = "a child: run by killed_between_steps"]
fn killed_when_unflushed() {
    let mut store = FileStore::create(child::path(), &config()).unwrap();
    store.write_range(0, &[1; 100 * STRIDE]).unwrap();
    store.write(&[2], &[2; STRIDE]).unwrap();
    store.flushed(5).unwrap();
    store.unflushed().unwrap();
    store.write(&[3], &[3; STRIDE]).unwrap();
    child::wait("unflushed");
}

#[test]
#[ignore = "a child: run by killed_between_steps"]
fn killed_when_flushed() {
    let mut store = FileStore::open(child::path(), &config()).unwrap();
    store.write(&[3], &[4; STRIDE]).unwrap();
    store.flushed(9).unwrap();
    child::wait("flushed");
}

/// The file cannot grow beyond 256 KiB: the system refuses a write in the middle of a list, as on a full disk.
#[cfg(unix)]
#[test]
fn disk_full() {
    let place = place();
    let config = GroupConfig::new(&[4096], 128);
    let mut made = FileStore::create(&place.path, &config).unwrap();
    store::fill(&mut made, &config, None).unwrap();
    drop(made);
    child::passed("store::faults::writes_without_room", &place.path, Some(256));
    // The call that failed in the child succeeds now that there is room.
    let mut store = FileStore::open(&place.path, &config).unwrap();
    assert!(!store.was_flushed());
    assert_eq!(read(&store, 0).unwrap(), [6; 136]);
    assert_eq!(read(&store, 1).unwrap(), [0; 136], "whole, as nobody wrote it");
    store.write(&[0, 4000, 2, 3999], &[5; 4 * 136]).unwrap();
    assert!([0, 2, 3999, 4000].iter().all(|&row| read(&store, row).unwrap() == [5; 136]));
    store.flushed(1).unwrap();
    // Creating a table without room fails as well, and leaves no partial file.
    let fresh = place.path.with_file_name("fresh");
    child::passed("store::faults::creates_without_room", &fresh, Some(256));
    assert!(!fresh.exists());
}

#[test]
#[ignore = "a child: run by disk_full"]
fn writes_without_room() {
    let config = GroupConfig::new(&[4096], 128);
    let mut store = FileStore::open(child::path(), &config).unwrap();
    for _ in 0..2 {
        let (what, _, found) = refused(store.write(&[0, 4000, 2, 3999], &[5; 4 * 136]));
        assert_eq!(what, "writing");
        assert!(found.contains("File too large"), "{found}");
        let error = store.write(&[0, 4000, 2, 3999], &[5; 4 * 136]).unwrap_err();
        let cause = std::error::Error::source(&error).unwrap().downcast_ref::<std::io::Error>().unwrap();
        assert_eq!(cause.kind(), std::io::ErrorKind::FileTooLarge);
        assert_eq!(refused(store.write_range(4000, &[5; 136])).0, "writing");
    }
    // The store still works for the rows that have room.
    store.write(&[0], &[6; 136]).unwrap();
    assert_eq!(read(&store, 0).unwrap(), [6; 136]);
    assert_eq!(read(&store, 4000).unwrap(), [0; 136]);
}

#[test]
#[ignore = "a child: run by disk_full"]
fn creates_without_room() {
    assert_eq!(refused(FileStore::create(child::path(), &GroupConfig::new(&[4096], 128))).0, "creation");
}
