//! Several ranks. No GPU.

mod ahead;
mod comm;
mod faults;
mod ranks;
mod replicated;
mod reshard;
