//! The binary `hotrow`. Its code is in the library `hotrow_cli`, which `hotrow-mpi` and the fuzz targets call.

#[allow(unsafe_code, reason = "drivers read this variable, which has no other way to them")]
fn main() -> std::process::ExitCode {
    // SAFETY: no thread has been started.
    unsafe { std::env::set_var("XDG_RUNTIME_DIR", hotrow_report::start::runtime_folder()) };
    let remedy = "start hotrow-mpi in its place (cargo build -p hotrow-lab --features mpi)";
    hotrow_report::start::alone("hotrow", remedy, hotrow_cli::main)
}
