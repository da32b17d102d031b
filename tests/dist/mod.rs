//! Several ranks. No GPU.

mod comm;
mod faults;
mod ranks;
mod replicated;
mod reshard;
