//! The command and its baseline on a device. `HOTROW_TEST_GPU=require|allow|off` says what a missing adapter means.

#![allow(clippy::unwrap_used, reason = "a helper of a test fails as the test does")]

mod command;
mod traces;
mod uvm;
