//! What several modules use to run the command.

pub(crate) mod command;
pub(crate) mod plan;
