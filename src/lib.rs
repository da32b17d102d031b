#![doc = include_str!("../README.md")]

pub use wgpu;

pub mod adapter;
mod batch;
mod caps;
pub mod codec;
mod config;
mod counters;
pub mod cpu;
mod embedding;
mod error;
pub mod gpu;
pub mod hash;
mod init;
pub mod layout;
mod memory;
mod params;
pub mod rng;
#[doc(hidden)]
pub mod shader;
pub mod simulate;
#[cfg(feature = "cli")]
pub mod trace;
mod trusted;
pub mod uvm;

pub use caps::{Caps, RankBody, requirements};
pub use config::*;
pub use counters::Counters;
pub use embedding::{Embedding, Snapshot};
pub use error::Error;
pub use gpu::{Batch, Context, ContextOptions, Count, Distinct, Group, Shaders, SortedPairs, Sorter, Timeline};
pub use layout::Layout;
pub use memory::{MemoryReport, memory_factor};
