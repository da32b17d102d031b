#![doc = include_str!("../README.md")]

mod compile; // its code: functions inlined, values in registers
mod device; // all this as a device of wgpu
mod files; // the files of which texts are composed
mod findings; // what is reported
mod mutants; // barriers left out, one at a time
mod program; // the code itself
mod project; // what a project says of its kernels
mod run; // a dispatch: the order of subgroups, their operations, who touched each word
mod source; // a text, parsed by naga

pub use device::{Config, Findings, Recording, World, open};
pub use files::Files;
pub use findings::{Counts, Fault, Finding, Raw, Report};
pub use mutants::{Kind, Mutant, Redundant, Tally, hunt};
pub use program::Program;
pub use project::{Known, Ordered, Project};
pub use run::{Bound, Options, Order, Outcome, dispatch};
pub use source::Source;
