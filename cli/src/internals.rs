//! Readers of foreign bytes beyond the traces, for the package `fuzz/`. None of it is stable.

use crate::plan::distribution::Distribution;
use crate::{Cli, Command, bench};
use clap::Parser as _;
use hotrow::CpuGroup;
use rand::SeedableRng as _;
use std::ffi::OsString;

fn parsed(line: impl IntoIterator<Item = OsString>) -> Result<Cli, String> {
    Cli::try_parse_from(line).map_err(|error| error.to_string())
}

/// Reads a command line, whose first word is the program's name.
pub fn options(line: impl IntoIterator<Item = OsString>) -> Result<(), String> {
    parsed(line).map(drop)
}

/// Makes the group that `hotrow import` would save.
pub fn import(line: impl IntoIterator<Item = OsString>) -> Result<CpuGroup, String> {
    match parsed(line)? {
        Cli { options, command: Command::Import(args) } => args
            .format()
            .and_then(|format| args.group(&options, format))
            .map(|(group, _)| group)
            .map_err(|failure| failure.to_string()),
        _ => Err("another subcommand".into()),
    }
}

/// Reads a report of `bench` or of the measuring page, and composes text and charts of it. Returns the number of figures.
pub fn bench_compare(bytes: &[u8]) -> Result<usize, String> {
    bench::compare::compose(bytes)
}

/// Reads a distribution, and draws `lookups` rows of it. Returns the number of its rows and the rows drawn.
pub fn distribution(text: &str, lookups: usize) -> Result<(u64, Vec<u32>), String> {
    let found: Distribution = text.parse()?;
    found.skew().map_err(|error| error.to_string())?;
    let drawn = found.draw(lookups, &mut rand_pcg::Pcg64::seed_from_u64(1)).map_err(|error| error.to_string())?;
    Ok((found.rows, drawn))
}
