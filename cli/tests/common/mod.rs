//! Helpers that run the command.

pub(crate) mod command;
pub(crate) mod plan;
pub(crate) mod records;
