//! Outputs of the command: a path that cannot be written is refused before the work, and a reader that closes the pipe ends the command
//! quietly.

use crate::common::command::outcome;
use crate::golden;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// Each subcommand with little work to do.
const JOBS: [&[&str]; 4] = [
    &["simulate", "--trace", "uniform:rows=100,n=500", "--policy", "lru"],
    &["plan", "--distribution", "uniform:rows=100", "--budget", "64KiB", "--batch", "10", "--sample-bytes", "100"],
    &["plan", "memory", "--rows", "100"],
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
        for job in [JOBS[0], JOBS[1]] {
            refused(&[job, &["--plot", path.to_str().unwrap()]].concat(), "--plot");
        }
    }
    // A picture of the plan cannot be written.
    fs::create_dir(folder.path().join("plan.png")).unwrap();
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

/// Two options name two files, no output is a file that is read, and among a run's own files only other JSON is replaced.
#[test]
fn no_file_is_written_over() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("file.npy"), "kept").unwrap();
    fs::write(path("trace.svg"), "1 2 3\n").unwrap();
    fs::create_dir(path("results")).unwrap();
    golden::refused("output", folder.path());
    #[cfg(unix)]
    {
        fs::write(path("target"), "kept").unwrap();
        fs::hard_link(path("file.npy"), path("hard")).unwrap();
        std::os::unix::fs::symlink("file.npy", path("soft")).unwrap();
        std::os::unix::fs::symlink("target", path("link")).unwrap();
        golden::refused("output-links", folder.path());
    }
}

#[test]
fn a_plot_is_named_with_or_without_its_ending() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    outcome(&[JOBS[0], &["--plot", &path("a.svg")]].concat(), 0);
    outcome(&[JOBS[0], &["--plot", &path("b.1")]].concat(), 0);
    for name in ["a.svg", "a.png", "b.1.svg", "b.1.png"] {
        assert!(folder.path().join(name).is_file(), "{name}");
    }
}

/// The error of a library keeps its cause, and its message contains it.
#[test]
fn a_cause_is_told_once() {
    // Systems word it differently.
    let cause = fs::read("missing.npy").unwrap_err().to_string();
    let (_, stderr) = outcome(&["plan", "robe", "missing.npy"], 1);
    assert_eq!(stderr.matches(&cause).count(), 1, "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}

/// Whatever reads a file whose bytes steer a terminal, its message has escapes in their place.
#[test]
fn the_bytes_of_a_file_do_not_steer_the_terminal() {
    let folder = TempDir::new().unwrap();
    golden::refused("terminal", folder.path());
}

/// A default is shown as a user would write it.
#[test]
fn defaults_can_be_pasted_back() {
    for (job, defaults) in [
        (&["simulate", "--help"][..], &["[default: lru,lfu]", "[default: 1,5,10]"][..]),
        (&["bench", "--help"], &["[default: fp32,fp16,int8,int4,int2]", "[default: 0,25,50,75,90,95,100]"]),
    ] {
        let (stdout, _) = outcome(job, 0);
        for default in defaults {
            assert!(stdout.contains(default), "{default}: {stdout}");
        }
    }
}

/// `hotrow ... | head -1`: the reader takes one line or none and closes the pipe.
#[test]
fn a_closed_pipe_ends_quietly() {
    for job in JOBS {
        for lines in [0, 1] {
            let (reader, writer) = std::io::pipe().unwrap();
            // Without a line to read, the pipe is closed before the command begins.
            let reader = (lines > 0).then_some(reader);
            let mut child = Command::new(assert_cmd::cargo::cargo_bin!("hotrow"))
                .args(job)
                .env_remove("HOTROW_DATA")
                .stdout(writer)
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            if let Some(reader) = reader {
                BufReader::with_capacity(1, reader).read_line(&mut String::new()).unwrap();
            }
            let mut stderr = String::new();
            child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
            // The command may have written everything before the reader closes the pipe.
            let code = child.wait().unwrap().code();
            assert!(code == Some(141) || (lines == 1 && code == Some(0)), "{job:?}: {code:?}");
            assert_eq!(stderr, "", "{job:?}");
        }
    }
}
