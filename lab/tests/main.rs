//! The tests of the laboratory's command in one program.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod grid;
mod train;
mod train_dlrm;
