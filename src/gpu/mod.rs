//! The GPU side, from below: the engine, which knows no stage; the stages, one file a kernel; groups, which put them in order.

pub mod adapter;
pub(crate) mod cached;
pub(crate) mod counters_async;
pub(crate) mod device;
pub(crate) mod engine;
pub(crate) mod fp16_outputs;
pub(crate) mod grid;
pub(crate) mod memory;
pub(crate) mod reader;
pub(crate) mod robe;
pub(crate) mod scaler;
pub(crate) mod sorter;
pub(crate) mod stages;
pub(crate) mod upload;
