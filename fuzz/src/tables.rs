//! `hotrow import`.

use hotrow::prelude::*;
use hotrow_cli::internals;

use crate::folder;

/// The options beside the file, which the first byte chooses.
const OPTIONS: [&[&str]; 12] = [
    &["t.npy"],
    &["t.npy", "--precision", "int4"],
    &["t.safetensors"],
    &["t.safetensors", "--precision", "int2", "--cache-rows", "1", "--optimizer", "adam"],
    &["t.safetensors", "--tensor", "b,a"],
    &["t.safetensors", "--format", "fused"],
    &["t.safetensors", "--format", "fused", "--precision", "int8"],
    &["t.safetensors", "--format", "fused", "--precision", "int2"],
    &["t.safetensors", "--format", "tbe"],
    &["t.safetensors", "--format", "tbe", "--precision", "int4", "--dim", "4"],
    &["t.safetensors", "--format", "tbe", "--precision", "int8"],
    &["t.npy", "--precision", "fp16", "--rounding", "nearest"],
];

pub(crate) fn import(data: &[u8]) -> bool {
    let Some((&kind, rest)) = data.split_first() else { return false };
    let options = OPTIONS[usize::from(kind) % OPTIONS.len()];
    let file = folder::file(options[0], rest);
    let out = folder::path("imported.safetensors");
    let line = ["hotrow".into(), "import".into(), file.into(), "--out".into(), out.into()];
    let options = options[1..].iter().map(|option| (*option).into());
    let Ok(mut group) = internals::import(line.into_iter().chain(options)) else { return false };
    // A table that was taken has finite rows.
    let rows: Vec<u32> = (0..group.config().total_rows().min(100) as u32).collect();
    let values = group.read_rows(&rows).unwrap();
    assert!(values.len() == rows.len() * group.config().dim as usize);
    assert!(values.iter().all(|value| value.is_finite()), "a weight that is not finite");
    true
}
