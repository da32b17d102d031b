//! Runs this program again as another process, which is killed, gets little disk space, or has its memory measured.

use std::{
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Child, Command, Stdio},
};

/// The environment variable with the path that a child works on.
const PATH: &str = "HOTROW_TEST_CHILD";

/// A command that runs the ignored test `name` in a process of its own, which works on `path`.
pub(crate) fn command(name: &str, path: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([name, "--exact", "--ignored", "--nocapture"]).env(PATH, path).stdout(Stdio::piped());
    command
}

/// In the child: the path to work on.
pub(crate) fn path() -> std::path::PathBuf {
    std::env::var_os(PATH).expect("run by another test").into()
}

/// A child that has printed `word`. It is killed when this value is dropped, or earlier.
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

/// In the child: prints `word` and waits to be killed.
#[allow(clippy::print_stdout, reason = "the parent process reads the output")]
pub(crate) fn wait(word: &str) {
    println!("\n{word}");
    let _ = std::io::stdin().read(&mut [0]);
}
