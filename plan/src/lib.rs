#![doc = include_str!("../README.md")]

pub mod fidelity;
pub mod scars;
pub mod simulate;
