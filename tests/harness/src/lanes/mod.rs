//! The lane executor: runs a kernel lane by lane as hardware might, and reports what hardware could do wrong with it.
//!
//! [`source`] parses a composed text, [`compile`] makes code of it, [`schedule`] runs a dispatch on buffers, and [`device`] is a device of
//! wgpu made of all this, on which the tests of the kernels run unchanged.

mod arithmetic;
pub mod compile;
pub mod device;
pub mod findings;
pub mod known;
pub mod mutants;
pub mod program;
mod run;
pub mod runs;
pub mod schedule;
mod shadow;
pub mod source;
mod state;

pub use compile::{Mutation, compile};
pub use findings::{Counts, Fault, Finding, Raw, Report};
pub use schedule::{Options, Order, Outcome, dispatch};
pub use source::Source;
pub use state::Bound;
