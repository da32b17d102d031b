//! Outputs of the command: a path that cannot be written is refused before the work, and a reader that closes the pipe ends the command
//! quietly.

use crate::common::command::outcome;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// Each subcommand with little work to do.
const JOBS: [&[&str]; 5] = [
    &["simulate", "--trace", "uniform:rows=100,n=500", "--policy", "lru"],
    &["plan", "--distribution", "uniform:rows=100", "--budget", "64KiB", "--batch", "10", "--sample-bytes", "100"],
    &["plan", "memory", "--rows", "100"],
    &["plan", "robe", "normal:rows=100,dim=8"],
    &["info", "--backend", "cpu", "--no-self-test"],
];

#[test]
fn paths_that_cannot_be_written_are_refused_before_the_work() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "kept").unwrap();
    let paths = [folder.path().join("no/such/folder/out"), file.join("out"), folder.path().to_owned()];
    for path in &paths[..] {
        for (job, option) in JOBS.iter().map(|job| (*job, "--json")).chain([(JOBS[0], "--csv")]) {
            refused(&[job, &[option, path.to_str().unwrap()]].concat(), option);
        }
    }
    for path in &paths[..2] {
        for job in [JOBS[0], JOBS[1], JOBS[3]] {
            refused(&[job, &["--plot", path.to_str().unwrap()]].concat(), "--plot");
        }
    }
    // A picture of the plan cannot be written.
    fs::create_dir(folder.path().join("plan-quarters.png")).unwrap();
    let stem = folder.path().join("plan");
    refused(&[JOBS[1], &["--plot", stem.to_str().unwrap()]].concat(), "--plot");
    assert_eq!(fs::read_to_string(file).unwrap(), "kept");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing was written");
}

/// The message is one sentence with the option, the wanted value, the found value and the remedy.
fn refused(arguments: &[&str], option: &str) {
    let (stdout, stderr) = outcome(arguments, 2);
    assert!(stdout.is_empty(), "{arguments:?}: {stdout}");
    assert!(stderr.starts_with(&format!("error: {option}: wanted a file that can be written, found ")), "{stderr}");
    assert!(stderr.ends_with("check the folder and its permissions\n"), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{arguments:?}: {stderr}");
}

#[test]
fn a_refused_job_leaves_no_file_and_an_old_one_as_it_was() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    outcome(&["simulate", "--trace", "no_such_trace", "--json", &path("new"), "--plot", &path("plot")], 1);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    fs::write(path("old"), "kept").unwrap();
    outcome(&["simulate", "--trace", "no_such_trace", "--json", &path("old")], 1);
    assert_eq!(fs::read_to_string(path("old")).unwrap(), "kept");
}

/// `hotrow ... | head -1`: the reader takes one line or none and closes the pipe.
#[test]
fn a_closed_pipe_ends_quietly() {
    for job in JOBS {
        for lines in [0, 1] {
            let mut child = Command::new(assert_cmd::cargo::cargo_bin!("hotrow"))
                .args(job)
                .env_remove("HOTROW_DATA")
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let mut stdout = BufReader::with_capacity(1, child.stdout.take().unwrap());
            for _ in 0..lines {
                stdout.read_line(&mut String::new()).unwrap();
            }
            drop(stdout);
            let mut stderr = String::new();
            child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
            // The command may have written everything before the reader reads a line or closes the pipe.
            let code = child.wait().unwrap().code();
            assert!(code == Some(141) || (lines == 1 && code == Some(0)), "{job:?}: {code:?}");
            assert_eq!(stderr, "", "{job:?}");
        }
    }
}
