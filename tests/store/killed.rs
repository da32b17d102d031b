//! A process that writes and flushes a table file is killed at random moments.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::Stdio,
    thread,
    time::Duration,
};

use hotrow::{FileStore, GroupConfig, Store as _};
use hotrow_harness::data::kills;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

use super::child;

const ROWS: u32 = 5000;

fn config() -> GroupConfig {
    GroupConfig::new(&[ROWS], 12)
}

/// The values of a row after a step, in words, so that no record is of two steps unnoticed.
fn record(step: u32) -> Vec<u8> {
    [step; 5].iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// The step of each row. Panics if a row has words of two steps.
fn steps(store: &FileStore) -> Vec<u32> {
    let mut all = vec![0; ROWS as usize * 20];
    store.read_range(0, &mut all).unwrap();
    all.chunks_exact(20)
        .map(|row| {
            let step = u32::from_le_bytes(row[..4].try_into().unwrap());
            assert!(row == record(step), "a row of two steps: {row:?}");
            step
        })
        .collect()
}

/// What must hold for a file whose writer was killed: if it counts as flushed, all rows are of the step that it names. Else no row is older.
fn check(was_flushed: bool, step: u32, rows: &[u32]) -> Result<(), String> {
    let newest = if was_flushed { step } else { step + 1 };
    match rows.iter().find(|row| !(step..=newest).contains(row)) {
        None => Ok(()),
        Some(row) => Err(format!("flushed: {was_flushed}, step {step}: a row of step {row}")),
    }
}

#[test]
fn a_file_names_its_step_whenever_its_writer_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("table");
    let mut made = FileStore::create(&path, &config()).unwrap();
    made.write_range(0, &record(0).repeat(ROWS as usize)).unwrap();
    made.flushed(0).unwrap();
    drop(made);
    let mut random = StdRng::seed_from_u64(5);
    let (mut killed, mut flushed, mut between) = (0, 0, 0);
    while killed < kills() || flushed == 0 || between == 0 {
        assert!(killed < kills().max(100), "{killed} kills: {flushed} of flushed files, {between} between");
        let mut process =
            child::command("store::killed::writes_until_killed", &path).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map_while(Result::ok);
        assert!(lines.any(|line| line == "writing"), "the child ended");
        thread::sleep(Duration::from_micros(random.random_range(0..8000)));
        process.kill().unwrap();
        process.wait().unwrap();
        let store = FileStore::open(&path, &config()).unwrap();
        check(store.was_flushed(), store.step(), &steps(&store)).unwrap();
        killed += 1;
        if store.was_flushed() { flushed += 1 } else { between += 1 }
    }
    println!("{killed} kills: {flushed} left a flushed file, {between} one between two flushes");
}

#[test]
#[ignore = "a child: run by a_file_names_its_step_whenever_its_writer_is_killed"]
fn writes_until_killed() {
    let mut store = FileStore::open(child::path(), &config()).unwrap();
    let mut rows: Vec<u32> = (0..ROWS).collect();
    for step in store.step() + 1.. {
        rows.rotate_left(1777);
        for part in rows.chunks(500) {
            store.write(part, &record(step).repeat(part.len())).unwrap();
        }
        store.flushed(step).unwrap();
        if step % 2 == 0 {
            println!("writing");
            std::io::stdout().flush().unwrap();
        }
    }
}

#[test]
fn a_wrong_step_is_found_out() {
    assert!(check(true, 3, &[3, 3]).is_ok() && check(false, 3, &[4, 3]).is_ok());
    assert!(check(true, 3, &[3, 4]).is_err() && check(false, 3, &[3, 2]).is_err() && check(false, 3, &[5]).is_err());
}
