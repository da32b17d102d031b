//! Runs this program again as another process: to be killed, to have little disk space, to have its memory measured.

use std::{
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Child, Command, Stdio},
};

/// Where a child finds what it works on.
const PATH: &str = "HOTROW_TEST_CHILD";

/// The test `name`, ignored otherwise, in a process of its own that works on `path`.
pub(crate) fn command(name: &str, path: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([name, "--exact", "--ignored", "--nocapture"]).env(PATH, path).stdout(Stdio::piped());
    command
}

/// In the child: the path.
pub(crate) fn path() -> std::path::PathBuf {
    std::env::var_os(PATH).expect("run by another test").into()
}

/// A child that has got as far as saying `word`; killed at the latest when this is dropped.
pub(crate) struct Waiting(Child);

impl Waiting {
    pub(crate) fn at(mut command: Command, word: &str) -> Self {
        let mut child = Self(command.stdin(Stdio::piped()).spawn().unwrap());
        let lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line == word), "the child ended before {word}");
        child
    }

    pub(crate) fn kill(mut self) {
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

/// In the child: says `word` and waits to be killed.
#[allow(clippy::print_stdout, reason = "the parent reads it")]
pub(crate) fn wait(word: &str) {
    println!("\n{word}");
    let _ = std::io::stdin().read(&mut [0]);
}
