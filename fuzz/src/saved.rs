//! Checkpoints: of rows, of shared arrays, and the list of a checkpoint of several ranks.

use std::fs;

use hotrow::{
    Bags, Counters, CpuGroup, CpuSharedGroup, Error, GroupConfig, Mode, Optimizer, Policy, Precision, checkpoint,
    prelude::*, robe,
};
use hotrow_dist::{Group, Threads, reshard};
use safetensors::tensor::Metadata;

use crate::folder;

/// Computes the checksums of a file anew, so that a change of its bytes is no damage. `None` if the file has no place for them.
fn signed(file: &[u8]) -> Option<Vec<u8>> {
    let text = usize::try_from(u64::from_le_bytes(*file.first_chunk()?)).ok()?;
    let head = text.checked_add(8)?;
    let found: Metadata = serde_json::from_slice(file.get(8..head)?).ok()?;
    let mut sums = crc32fast::hash(&file[..head]).to_le_bytes().to_vec();
    let names = found.offset_keys();
    for name in &names[..names.len().checked_sub(1)?] {
        let (begin, end) = found.info(name)?.data_offsets;
        sums.extend(crc32fast::hash(file.get(head.checked_add(begin)?..head.checked_add(end)?)?).to_le_bytes());
    }
    let at = file.len().checked_sub(sums.len())?;
    Some([file.get(..at)?, &sums].concat())
}

/// The first byte says whether the checksums are computed anew.
fn written(name: &str, data: &[u8]) -> Option<std::path::PathBuf> {
    let (&sign, rest) = data.split_first()?;
    let made = if sign % 2 == 1 { signed(rest) } else { None };
    Some(folder::file(name, made.as_deref().unwrap_or(rest)))
}

/// A step with one index for each feature.
fn step(group: &mut dyn Lookup, features: u32) {
    let (indices, offsets): (Vec<u32>, Vec<u32>) = (vec![0; features as usize], (0..=features).collect());
    if let Ok(outputs) = group.forward(Bags::new(&indices, &offsets), Mode::Train) {
        group.backward(&vec![0.5; outputs.len()]).unwrap();
    }
}

pub(crate) fn rows(data: &[u8]) -> bool {
    let Some(path) = written("rows.safetensors", data) else { return false };
    let Ok((config, t)) = checkpoint::contents(&path) else { return false };
    let mut group = CpuGroup::new(config.clone()).unwrap();
    if checkpoint::load(&mut group, &path).is_err() {
        return false;
    }
    let loaded = group.snapshot().unwrap();
    assert_eq!(loaded.t, t);
    let copy = folder::path("copy.safetensors");
    checkpoint::save(&mut group, &copy).unwrap();
    assert_eq!(checkpoint::contents(&copy).unwrap(), (config.clone(), t));
    let mut again = CpuGroup::new(config.clone()).unwrap();
    checkpoint::load(&mut again, &copy).unwrap();
    // Bit for bit, as floats that are not numbers differ from themselves.
    assert!(format!("{:?}", again.snapshot().unwrap()) == format!("{loaded:?}"));
    let all = group.counters().unwrap().into_iter().sum::<Counters>();
    assert!(all.bus_bytes() >= all.bytes_read);
    let features = if config.features.is_empty() { config.tables.len() } else { config.features.len() };
    step(&mut group, features as u32);
    group.flush().unwrap();
    true
}

fn robe_group() -> CpuSharedGroup {
    let config = robe::Config::compressed(&[5, 3], 4, 2.0, 2).unwrap();
    CpuSharedGroup::new(config.with_optimizer(Optimizer::adagrad(0.1))).unwrap()
}

pub(crate) fn robe(data: &[u8]) -> bool {
    let Some(path) = written("array.safetensors", data) else { return false };
    let mut group = robe_group();
    if checkpoint::load_lookup(&mut group, &path).is_err() {
        return false;
    }
    let copy = folder::path("copy.safetensors");
    checkpoint::save_lookup(&mut group, &copy).unwrap();
    checkpoint::load_lookup(&mut robe_group(), &copy).unwrap();
    step(&mut group, 2);
    true
}

/// Does `work` with a group of so many virtual shards on one rank.
fn with_shards(
    shards: u32,
    work: impl Fn(&mut Group<&mut Threads, CpuGroup>) -> Result<(), Error> + Sync,
) -> Result<(), Error> {
    let config = || GroupConfig::new(&[5], 2).with_cache_rows(2);
    Threads::run(1, |comm: &mut Threads| work(&mut Group::new(comm, config(), shards, CpuGroup::new)?)).map(drop)
}

/// The list in a folder with two saves of two shards.
pub(crate) fn manifest(data: &[u8]) -> bool {
    let place = folder::path("shards");
    let list = place.join("shards.json");
    if !place.join("save-1-shard-0.safetensors").exists() {
        let _ = fs::remove_dir_all(&place);
        with_shards(2, |group| group.save(&place)).unwrap();
    }
    fs::write(&list, data).unwrap();
    let said = |error: Error| {
        let text = error.to_string();
        assert!(!text.contains("panicked"), "{text}");
    };
    let accepted = with_shards(2, |group| group.load(&place)).map_err(said).is_ok();
    let resharded = folder::path("resharded");
    let _ = fs::remove_dir_all(&resharded);
    if reshard(&place, &resharded, 4).map_err(said).is_ok() {
        with_shards(4, |group| group.load(&resharded)).unwrap();
    }
    // Whatever the list says: the next save is whole, or refused with the list as it was.
    fs::write(&list, data).unwrap();
    match with_shards(2, |group| group.save(&place)).map_err(said) {
        Ok(()) => {
            with_shards(2, |group| group.load(&place)).unwrap();
            fs::remove_dir_all(&place).unwrap();
        }
        Err(()) => assert_eq!(fs::read(&list).unwrap(), data),
    }
    accepted
}

fn file(name: &str, sign: u8, save: impl FnOnce(&std::path::Path)) -> Vec<u8> {
    let path = folder::path(name);
    save(&path);
    [vec![sign], fs::read(path).unwrap()].concat()
}

/// Checkpoints of rows, with and without new checksums.
pub(crate) fn row_seeds() -> Vec<Vec<u8>> {
    let plain = GroupConfig::new(&[2], 3);
    let full = GroupConfig::new(&[6, 3], 4)
        .with_precision(Precision::Int4)
        .with_cache_rows(3)
        .with_ways(2)
        .with_policy(Policy::Lfu)
        .with_optimizer(Optimizer::adam(0.1).with_own_count(true).with_clip_norm(Some(0.5)));
    let made = |(sign, config): (u8, GroupConfig)| {
        let mut group = CpuGroup::new(config.clone()).unwrap();
        step(&mut group, config.tables.len() as u32);
        if config.cache_rows > 0 {
            group.pin(&[1], 1).unwrap();
        }
        file("seed.safetensors", sign, |path| checkpoint::save(&mut group, path).unwrap())
    };
    [(1, plain.clone()), (0, plain), (1, full.clone()), (1, full.with_precision(Precision::Fp16))]
        .into_iter()
        .map(made)
        .collect()
}

pub(crate) fn robe_seeds() -> Vec<Vec<u8>> {
    let made = |sign| {
        let mut group = robe_group();
        step(&mut group, 2);
        file("seed.safetensors", sign, |path| checkpoint::save_lookup(&mut group, path).unwrap())
    };
    vec![made(0), made(1)]
}
