//! Checkpoints of a group on several ranks, and faults: a job that is killed while it saves, and a full disk.
#![cfg(unix)]

use std::{
    fs,
    path::Path,
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use hotrow::Error;
use hotrow_dist::Threads;
use hotrow_harness::{child, ranks::saving};
use tempfile::tempdir;

/// Steps of a whole run.
const STEPS: u32 = 6;

fn number(folder: &Path) -> Option<u64> {
    let list: serde_json::Value = serde_json::from_slice(&fs::read(folder.join("shards.json")).ok()?).unwrap();
    list["save"].as_u64()
}

/// The files of the shards, without the number of the save.
fn files(folder: &Path) -> Vec<Vec<u8>> {
    let save = number(folder).unwrap();
    (0..8).map(|shard| fs::read(folder.join(format!("save-{save}-shard-{shard}.safetensors"))).unwrap()).collect()
}

/// Runs a job on some ranks from the last checkpoint in the folder to step `end`, and returns the errors of saves.
fn run(ranks: u32, folder: &Path, end: u32) -> Result<Vec<Error>, Error> {
    let found = Threads::run(ranks, |comm: &mut Threads| saving(comm, folder, end))?;
    Ok(found.into_iter().filter_map(|(_, error)| error).collect())
}

fn straight(folder: &Path) -> Vec<Vec<u8>> {
    assert!(run(1, folder, STEPS).unwrap().is_empty());
    files(folder)
}

#[test]
#[ignore = "the tests below run it in a process of its own"]
fn a_run_tells_the_errors_of_its_saves() {
    for error in run(2, &child::path(), STEPS).unwrap() {
        println!("error: {error}");
    }
}

const RUN: &str = "faults::a_run_tells_the_errors_of_its_saves";

#[test]
fn a_job_killed_while_it_saves_goes_on_from_the_last_checkpoint() {
    let folder = tempdir().unwrap();
    let (folder, wanted) = (folder.path().join("killed"), straight(&folder.path().join("straight")));
    let under_way = |save: &str| {
        let names = fs::read_dir(&folder).into_iter().flatten().flatten().map(|file| file.file_name());
        names.into_iter().any(|name| name.to_string_lossy().starts_with(save))
    };
    let mut killed = 0;
    // Once in the first save, once later.
    for save in [1, 3] {
        let next = format!("save-{save}-");
        let mut job = child::command(RUN, &folder).stdout(Stdio::null()).spawn().unwrap();
        let start = Instant::now();
        while !under_way(&next) {
            assert!(start.elapsed() < Duration::from_secs(60) && job.try_wait().unwrap().is_none(), "{next} began");
            thread::yield_now();
        }
        job.kill().unwrap();
        job.wait().unwrap();
        assert!(under_way(&next), "the files of the save that was under way are there");
        killed += u32::from(number(&folder) == Some(save - 1) || save == 1 && number(&folder).is_none());
    }
    assert!(killed > 0, "at least one save was not done when the job was killed");
    // The resumed run has another number of ranks.
    let resumed = number(&folder);
    assert!(run(4, &folder, STEPS).unwrap().is_empty());
    assert!(resumed < number(&folder), "the run went on");
    assert!(files(&folder) == wanted, "the bits of the undisturbed run");
    let other = folder.with_extension("other");
    run(1, &other, STEPS - 1).unwrap();
    assert!(files(&other) != wanted, "the comparison can fail");
}

#[test]
fn a_full_disk_leaves_the_last_checkpoint() {
    let folder = tempdir().unwrap();
    let (folder, wanted) = (folder.path().join("full"), straight(&folder.path().join("straight")));
    assert!(run(2, &folder, 2).unwrap().is_empty());
    let (before, names) = (files(&folder), fs::read_dir(&folder).unwrap().count());
    let largest = before.iter().map(Vec::len).max().unwrap() as u32;
    let text = child::passed(RUN, &folder, Some(largest / 2048));
    let errors: Vec<&str> = text.lines().filter(|line| line.contains("error: ")).collect();
    assert_eq!(errors.len(), 2, "{text}");
    assert!(
        errors.iter().all(|error| error.contains("file: wanted to write it whole, found File too large")),
        "{text}"
    );
    assert!(files(&folder) == before, "the checkpoint before is whole");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), names, "what was begun is gone");
    // With room again the job goes on.
    assert!(run(2, &folder, STEPS).unwrap().is_empty());
    assert!(files(&folder) == wanted, "the bits of the undisturbed run");
}
