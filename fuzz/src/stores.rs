//! Table files, and arrays that fill tables.

use hotrow::{CpuGroup, FileStore, GroupConfig, Precision, Source, Store as _, f32_file, npy_file, prelude::*, store};

use crate::folder;

/// The table of the files: 7 rows of 5 words.
pub(crate) fn config() -> GroupConfig {
    GroupConfig::new(&[4, 3], 12)
}

/// A filled table file.
pub(crate) fn seed() -> Vec<u8> {
    let config = config();
    folder::without("seed");
    let mut made = FileStore::create(folder::path("seed"), &config).unwrap();
    let values: Vec<f32> = (0..84).map(|k| k as f32).collect();
    store::fill(&mut made, &config, Some(&values)).unwrap();
    made.flushed(3).unwrap();
    drop(made);
    std::fs::read(folder::path("seed")).unwrap()
}

const HEADER: usize = 64;

/// The first byte says whether the header is signed anew. Then come the header and the records; the zeros between them are left out.
pub(crate) fn file(data: &[u8]) -> bool {
    let Some((&sign, rest)) = data.split_first() else { return false };
    let mut head = rest[..rest.len().min(HEADER)].to_vec();
    if sign % 2 == 1 && head.len() == HEADER {
        let sum = crc32fast::hash(&head[..HEADER - 4]).to_le_bytes();
        head[HEADER - 4..].copy_from_slice(&sum);
    }
    let whole = head.len() == HEADER;
    head.resize(if whole { 4096 } else { head.len() }, 0);
    head.extend_from_slice(&rest[rest.len().min(HEADER)..]);
    let path = folder::file("table", &head);
    let Ok(mut opened) = FileStore::open(&path, &config()) else { return false };
    let step = opened.step();
    let mut out = vec![0; 140];
    opened.read(&[6, 5, 4, 3, 2, 1, 0], &mut out).unwrap();
    assert!(out.chunks(20).rev().flatten().eq(&head[4096..]), "other records than the file's");
    opened.flushed(step).unwrap();
    drop(opened);
    let again = FileStore::open(&path, &config()).unwrap();
    assert!(again.was_flushed() && again.step() == step);
    true
}

fn fills(source: &dyn Source, data: &[u8]) -> bool {
    let config = GroupConfig::new(&[2], 3).with_precision(Precision::Fp32);
    let Ok(mut group) = CpuGroup::filled(config, source) else { return false };
    let rows = group.read_rows(&[0, 1]).unwrap();
    let wanted: Vec<u8> = rows.iter().flat_map(|row| row.to_le_bytes()).collect();
    let finite = rows.iter().all(|row| row.is_finite());
    assert!(!finite || data.windows(24).any(|part| part == wanted), "other rows than the file's");
    true
}

pub(crate) fn npy(data: &[u8]) -> bool {
    npy_file(&folder::file("rows.npy", data)).is_ok_and(|source| fills(&source, data))
}

pub(crate) fn raw(data: &[u8]) -> bool {
    f32_file(&folder::file("rows.f32", data)).is_ok_and(|source| fills(&source, data))
}
