//! The command `hotrow-lab`.

use std::process::ExitCode;

#[allow(unsafe_code, reason = "drivers read this variable, which has no other way to them")]
fn main() -> ExitCode {
    // SAFETY: no thread has been started.
    unsafe { std::env::set_var("XDG_RUNTIME_DIR", hotrow_report::start::runtime_folder()) };
    hotrow_lab::main()
}
