//! The command and its baseline on a device. `HOTROW_TEST_GPU=require|allow|off`: see `tests/gpu/main.rs`.

mod capture;
mod command;
mod traces;
mod uvm;
