//! `hotrow reshard`: another number of virtual shards for a checkpoint of a group on several ranks (SPEC 11).

use hotrow::Error;
use hotrow_dist as dist;
use hotrow_report::failure::Failure;
use hotrow_report::object::{Object, fields};
use hotrow_report::options::{Options, power};
use hotrow_report::output;
use std::path::PathBuf;

/// Write a checkpoint of a table on several ranks with another number of virtual shards
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Folder of the checkpoint
    #[arg(value_name = "FROM")]
    from: PathBuf,
    /// Folder to make
    #[arg(value_name = "TO")]
    to: PathBuf,
    /// Virtual shards, a power of two
    #[arg(long, value_name = "V", allow_negative_numbers = true, value_parser = power(1 << 16))]
    shards: u32,
}

pub(crate) fn run(options: &Options, args: &Args) -> Result<(), Failure> {
    options.check_used(false, false)?;
    let done = dist::reshard(&args.from, &args.to, args.shards).map_err(|error| match error {
        Error::Config { .. } => Failure::usage(error),
        error => error.into(),
    })?;
    let rows = match done.written_back {
        1 => "1 dirty row was".to_owned(),
        rows => format!("{rows} dirty rows were"),
    };
    let pins = if done.unpinned > 0 { format!(", {} rows are no longer pinned", done.unpinned) } else { String::new() };
    output::note(&format!("note: the cache is not kept: {rows} written back, rounded as in any flush{pins}"));
    let report = Object::default()
        .with("folder", args.to.display().to_string())
        .with("shards_before", done.before)
        .with("shards", args.shards)
        .and(fields!(done; rows, written_back, unpinned))
        .with("file_bytes", done.bytes);
    options.write_json(&report)?;
    output::print(&report.table("reshard"))?;
    Ok(())
}
