#![doc = include_str!("../README.md")]

mod compile;
mod device;
mod findings;
mod mutants;
mod program;
mod project;
mod run;
mod source;

pub use device::{Config, Findings, Recording, World, open};
pub use findings::{Counts, Fault, Finding, Raw, Report};
pub use mutants::{Kind, Mutant, Tally, hunt};
pub use program::Program;
pub use project::{Files, Known, Ordered, Project, Redundant};
pub use run::{Bound, Options, Order, Outcome, dispatch};
pub use source::Source;
