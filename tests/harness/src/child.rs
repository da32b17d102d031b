//! Runs this program again as another process, which is killed, gets little disk space, or has its memory measured.

use std::{
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Child, Command, Stdio},
};

use hotrow::{Embedding, checkpoint};

/// The environment variable with the path that a child works on.
const PATH: &str = "HOTROW_TEST_CHILD";

/// A command that runs the ignored test `name` in a process of its own, which works on `path`.
pub fn command(name: &str, path: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([name, "--exact", "--ignored", "--nocapture"]).env(PATH, path).stdout(Stdio::piped());
    command
}

/// What the ignored test `name` prints in a process of its own, in which it must pass. With a limit, no file grows beyond so many KiB, as on a full
/// disk: without its signal, the write returns an error.
pub fn passed(name: &str, path: &Path, limit: Option<u32>) -> String {
    let plain = command(name, path);
    let mut limited = Command::new("bash");
    let limit = limit.map_or_else(|| "unlimited".into(), |kib| kib.to_string());
    limited.args(["-c", &format!("trap '' XFSZ; ulimit -f {limit}; exec \"$0\" \"$@\"")]).arg(plain.get_program());
    let output = limited.args(plain.get_args()).env(PATH, path).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let passed = output.status.success() && text.contains("1 passed");
    assert!(passed, "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// The figure in a line of `/proc/self/status`, in bytes: `VmRSS` now, `VmHWM` at the peak.
pub fn memory(line: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let value = status.lines().find_map(|text| text.strip_prefix(line)).unwrap();
    value.trim_start_matches(':').trim_end_matches("kB").trim().parse::<u64>().unwrap() << 10
}

/// Runs the ignored test `name`, which calls [`copies`]: saving and loading add at most `most` bytes to its memory; a snapshot, which is a copy,
/// adds more than `copy`.
pub fn no_second_copy(name: &str, most: u64, copy: u64) {
    let folder = tempfile::tempdir().unwrap();
    let text = passed(name, &folder.path().join("group.safetensors"), None);
    let added: Vec<u64> = text.lines().filter_map(|line| line.strip_prefix("added ")?.parse().ok()).collect();
    let [save, load, snapshot] = added[..] else { panic!("{text}") };
    assert!(save <= most && load <= most, "saving added {save} bytes, loading {load}");
    assert!(snapshot > copy, "a copy would have been seen: {snapshot} bytes");
}

/// In the child: prints what saving, loading and a snapshot of a group add to the memory, at the peak.
#[allow(clippy::print_stdout, reason = "the parent process reads the output")]
pub fn copies(group: &mut dyn Embedding) {
    let mut measure = |work: &mut dyn FnMut(&mut dyn Embedding)| {
        std::fs::write("/proc/self/clear_refs", "5").unwrap(); // the peak starts again from now
        let before = memory("VmRSS");
        work(group);
        println!("\nadded {}", memory("VmHWM").saturating_sub(before));
    };
    measure(&mut |group| checkpoint::save(group, path()).unwrap());
    measure(&mut |group| checkpoint::load(group, path()).unwrap());
    measure(&mut |group| drop(group.snapshot().unwrap()));
}

/// In the child: the path to work on.
pub fn path() -> std::path::PathBuf {
    std::env::var_os(PATH).expect("run by another test").into()
}

/// A child that has printed `word`. It is killed when this value is dropped, or earlier.
pub struct Waiting(Child);

impl Waiting {
    pub fn at(mut command: Command, word: &str) -> Self {
        let mut child = Self(command.stdin(Stdio::piped()).spawn().unwrap());
        let lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line == word), "the child ended before {word}");
        child
    }

    pub fn kill(mut self) {
        self.0.kill().unwrap();
        assert!(!self.0.wait().unwrap().success());
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// In the child: prints `word` and waits to be killed.
#[allow(clippy::print_stdout, reason = "the parent process reads the output")]
pub fn wait(word: &str) {
    println!("\n{word}");
    let _ = std::io::stdin().read(&mut [0]);
}
