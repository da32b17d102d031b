//! Several ranks. No GPU.

mod comm;
mod ranks;
