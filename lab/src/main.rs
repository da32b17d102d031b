//! The command `hotrow-lab`.

use std::process::ExitCode;

fn main() -> ExitCode {
    hotrow_lab::main()
}
