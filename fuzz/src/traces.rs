//! Traces and what lies beside them.

use std::collections::HashSet;

use hotrow_report::trace::{CriteoFile, MAX_ID, Source, Trace, load, read_labels};

use crate::folder;

/// What holds for every trace.
fn check(trace: &Trace) {
    assert!(!trace.ids.is_empty() && trace.ids.iter().all(|&id| id <= MAX_ID));
    assert_eq!(trace.distinct as usize, trace.ids.iter().collect::<HashSet<_>>().len());
    if let Some(offsets) = &trace.offsets {
        assert!(offsets.windows(2).all(|pair| pair[0] <= pair[1]));
        assert_eq!((offsets[0], offsets[offsets.len() - 1] as usize), (0, trace.ids.len()));
    }
}

/// Reads a file of these bytes, and calls `also` with the trace. Returns whether it was accepted.
fn read(name: &str, bytes: &[u8], also: impl FnOnce(&Trace)) -> bool {
    let path = folder::file(name, bytes);
    let found = load(path.to_str().unwrap(), &Source::default());
    match &found {
        Ok(trace) => {
            check(trace);
            also(trace);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    found.is_ok()
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
}

/// Ids and offsets; the first byte is the share of the offsets, in 256ths.
pub(crate) fn u32(data: &[u8]) -> bool {
    let Some((&share, rest)) = data.split_first() else { return false };
    let (offsets, ids) = rest.split_at(rest.len() * usize::from(share) / 256);
    if share == 0 {
        folder::without("ids.offsets.u32");
    } else {
        folder::file("ids.offsets.u32", offsets);
    }
    read("ids.u32", ids, |trace| {
        assert!(trace.ids == words(ids));
        assert_eq!(trace.offsets, (share > 0).then(|| words(offsets)));
    })
}

/// Records of one length; the first byte chooses the file's name.
pub(crate) fn records(data: &[u8]) -> bool {
    let Some((&kind, rest)) = data.split_first() else { return false };
    let (name, bytes, at) =
        [("records.u64", 8, 0), ("records.oracleGeneral", 24, 4), ("records", 24, 4)][usize::from(kind) % 3];
    read(name, rest, |trace| {
        // Another file may be text.
        let is_text = kind % 3 == 2 && !rest.contains(&0) && !rest.contains(&255);
        let ids = rest.chunks(bytes).map(|record| u64::from_le_bytes(record[at..at + 8].try_into().unwrap()));
        assert!(is_text || trace.numbered || ids.eq(trace.ids.iter().map(|&id| u64::from(id))));
    })
}

/// What zstd unpacks at once. A frame that states another length than it has is then refused; piece by piece zstd may take it.
fn unpacked(data: &[u8]) -> Option<Vec<u8>> {
    zstd::decode_all(data).ok()
}

pub(crate) fn zst(data: &[u8]) -> bool {
    read("packed.u32.zst", data, |trace| assert!(unpacked(data).is_none_or(|bytes| trace.ids == words(&bytes))))
}

/// The bytes behind the header, if its type is that of little-endian numbers of 4 bytes in plain spelling.
fn words_of_npy(data: &[u8]) -> Option<Vec<u32>> {
    let (length, start) = match data.get(6)? {
        1 => (usize::from(u16::from_le_bytes(data.get(8..10)?.try_into().ok()?)), 10),
        _ => (u32::from_le_bytes(data.get(8..12)?.try_into().ok()?) as usize, 12),
    };
    let (header, numbers) = data.get(start..)?.split_at_checked(length)?;
    std::str::from_utf8(header).ok()?.starts_with("{'descr': '<u4',").then(|| words(numbers))
}

pub(crate) fn npy(data: &[u8]) -> bool {
    read("ids.npy", data, |trace| {
        assert!(trace.ids.len() * 4 <= data.len(), "more numbers than the file has");
        assert!(words_of_npy(data).is_none_or(|numbers| trace.ids == numbers[..trace.ids.len()]));
    })
}

pub(crate) fn text(data: &[u8]) -> bool {
    read("ids.txt", data, |trace| {
        // A table, or a heading, leaves pieces out; other ids than small numbers are numbered.
        let pieces = data.split(|byte| byte.is_ascii_whitespace() || b",;|\"\xef\xbb\xbf".contains(byte));
        let numbers =
            pieces.filter_map(|piece| std::str::from_utf8(piece).ok()?.parse().ok()).collect::<HashSet<u32>>();
        assert!(trace.numbered || trace.ids.iter().all(|id| numbers.contains(id)));
    })
}

/// The first byte chooses plain text, gzip or zstd.
pub(crate) fn criteo(data: &[u8]) -> bool {
    let Some((&kind, rest)) = data.split_first() else { return false };
    let name = ["day.tsv", "day.tsv.gz", "day.tsv.zst"][usize::from(kind) % 3];
    let path = folder::file(name, rest);
    let Ok(mut file) = CriteoFile::open(&path) else { return false };
    let mut lines = 0;
    let whole = loop {
        match file.next_line() {
            Ok(None) => break lines > 0,
            Ok(Some(line)) => {
                let _either = (line.label(), line.counts());
                if line.categories().is_err() {
                    break false;
                }
                lines += 1;
            }
            Err(_) => break false,
        }
    };
    assert!(!whole || read(name, rest, |trace| assert_eq!(trace.ids.len(), 26 * lines)));
    whole
}

/// The text of a generated trace. Numbers of more than five digits, which ask for long traces, are left out.
pub(crate) fn generated(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let long = text.split(|c: char| !c.is_ascii_digit()).any(|digits| digits.trim_start_matches('0').len() > 5);
    // What is left out has a default of a million.
    if long
        || !text.contains("rows=")
        || !text.contains("n=")
        || !["zipf:", "uniform:", "meta2021"].iter().any(|kind| text.starts_with(kind))
    {
        return false;
    }
    let Ok(trace) = load(text, &Source::default()) else { return false };
    check(&trace);
    assert_eq!(trace, load(text, &Source::default()).unwrap());
    true
}

/// Labels of three classes; the first byte is the number of bags, the second one chooses zstd.
pub(crate) fn labels(data: &[u8]) -> bool {
    let [bags, packed, rest @ ..] = data else { return false };
    let name = if packed % 2 == 0 { "x.labels.u8" } else { "x.labels.u8.zst" };
    read_labels(&folder::file(name, rest), usize::from(*bags), 3).is_ok_and(|labels| {
        assert!(labels.len() == usize::from(*bags) && labels.iter().all(|&label| label < 3));
        let bytes = if packed % 2 == 0 { Some(rest.to_vec()) } else { unpacked(rest) };
        assert!(bytes.is_none_or(|bytes| labels == bytes));
        true
    })
}
