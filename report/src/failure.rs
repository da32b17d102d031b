//! Failures of the command, with their exit codes.

use std::error::Error;
use std::fmt;
use std::io::Write as _;
use std::process::ExitCode;

/// The exit code that a shell reports for a program killed by SIGPIPE: 128 plus the number of the signal.
const PIPE_CLOSED: u8 = 141;

/// The reader of standard output is gone, as in `hotrow ... | head`. The command ends without a message.
#[derive(Debug, thiserror::Error)]
#[error("standard output: its reader is gone")]
pub struct Closed;

/// Bad usage, or a job that could not be done.
#[derive(Debug)]
pub enum Failure {
    /// The request cannot be fulfilled: exit code 2.
    Usage(String),
    /// The job failed: exit code 1.
    Job(anyhow::Error),
}

/// Returns bad usage unless the condition holds, with a sentence as of `format!`.
#[macro_export]
macro_rules! ensure_usage {
    ($holds:expr, $($sentence:tt)+) => {
        if !$holds {
            return Err($crate::failure::Failure::Usage(format!($($sentence)+)));
        }
    };
}
pub use ensure_usage;

/// A text with escapes in place of characters that steer a terminal or turn its lines around: the bytes of a file may be any.
pub fn plain(text: &str) -> String {
    let turns = |c| matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let shown = |c: char| if c.is_control() || turns(c) { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(shown).collect()
}

/// As [`plain`], of a text of several lines.
pub fn plain_lines(text: &str) -> String {
    text.split('\n').map(plain).collect::<Vec<_>>().join("\n")
}

impl Failure {
    /// Makes bad usage of an error of the library.
    pub fn usage(reason: impl fmt::Display) -> Self {
        Self::Usage(reason.to_string())
    }

    /// Writes the failure to standard error, unless that is [`Closed`], and returns the exit code.
    pub fn report(&self) -> ExitCode {
        if matches!(self, Self::Job(error) if error.is::<Closed>()) {
            return ExitCode::from(PIPE_CLOSED);
        }
        // If standard error is closed, the exit code still tells.
        // A message of the library has one line, whatever a file's texts in it have.
        let is_ours = |cause: &(dyn Error + 'static)| cause.is::<hotrow::Error>() || cause.is::<hotrow_plan::Error>();
        let of_library = matches!(self, Self::Job(error) if error.chain().any(is_ours));
        let text = if of_library { plain(&self.to_string()) } else { plain_lines(&self.to_string()) };
        let _ = writeln!(std::io::stderr().lock(), "error: {text}");
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
