//! The binary `hotrow`. Its code is in the library `hotrow_cli`, so that tests can use it.

fn main() -> std::process::ExitCode {
    match hotrow_cli::ranks::launched() {
        None => hotrow_cli::main(),
        Some(launched) => {
            launched.refuse("hotrow", "start hotrow-mpi in its place (cargo build -p hotrow-lab --features mpi)")
        }
    }
}
