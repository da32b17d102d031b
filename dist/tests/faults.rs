//! Checkpoints of a group on several ranks, and faults: a job that is killed while it saves, and a full disk.
#![cfg(unix)]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use hotrow::Error;
use hotrow_dist::Threads;
use hotrow_harness::ranks::saving;
use tempfile::tempdir;

/// Names the folder of the checkpoint in a process that a test starts.
const FOLDER: &str = "HOTROW_TEST_RANKS";
/// Steps of a whole run.
const STEPS: u32 = 6;

/// This test in a process of its own. `limit`: no file beyond so many blocks of 512 bytes, as on a full disk.
fn child(test: &str, folder: &Path, limit: Option<u32>) -> Command {
    let limit = limit.map_or("unlimited".to_owned(), |blocks| blocks.to_string());
    let mut command = Command::new("sh");
    command.args(["-c", &format!("trap '' XFSZ; ulimit -f {limit}; exec \"$0\" \"$@\"")]);
    command.arg(std::env::current_exe().unwrap()).args(["--exact", &format!("faults::{test}"), "--nocapture"]);
    command.env(FOLDER, folder).stdin(Stdio::null()).stderr(Stdio::null());
    command
}

/// The folder, in such a process.
fn asked() -> Option<PathBuf> {
    std::env::var_os(FOLDER).map(Into::into)
}

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
fn a_job_killed_while_it_saves_goes_on_from_the_last_checkpoint() {
    if let Some(folder) = asked() {
        run(2, &folder, STEPS).unwrap();
        return;
    }
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
        let mut job = child("a_job_killed_while_it_saves_goes_on_from_the_last_checkpoint", &folder, None);
        let mut job = job.stdout(Stdio::null()).spawn().unwrap();
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
    const TEST: &str = "a_full_disk_leaves_the_last_checkpoint";
    if let Some(folder) = asked() {
        for error in run(2, &folder, STEPS).unwrap() {
            println!("error: {error}");
        }
        return;
    }
    let folder = tempdir().unwrap();
    let (folder, wanted) = (folder.path().join("full"), straight(&folder.path().join("straight")));
    assert!(run(2, &folder, 2).unwrap().is_empty());
    let (before, names) = (files(&folder), fs::read_dir(&folder).unwrap().count());
    let largest = before.iter().map(Vec::len).max().unwrap() as u32;
    let output = child(TEST, &folder, Some(largest / 1024)).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
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
