//! The errors of traces.

use std::io;
use std::path::PathBuf;

/// The reason why a trace could not be read or generated. Each message names the wanted content, the found content and the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The text names neither a file nor a trace in the data folder.
    #[error(
        "trace {trace}: wanted a file or a name in the data folder, found neither ({looked}); give a path, --data DIR \
         or a generated trace such as zipf:rows=100000,s=1.05"
    )]
    NotFound {
        /// The text given.
        trace: String,
        /// The places that were searched.
        looked: String,
    },
    /// The operating system refused to open or read the file.
    #[error("{}: wanted a readable file, found: {source}; check the path and its permissions", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// A file ending without a loader.
    #[error(
        "{}: wanted .u32, .u32.zst, .npy, .tsv or text, found another packed format; convert or unpack it first",
        path.display()
    )]
    Format {
        /// The file.
        path: PathBuf,
    },
    /// A file without accesses.
    #[error("{}: wanted at least one id, found none; the file is empty, get or write it again", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// A `.u32` file that ends within an id.
    #[error(
        "{}: wanted whole ids of 4 bytes, found {bytes} bytes; the file is cut off or no .u32 file, get it again",
        path.display()
    )]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Its length, decompressed.
        bytes: u64,
    },
    /// A `.zst` file that holds far more bytes than packed numbers do.
    #[error(
        "{}: wanted at most {most} bytes, 8 MiB and 4,096 times the length of the packed file, found more; unpack it with the program zstd",
        path.display()
    )]
    Unpacked {
        /// The file.
        path: PathBuf,
        /// The most bytes that are unpacked.
        most: u64,
    },
    /// A `.zst` file that does not decompress to its end.
    #[error(
        "{}: wanted a complete zstd file, found: {reason}; the file is cut off or damaged, get it again",
        path.display()
    )]
    Zstd {
        /// The file.
        path: PathBuf,
        /// The decompressor's message.
        reason: String,
    },
    /// A `.gz` file that does not decompress to its end.
    #[error(
        "{}: wanted a complete gzip file, found: {reason}; the file is cut off or damaged, get it again",
        path.display()
    )]
    Gzip {
        /// The file.
        path: PathBuf,
        /// The decompressor's message.
        reason: String,
    },
    /// A number that is no row id.
    #[error(
        "{}: wanted ids from 0 to 4294967293, found {found} at access {position}; renumber the ids of the trace",
        path.display()
    )]
    Id {
        /// The file.
        path: PathBuf,
        /// The number of the access, from 0.
        position: u64,
        /// The number.
        found: String,
    },
    /// Text in a text trace that is no id.
    #[error(
        "{}: wanted ids separated by blanks or commas, found {found:?} in line {line}; remove it from the file",
        path.display()
    )]
    Text {
        /// The file.
        path: PathBuf,
        /// The number of the line, from 1.
        line: u64,
        /// The text that is no id.
        found: String,
    },
    /// A line that is not in Criteo's format.
    #[error("{}: wanted {wanted}, found {found:?} in line {line}; {remedy}", path.display())]
    Criteo {
        /// The file.
        path: PathBuf,
        /// The number of the line, from 1.
        line: u64,
        /// The accepted text.
        wanted: String,
        /// The text found.
        found: String,
        /// The remedy.
        remedy: &'static str,
    },
    /// A `.npy` file of another type or shape, or a damaged one.
    #[error("{}: wanted a 1-D .npy array of u32, i32, u64 or i64, found {found}; save it anew", path.display())]
    Npy {
        /// The file.
        path: PathBuf,
        /// Its type or shape, or its fault.
        found: String,
    },
    /// More accesses than offsets can count.
    #[error("{}: wanted at most 4294967295 accesses, found more; split the trace", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
    },
    /// An offsets file that does not cut its ids into bags.
    #[error("{}: wanted {wanted}, found {found}; get the file again or remove it to go without bags", path.display())]
    Offsets {
        /// The offsets file.
        path: PathBuf,
        /// The accepted content.
        wanted: String,
        /// The content found.
        found: String,
    },
    /// A labels file that does not fit its bags.
    #[error("{}: wanted {wanted}, found {found}; get the file again", path.display())]
    Labels {
        /// The labels file.
        path: PathBuf,
        /// The accepted content.
        wanted: String,
        /// The content found.
        found: String,
    },
    /// A missing file that belongs to a trace.
    #[error("{}: wanted this file, or the same with .zst, found neither; get it from where the trace came from", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// A wrong specification of a generated trace.
    #[error("trace {trace}: wanted {wanted}, found {found}; write it as {example}")]
    Spec {
        /// The text given.
        trace: String,
        /// The accepted value.
        wanted: String,
        /// The value found.
        found: String,
        /// A legal example.
        example: &'static str,
    },
    /// A generated trace larger than memory.
    #[error("trace {trace}: wanted memory for {accesses} accesses, found too little; ask for fewer with n=")]
    Memory {
        /// The text given.
        trace: String,
        /// The number of its accesses.
        accesses: u64,
    },
}
