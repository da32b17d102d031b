//! The command and its baseline on a device. `HOTROW_TEST_GPU=require|allow|off` says what a missing adapter means.

mod command;
mod traces;
mod uvm;
