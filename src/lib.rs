#![doc = include_str!("../README.md")]

pub use wgpu;

pub mod adapter;
mod batch;
mod caps;
#[cfg(feature = "checkpoint")]
pub mod checkpoint;
pub mod codec;
mod config;
mod counters;
pub mod cpu;
mod embedding;
mod error;
pub mod gpu;
pub mod hash;
mod init;
#[doc(hidden)]
pub mod internals;
pub mod layout;
pub mod lookup;
mod memory;
mod params;
mod parts;
mod pins;
#[cfg(any(unix, windows))]
mod positioned;
pub mod rng;
pub mod robe;
mod scaler;
pub mod scars;
#[doc(hidden)]
pub mod shader;
pub mod simulate;
mod source;
pub mod store;
mod trusted;
mod ways;

pub use caps::{AddBody, Caps, RankBody, requirements};
pub use config::*;
pub use counters::Counters;
pub use embedding::{Embedding, Snapshot};
pub use error::Error;
pub use gpu::{
    Batch, Context, ContextOptions, Count, Distinct, GradBuffer, Group, Scaler, Shaders, SortedPairs, Sorter, Timeline,
    Traffic,
};
pub use layout::{Layout, ScalerState};
pub use lookup::Lookup;
pub use memory::{Allocation, Calls, MemoryReport, TableMemory, memory_factor};
pub use parts::Part;
pub use scaler::{GradSlice, LossScale};
#[cfg(any(unix, windows))]
pub use source::F32File;
pub use source::Source;
#[cfg(all(feature = "file", any(unix, windows)))]
pub use store::FileStore;
pub use store::{RamStore, SharedStore, Store};
