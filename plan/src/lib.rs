#![doc = include_str!("../README.md")]

mod error;
pub mod fidelity;
pub mod precision;
pub mod scars;
pub mod simulate;

pub use error::Error;
