//! Embedding tables in packed FP16, INT8, INT4 or INT2 whose hot rows train in a 32-way FP32 cache, on any GPU through [wgpu] or on the CPU.
//!
//! A table maps an index to a row of `dim` floats. A step has two calls. `forward` sums the rows of each bag of indices; `backward` takes
//! the gradients of those sums and updates each distinct row once. The table stores rows packed. The rows used most stay in an FP32 cache,
//! and are rounded, stochastically by default, only when they leave it.
//!
//! ```
//! use hotrow::{Bags, CpuGroup, Error, GroupConfig, Mode, Optimizer, Precision, prelude::*};
//!
//! // One table of 1,000 rows x 8 in INT8, 64 of them cached.
//! let config = GroupConfig::new(&[1000], 8)
//!     .with_precision(Precision::Int8)
//!     .with_cache_rows(64)
//!     .with_optimizer(Optimizer::adagrad(0.1));
//! let mut group = CpuGroup::new(config)?;
//!
//! // Two bags: rows 3 and 7, and row 3 alone.
//! let outputs = group.forward(Bags::new(&[3, 7, 3], &[0, 2, 3]), Mode::Train)?;
//! assert_eq!(outputs.len(), 2 * 8);
//! group.backward(&vec![1.0; 16])?; // the gradients of the outputs
//! group.flush()?; // the packed table now has every update
//! assert!(group.read_rows(&[3])?[0] < 0.0);
//! # Ok::<(), Error>(())
//! ```
//!
//! On a GPU, [`Group`] takes your device and encodes its kernels into your own command encoder; the
//! [README](https://docs.rs/crate/hotrow/latest/source/README.md) shows a step.
//!
//! # The main types
//!
//! | you want | on a GPU | on the CPU |
//! |---|---|---|
//! | tables of rows with a cache | [`Group`] | [`CpuGroup`] |
//! | tables that share one array of weights (ROBE) | [`SharedGroup`] | [`CpuSharedGroup`] |
//! | either of them behind one trait | [`Lookup`], [`Embedding`], [`SharedArray`] | the same |
//! | a loss scale that follows the gradients | [`Scaler`] | [`CpuScaler`] |
//! | rows in shaders of your own | [`Group::reader`], [`SharedGroup::reader`]: [`Reader`], [`RowReader`] | |
//! | pipelines for a device | [`Context`], [`ContextOptions`] | |
//! | times of the kernels | [`Timeline`] | |
//!
//! - **Configure**: [`GroupConfig`] or [`robe::Config`]; [`Precision`], [`Optimizer`], [`Policy`], [`Placement`], [`Init`]. Each setting has
//!   a field and a chainable setter.
//! - **Fill**: [`Init`] draws random rows, a [`Source`] gives its own, such as [`f32_file`].
//! - **Larger than the GPU, or than RAM**: [`Placement::Staged`] with a [`SharedStore`] in RAM, of a `FileStore` (feature `file`) or of
//!   your own [`Store`].
//! - **Save**: `checkpoint` (feature `checkpoint`), or a [`Snapshot`](state::Snapshot) in memory.
//! - **Plan**: [`MemoryReport`] counts bytes before anything is allocated. The package `hotrow-plan` replays traces, finds the cache and the
//!   pinned rows that suit a trace, and measures what a table would lose in a shared array.
//! - **Several machines**: the package `hotrow-dist` divides a group among ranks.
//! - **Errors**: every call returns [`Error`], whose message names the wanted value, the found value and the remedy.
//!
//! # Features
//!
//! `vulkan`, `metal`, `dx12` (all by default): wgpu's backends. `checkpoint`: saving and loading. `file`: tables in memory-mapped files. `npy`:
//! tables filled from numpy's arrays. `sort`: [`Sorter`], a radix sort and a dedup of your own keys. `tracing`: a span for each public call. `ranks`: what the package `hotrow-dist` asks of a group. `webgpu`: a browser's device, for the target
//! `wasm32-unknown-unknown`.
//!
//! # In a browser, and in asynchronous programs
//!
//! No call can wait in a browser. There, [`Group`], [`SharedGroup`], [`Context`] and [`adapter`] have the calls that encode and the futures whose
//! names end in `_async`; the calls that wait, [`Lookup`] and [`Embedding`] of groups on a device, exist everywhere else, and run the same
//! futures. Any executor may poll these. Tables live on the device or, [`Staged`](Placement::Staged), in the page's memory.

