//! The binary `hotrow`: everything is in the library `hotrow_cli`, where tests can reach it.

fn main() -> std::process::ExitCode {
    hotrow_cli::main()
}
