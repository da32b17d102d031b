//! The binary `hotrow`. Its code is in the library `hotrow_cli`, so that tests can use it.

fn main() -> std::process::ExitCode {
    hotrow_cli::main()
}
