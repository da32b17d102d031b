//! Checkpoints (SPEC 4): everything that a group keeps between steps, in one
//! [safetensors](https://github.com/huggingface/safetensors) file.
//!
//! A group that loads a checkpoint continues as the saved one would have, bit for bit. The file is written and read in
//! pieces of 16 MiB (or one record, if that is longer), so the table is never copied in memory as a whole.
//!
//! ```
//! use hotrow::{Bags, CpuGroup, Error, GroupConfig, Mode, checkpoint, prelude::*};
//!
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("table.safetensors");
//! let mut group = CpuGroup::new(GroupConfig::new(&[1000], 16).with_cache_rows(32))?;
//! let outputs = group.forward(Bags::new(&[1, 2, 3], &[0, 3]), Mode::Train)?;
//! group.backward(&outputs)?;
//! checkpoint::save(&mut group, &path)?;
//!
//! // Later: placement, learning rate and the like can be chosen anew.
//! let (config, _step) = checkpoint::contents(&path)?;
//! let mut again = CpuGroup::new(config)?;
//! checkpoint::load(&mut again, &path)?;
//! assert_eq!(again.snapshot()?, group.snapshot()?);
//! # Ok::<(), Error>(())
//! ```
//!
//! # The file
//!
//! The header's metadata has four texts: `format`, `version`, `step`, and in `config` the configuration as JSON. A change of the file's bytes raises
//! `version`; a file of another version is refused by name.
//!
//! | tensor | type | shape | |
//! |---|---|---|---|
//! | `counters` | U64 | `[tables, 12]` | in the order of [`Part::Counters`](crate::state::Part::Counters) |
//! | `since` | U64 | `[shares]`, or 1 | accesses since the counters were halved (Window) |
//! | `ways` | U32 | `[sets, 4, ways]` | tags (2^32 - 1: empty), stamps, freqs, flags (1: dirty, 2: pinned, 8: for recent rows) |
//! | `cache` | F32 | `[slots, dim + state]` | weights, then the optimiser's state |
//! | `records` | U8 | `[rows, stride]` | the packed table ([`values`](crate::state::values)); rows with a dirty flag are newer in `cache` |
//! | `frequencies` | U32 | `[rows]` | the counter of each row (LFU, Window) |
//! | `checksums` | U32 | `[tensors]` | CRC-32 of the header and of each tensor before this one, in the order of the file |
//!
//! Tensors that a group does not have are left out: `ways` and `cache` without a cache, `frequencies` unless the policy
//! is LFU or Window, `since` unless it is Window.
//!
//! The file of a parameter-shared group has `counters` (U64, `[tables, 3]`: accesses, out of range, skipped weights;
//! the first table has all skipped weights), `weights`, `states` (unless the optimiser is SGD) and `checksums`. Weights
//! and states are F32 `[|M|]`; in other precisions they are the U32 words that hold them. [`save_lookup`] and
//! [`load_lookup`] take either kind of group.
//!
//! After [`Embedding::flush`](crate::Embedding::flush) `records` holds the newest values of all rows.

pub(crate) mod beside;
pub(crate) mod errors;
pub(crate) mod kind;
mod load;
mod reader;
mod robe;
pub(crate) mod safetensors;
pub(crate) mod save;
mod writer;

pub(crate) use errors::{fault, refused};
pub use load::{contents, load, load_lookup};
pub use robe::array_contents;
pub use save::{save, save_lookup};

use crate::error::Error;

/// The version of the files: a change of their bytes raises it.
const VERSION: &str = "3";

/// Bytes read or written at once.
const CHUNK: u64 = 16 << 20;

/// The error for a group whose rows lie on several ranks.
fn on_ranks(remedy: &'static str) -> Error {
    let (what, wanted, found) = ("one checkpoint file", "a group on one machine".into(), "one on several ranks".into());
    Error::Unsupported { what, wanted, found, remedy }
}

/// Converts words to the file's little-endian order, or back.
fn little_endian(words: &mut [u32]) {
    words.iter_mut().for_each(|word| *word = word.to_le());
}