#![cfg_attr(
    any(target_family = "wasm", not(all(feature = "internals", feature = "ranks", feature = "sort"))),
    allow(
        dead_code,
        unreachable_pub,
        unused_imports,
        unused_variables,
        reason = "only these features name some items; calls that wait, files and mapped memory have no place in a browser"
    )
)]

pub use half::f16;
pub use wgpu;

#[cfg(feature = "checkpoint")]
pub mod checkpoint;
mod config;
mod cpu;
mod error;
mod formats;
mod gpu;
pub mod grid;
mod host;
#[cfg(all(feature = "internals", not(target_family = "wasm")))]
#[doc(hidden)]
pub mod internals;
mod lookup;
mod memory;
#[cfg(all(feature = "ranks", not(target_family = "wasm")))]
pub mod ranks;
mod record;
pub mod robe;
pub mod rules;
mod scaler;
mod source;
pub mod store;
mod stripe;
mod table;
mod wgsl;

/// The traits of groups, and nothing else: `use hotrow::prelude::*` brings `forward`, `backward`, `flush` and the others into scope.
///
/// ```
/// use hotrow::{Bags, CpuGroup, GroupConfig, Mode, prelude::*};
///
/// let mut group = CpuGroup::new(GroupConfig::new(&[1000], 8))?;
/// let outputs = group.forward(Bags::new(&[1, 2], &[0, 2]), Mode::Train)?;
/// assert_eq!(outputs.len(), 8);
/// # Ok::<(), hotrow::Error>(())
/// ```
pub mod prelude {
    pub use crate::lookup::{Embedding, Lookup, SharedArray};
}

pub use config::*;
pub use cpu::{cached::group::CpuGroup, grid::CpuGrid, robe::CpuSharedGroup, scaler::CpuScaler};
pub use error::Error;
#[doc(hidden)]
pub use gpu::device::DeviceGroup;
#[cfg(feature = "sort")]
pub use gpu::sorter::{Distinct, Sorter};
pub use gpu::{
    adapter,
    cached::{group::Group, staged::traffic::Traffic},
    engine::{
        bind::{Batch, FloatBuffer},
        caps::{Caps, requirements},
        context::Context,
        options::ContextOptions,
        timeline::{Span, Timeline, Timings},
    },
    grid::Grid,
    reader::{Feedback, FeedbackCounts, Reader, RowReader},
    robe::SharedGroup,
    scaler::Scaler,
};
pub use lookup::{Embedding, Lookup, SharedArray, outputs::OutputSlice};
pub use memory::{Calls, MemoryReport, TableMemory};
pub use scaler::{GradSlice, LossScale};
#[cfg(any(unix, windows))]
pub use source::f32_file;
#[cfg(all(feature = "npy", any(unix, windows)))]
pub use source::npy_file;
pub use source::{Range, Searched, Source};
#[cfg(all(feature = "file", any(unix, windows)))]
pub use store::FileStore;
pub use store::{SharedStore, Store};
pub use table::{abi::ScalerState, batch::Bags, counters::Counters, params::Mode};

/// The state that a group keeps between steps, in memory: as a whole, or part by part.
pub mod state {
    pub use crate::{
        record::codec::values,
        table::{parts::Part, snapshot::Snapshot},
    };
}

/// The README's snippet is compiled with the other examples.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The snippets of the guides are compiled, too.
#[cfg(all(doctest, feature = "checkpoint", feature = "file", any(unix, windows)))]
#[doc = include_str!("../docs/placements-and-staged.md")]
struct Placements;

#[cfg(doctest)]
#[doc = include_str!("../docs/renderers.md")]
struct Renderers;

#[cfg(doctest)]
#[doc = include_str!("../docs/shared-tables.md")]
struct SharedTables;

#[cfg(doctest)]
#[doc = include_str!("../docs/training.md")]
struct Training;
