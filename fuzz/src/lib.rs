//! Everything of hotrow that reads foreign bytes, as functions of bytes. `scripts/fuzz` drives them with a fuzz engine; the tests of the
//! command replay what it found, without one.
//!
//! A target returns whether its input was accepted. It panics if the library did, if an accepted input gave a wrong result, or if more memory
//! was taken than [`MOST_BYTES`] says.
#![allow(
    missing_docs,
    clippy::missing_panics_doc,
    clippy::unwrap_used,
    reason = "a panic is what the engine and the tests look for, and nobody else calls these functions"
)]

mod calls;
mod folder;
mod saved;
mod seeds;
mod stores;
mod tables;
mod texts;
mod traces;

pub use seeds::{npy, page, seeds};

/// A reader of foreign bytes.
pub struct Target {
    pub name: &'static str,
    run: fn(&[u8]) -> bool,
    /// Memory for each byte of an input.
    each: u64,
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

const fn target(name: &'static str, run: fn(&[u8]) -> bool) -> Target {
    Target { name, run, each: 64 }
}

/// A target whose whole input may be compressed: a byte stands for up to 4,096, of which there are up to four copies.
const fn packed(name: &'static str, run: fn(&[u8]) -> bool) -> Target {
    Target { name, run, each: 16 << 10 }
}

/// Every target.
pub const TARGETS: [Target; 19] = [
    target("trace_u32", traces::u32),
    target("trace_records", traces::records),
    packed("trace_zst", traces::zst),
    target("trace_npy", traces::npy),
    target("trace_text", traces::text),
    target("trace_criteo", traces::criteo),
    target("trace_generated", traces::generated),
    packed("labels", traces::labels),
    target("checkpoint", saved::rows),
    target("checkpoint_robe", saved::robe),
    target("manifest", saved::manifest),
    target("file_store", stores::file),
    target("source_npy", stores::npy),
    target("source_raw", stores::raw),
    target("import", tables::import),
    target("bench_json", texts::bench_json),
    target("distribution", texts::distribution),
    target("options", texts::options),
    target("calls", calls::run),
];

/// The memory that any input may take at one time, beside `each` of its bytes. Memory of zstd's own is not counted: a window of at most 128 MiB.
pub const MOST_BYTES: u64 = 64 << 20;

/// Calls `run`, and panics if this thread takes more than so many bytes of memory.
pub fn within_memory(most: u64, run: impl FnOnce() -> bool) -> bool {
    let mut accepted = false;
    let taken = allocation_counter::measure(|| accepted = run()).bytes_max;
    assert!(taken <= most, "wanted at most {most} bytes of memory taken, found {taken}");
    accepted
}

impl Target {
    /// The target of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        TARGETS.iter().find(|target| target.name == name)
    }

    /// Reads `data`. Returns whether it was accepted.
    #[must_use]
    pub fn run(&self, data: &[u8]) -> bool {
        within_memory(MOST_BYTES + self.each * data.len() as u64, || (self.run)(data))
    }
}
