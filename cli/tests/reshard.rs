//! `hotrow reshard` from outside.

use crate::common::command::outcome;
#[cfg(unix)]
use crate::golden;
use hotrow::{Bags, CpuGroup, GroupConfig, Lookup, Mode, Precision};
use hotrow_dist::{Group, Threads};
use serde_json::Value;
use std::fs;
use tempfile::TempDir;

fn group(shards: u32) -> Group<Threads, CpuGroup> {
    let config = GroupConfig::new(&[1000, 30], 8).with_precision(Precision::Int8).with_cache_rows(64);
    Group::new(Threads::alone(), config, shards, CpuGroup::new).unwrap()
}

#[test]
fn another_number_of_shards() {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let [from, to, file] = [at("from"), at("to"), at("reshard.json")];
    let mut old = group(8);
    let outputs = old.forward(Bags::new(&[5, 6, 7, 29], &[0, 3, 4]), Mode::Train).unwrap();
    old.backward(&outputs.iter().map(|x| x + 0.5).collect::<Vec<_>>()).unwrap();
    old.save(&from).unwrap();
    let (stdout, stderr) = outcome(&["reshard", &from, &to, "--shards", "2", "--json", &file], 0);
    assert!(stdout.contains("shards before"), "{stdout}");
    assert!(stderr.contains("the cache is not kept: 4 dirty rows were written back"), "{stderr}");
    let found: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!((found["shards_before"].as_u64(), found["shards"].as_u64()), (Some(8), Some(2)));
    assert_eq!((found["rows"].as_u64(), found["written_back"].as_u64()), (Some(1030), Some(4)));
    old.flush().unwrap();
    let mut new = group(2);
    new.load(&to).unwrap();
    let rows: Vec<u32> = (0..1030).collect();
    assert_eq!(new.read_rows(&rows).unwrap(), old.read_rows(&rows).unwrap());
}

/// Systems that are no Unix word their errors otherwise.
#[cfg(unix)]
#[test]
fn bad_input_is_named() {
    let folder = TempDir::new().unwrap();
    group(4).save(folder.path().join("from")).unwrap();
    fs::create_dir(folder.path().join("other")).unwrap();
    fs::write(folder.path().join("other/shards.json"), "{}").unwrap();
    golden::refused("reshard", folder.path());
}
