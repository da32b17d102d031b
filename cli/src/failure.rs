//! Why the command ends without having done its job, and with which exit code.

use std::fmt;
use std::io::Write as _;
use std::process::ExitCode;

/// What a shell reports of a program that wrote to a closed pipe: 128 and the number of the signal SIGPIPE.
const PIPE_CLOSED: u8 = 141;

/// The reader of standard output has gone away, as in `hotrow ... | head`. The command then ends without a message.
#[derive(Debug, thiserror::Error)]
#[error("standard output: its reader is gone")]
pub(crate) struct Closed;

/// Bad usage, or a job that could not be done.
#[derive(Debug)]
pub(crate) enum Failure {
    /// What was asked for cannot be: exit code 2.
    Usage(String),
    /// It could be, but went wrong: exit code 1.
    Job(anyhow::Error),
}

impl Failure {
    /// What the library refuses of options is bad usage here.
    pub(crate) fn usage(reason: impl fmt::Display) -> Self {
        Self::Usage(reason.to_string())
    }

    /// Writes the failure to standard error, unless that is [`Closed`], and returns the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        if matches!(self, Self::Job(error) if error.is::<Closed>()) {
            return ExitCode::from(PIPE_CLOSED);
        }
        // If nobody reads it, the exit code is left.
        let _ = writeln!(std::io::stderr().lock(), "error: {self}");
        match self {
            Self::Usage(_) => ExitCode::from(2),
            Self::Job(_) => ExitCode::from(1),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(sentence) => f.write_str(sentence),
            Self::Job(error) => {
                // Some messages end with the message of their cause.
                let mut text = error.to_string();
                for cause in error.chain().skip(1).map(ToString::to_string) {
                    if !text.contains(&cause) {
                        text = format!("{text}: {cause}");
                    }
                }
                f.write_str(&text)
            }
        }
    }
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Job(error.into())
    }
}
