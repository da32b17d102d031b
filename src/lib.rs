#![doc = include_str!("../README.md")]

pub use wgpu;

#[cfg(feature = "checkpoint")]
pub mod checkpoint;
mod config;
mod cpu;
mod error;
mod gpu;
mod host;
#[doc(hidden)]
pub mod internals;
mod lookup;
mod memory;
mod record;
pub mod robe;
mod scaler;
pub mod scars;
pub mod simulate;
mod source;
pub mod store;
mod table;
mod wgsl;

pub use config::*;
pub use cpu::{cached::group::CpuGroup, robe::CpuRobeGroup, scaler::CpuScaler};
pub use error::{Error, IoError};
pub use gpu::{
    adapter,
    cached::{group::Group, staged::traffic::Traffic},
    engine::{
        bind::{Batch, GradBuffer},
        caps::{Caps, requirements},
        context::Context,
        options::{ContextOptions, Shaders},
        timeline::{Record, Resolution, Span, Timeline},
    },
    robe::{RobeGroup, gradient::GradientBuffer},
    scaler::Scaler,
    sorter::{Count, Distinct, SortedPairs, Sorter},
};
pub use lookup::{Embedding, Lookup, LookupKind, SharedArray};
pub use memory::{Allocation, Calls, MemoryReport, TableMemory, memory_factor};
pub use record::codec;
pub use scaler::{GradSlice, LossScale};
#[cfg(any(unix, windows))]
pub use source::F32File;
pub use source::Source;
#[cfg(all(feature = "file", any(unix, windows)))]
pub use store::FileStore;
pub use store::{RamStore, SharedStore, Store};
pub use table::{
    counters::Counters,
    hash,
    layout::{Layout, ScalerState},
    parts::Part,
    rng,
    snapshot::Snapshot,
};
pub use wgsl::{AddBody, RankBody};
