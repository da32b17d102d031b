//! Every trace format is written and read back, and every fault of a file is found.

use hotrow_cli::trace::{CriteoFile, MAX_ID, Source, Trace, TraceError, load};
use npyz::WriterBuilder;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const IDS: [u32; 6] = [3, 0, 7, 3, MAX_ID, 65_536];
const BAGS: [u32; 4] = [0, 2, 2, 6];

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn packed(words: &[u32]) -> Vec<u8> {
    zstd::encode_all(&bytes(words)[..], 3).unwrap()
}

fn write(dir: &TempDir, name: &str, content: &[u8]) -> PathBuf {
    let path = dir.path().join(name);
    fs::write(&path, content).unwrap();
    path
}

fn read(path: &Path) -> Result<Trace, TraceError> {
    load(path.to_str().unwrap(), &Source::default())
}

fn npy<T: npyz::AutoSerialize + Copy>(dir: &TempDir, name: &str, values: &[T], shape: &[u64]) -> PathBuf {
    let mut content = Vec::new();
    let mut writer = npyz::WriteOptions::new().default_dtype().shape(shape).writer(&mut content).begin_nd().unwrap();
    writer.extend(values).unwrap();
    writer.finish().unwrap();
    write(dir, name, &content)
}

/// The message is one sentence with the wanted content, the found content and the remedy.
fn message(error: &TraceError) -> String {
    let text = error.to_string();
    for part in ["wanted ", "found", "; "] {
        assert!(text.contains(part), "{text:?} lacks {part:?}");
    }
    assert!(!text.contains('\n'), "{text:?} is more than a line");
    text
}

#[test]
fn plain_and_packed_words() {
    let dir = TempDir::new().unwrap();
    for (name, content) in [("plain.u32", bytes(&IDS)), ("packed.u32.zst", packed(&IDS))] {
        let trace = read(&write(&dir, name, &content)).unwrap();
        assert_eq!(trace.ids, IDS);
        assert_eq!((trace.distinct, trace.offsets), (5, None));
        assert_eq!(trace.name, name.split('.').next().unwrap());
    }
}

#[test]
fn bags_beside_the_ids() {
    for (ids, offsets) in [("x.u32", "x.offsets.u32.zst"), ("x.u32.zst", "x.offsets.u32")] {
        let dir = TempDir::new().unwrap();
        let content = |name: &str, words: &[u32]| if name.ends_with("zst") { packed(words) } else { bytes(words) };
        let path = write(&dir, ids, &content(ids, &IDS));
        write(&dir, offsets, &content(offsets, &BAGS));
        let trace = read(&path).unwrap();
        assert_eq!(trace.offsets.unwrap(), BAGS);
        assert_eq!(trace.name, "x");
    }
}

#[test]
fn offsets_that_cut_nothing() {
    for (offsets, wanted) in [
        (&[1, 6][..], "a first offset of 0"),
        (&[0, 4, 3, 6], "ascending"),
        (&[0, 5], "a last offset of 6"),
        (&[0, 7], "a last offset of 6"),
        (&[], "at least one offset"),
    ] {
        let dir = TempDir::new().unwrap();
        let path = write(&dir, "x.u32", &bytes(&IDS));
        write(&dir, "x.offsets.u32", &bytes(offsets));
        let error = read(&path).unwrap_err();
        assert!(matches!(error, TraceError::Offsets { .. }), "{error:?}");
        assert!(message(&error).contains(wanted), "{error}");
    }
}

#[test]
fn numpy() {
    let dir = TempDir::new().unwrap();
    let small = [3_u32, 0, 7];
    let paths = [
        npy(&dir, "a.npy", &small, &[3]),
        npy(&dir, "b.npy", &small.map(|id| id as i32), &[3]),
        npy(&dir, "c.npy", &small.map(u64::from), &[3]),
        npy(&dir, "d.npy", &small.map(i64::from), &[3]),
    ];
    for path in paths {
        assert_eq!(read(&path).unwrap().ids, small);
    }
}

#[test]
fn numpy_refusals() {
    let dir = TempDir::new().unwrap();
    for (path, found) in [
        (npy(&dir, "a.npy", &[1_i64, -5], &[2]), "-5 at access 1"),
        (npy(&dir, "b.npy", &[i64::from(MAX_ID) + 1], &[1]), "4294967294"),
        (npy(&dir, "c.npy", &[u64::MAX], &[1]), "18446744073709551615"),
    ] {
        let error = read(&path).unwrap_err();
        assert!(matches!(error, TraceError::Id { .. }) && message(&error).contains(found), "{error:?}");
    }
    let whole = fs::read(npy(&dir, "d.npy", &IDS, &[6])).unwrap();
    let text = String::from_utf8_lossy(&whole[10..128]).into_owned();
    let huge = text.replace("(6,)", "(4611686018427387904,4611686018427387904)");
    for path in [
        npy(&dir, "e.npy", &[1.5_f32], &[1]),
        npy(&dir, "f.npy", &IDS, &[2, 3]),
        write(&dir, "g.npy", &whole[..whole.len() - 3]),
        write(&dir, "h.npy", &whole[..20]),
        write(&dir, "i.npy", b"no array"),
        write(&dir, "j.npy", &[&whole[..10], huge.as_bytes()].concat()),
        write(&dir, "k.npy", b""),
        // Found by the fuzz targets: a shape under another spelling, brackets in brackets, and a header of 4 GiB.
        write(&dir, "l.npy", &[&whole[..10], huge.replace('\'', "\"").as_bytes()].concat()),
        write(&dir, "m.npy", &[&b"\x93NUMPY\x01\0\0\x0f"[..], &[b'('; 0x0f00]].concat()),
        write(&dir, "n.npy", &[&b"\x93NUMPY\x02\0\xff\xff\xff\xff"[..], text.as_bytes()].concat()),
    ] {
        let error = read(&path).unwrap_err();
        assert!(matches!(error, TraceError::Npy { .. }), "{error:?}");
        message(&error);
    }
}

#[test]
fn text_with_a_bag_a_line() {
    let dir = TempDir::new().unwrap();
    let trace = read(&write(&dir, "x.txt", b"3 0\r\n\n7,3, 4294967293\t65536")).unwrap();
    assert_eq!(trace.ids, IDS);
    assert_eq!(trace.offsets.unwrap(), BAGS);
}

#[test]
fn text_refusals() {
    let dir = TempDir::new().unwrap();
    for (content, found) in
        [(&b"1\n2 x3\n"[..], "\"x3\" in line 2"), (b"1.5", "\"1.5\" in line 1"), (b"\xff\xfe\0", "in line 1")]
    {
        let error = read(&write(&dir, "x.txt", content)).unwrap_err();
        assert!(matches!(error, TraceError::Text { .. }) && message(&error).contains(found), "{error}");
    }
    for (content, found) in [(&b"1 -2"[..], "-2 at access 1"), (b"99999999999999999999", "at access 0")] {
        let error = read(&write(&dir, "x.txt", content)).unwrap_err();
        assert!(matches!(error, TraceError::Id { .. }) && message(&error).contains(found), "{error}");
    }
}

/// A line of Criteo: label, 13 counts, the two given categories, and 24 categories of zero.
fn criteo(label: &str, first: &str, second: &str) -> String {
    format!("{label}{}{first}\t{second}{}\n", "7\t".repeat(13), "\t0".repeat(24))
}

#[test]
fn criteo_lines_are_bags_of_26() {
    let dir = TempDir::new().unwrap();
    let lines = [criteo("1\t", "ab", ""), criteo("", "ab", "ab"), criteo("0\t", "", "ffffffff")].concat();
    let trace = read(&write(&dir, "day.tsv", lines.as_bytes())).unwrap();
    assert_eq!(trace.offsets.unwrap(), [0, 26, 52, 78]);
    assert_eq!(&trace.ids[..4], [0, 1, 2, 3], "by first appearance");
    assert_eq!(&trace.ids[26..29], [0, 26, 2], "equal digits in another field are another row");
    assert_eq!(&trace.ids[52..55], [27, 28, 2], "an empty category is a value");
    assert_eq!(trace.distinct, 29);
}

/// Every kind of bad line, and the text that the message must contain.
#[test]
fn criteo_refusals() {
    let dir = TempDir::new().unwrap();
    let line = |label: &str, count: &str, category: &str| {
        format!("{label}\t{count}{}\t{category}{}\n", "\t7".repeat(12), "\t0".repeat(25))
    };
    let good = line("1", "-2", "ab");
    let refused = |name: &str, content: &[u8]| {
        let mut file = CriteoFile::open(&write(&dir, name, content)).unwrap();
        loop {
            let done = file.next_line().and_then(|line| {
                let Some(line) = line else { return Ok(None) };
                Ok(Some((line.label()?, line.counts()?, line.categories()?)))
            });
            match done {
                Ok(Some(_)) => {}
                Ok(None) => panic!("{name} was accepted"),
                Err(error) => return error,
            }
        }
    };
    for (name, content, found) in [
        ("few", "1\t2\t3\n".to_owned(), "\"3 fields\" in line 1"),
        ("one less", good.clone() + &good.replacen("\t7", "", 2), "\"38 fields\" in line 2"),
        ("one more", good.replace('\n', "\t0\n"), "\"41 fields\" in line 1"),
        ("blank", good.clone() + "\n", "\"an empty line\" in line 2"),
        ("endless", "x".repeat(1 << 20), "more than 4096 bytes"),
        ("hex", good.clone() + &line("1", "", "xyz"), "category 1 of 26, found \"xyz\" in line 2"),
        ("nine", line("1", "", "123456789"), "123456789"),
        ("sign", line("1", "", "+1"), "+1"),
        ("half", line("1", "1.5", "a"), "count 1 of 13, found \"1.5\" in line 1"),
        ("huge", line("1", "99999999999999999999", "a"), "99999999999999999999"),
        ("two", line("2", "", "a"), "a label of 0 or 1, found \"2\" in line 1"),
        ("none", line("", "", "a"), "a label of 0 or 1, found \"\" in line 1"),
        ("test file", good.replacen("1\t", "", 1), "no label"),
    ] {
        let error = refused(name, content.as_bytes());
        assert!(matches!(error, TraceError::Criteo { .. }) && message(&error).contains(found), "{name}: {error}");
    }
    let packed = zstd::encode_all(good.repeat(1000).as_bytes(), 3).unwrap();
    assert!(matches!(refused("cut.zst", &packed[..packed.len() / 2]), TraceError::Zstd { .. }));
    let packed = gzip(good.repeat(1000).as_bytes());
    let cut = refused("cut.gz", &packed[..packed.len() / 2]);
    assert!(matches!(cut, TraceError::Gzip { .. }), "{cut}");
    message(&cut);
    // A trace uses the categories alone.
    assert_eq!(read(&write(&dir, "day.tsv", line("", "x", "ab").as_bytes())).unwrap().ids.len(), 26);
    let error = read(&write(&dir, "day.tsv", line("1", "1", "xyz").as_bytes())).unwrap_err();
    assert!(matches!(error, TraceError::Criteo { .. }), "{error}");
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packer.write_all(content).unwrap();
    packer.finish().unwrap()
}

/// The same lines from plain and packed files, with either line end, and without the last line end.
#[test]
fn criteo_files_in_every_form() {
    let dir = TempDir::new().unwrap();
    let counts = ["", "-2", "0", "7", "", "", "", "", "", "", "", "", "4294967296"].join("\t");
    let text = format!("1\t{counts}\tFF\t{}\tdeadbeef\n", "\t".repeat(23)).repeat(2);
    let packed = [gzip(text.as_bytes()), gzip(text.as_bytes())].concat();
    for (name, content, lines) in [
        ("plain.txt", text.clone().into_bytes(), 2),
        ("crlf.txt", text.replace('\n', "\r\n").into_bytes(), 2),
        ("no_end.txt", text.trim_end().as_bytes().to_vec(), 2),
        ("x.zst", zstd::encode_all(text.as_bytes(), 3).unwrap(), 2),
        ("two_members.gz", packed, 4),
        ("empty.txt", Vec::new(), 0),
    ] {
        let mut file = CriteoFile::open(&write(&dir, name, &content)).unwrap();
        let mut found = 0;
        while let Some(line) = file.next_line().unwrap() {
            assert!(line.label().unwrap());
            let counts = line.counts().unwrap();
            assert_eq!(
                (counts[0], counts[1], counts[2], counts[12]),
                (None, Some(-2), Some(0), Some(1 << 32)),
                "{name}"
            );
            let categories = line.categories().unwrap();
            assert_eq!((categories[0], categories[1], categories[25]), (Some(255), None, Some(0xdead_beef)), "{name}");
            found += 1;
        }
        assert_eq!(found, lines, "{name}");
    }
    let missing = CriteoFile::open(&dir.path().join("missing.txt")).unwrap_err();
    assert!(matches!(missing, TraceError::Io { .. }), "{missing}");
}

#[test]
fn cut_off_empty_missing_and_foreign_files() {
    let dir = TempDir::new().unwrap();
    let zst = packed(&(0..10_000).collect::<Vec<_>>());
    let cut = read(&write(&dir, "cut.u32", &bytes(&IDS)[..7])).unwrap_err();
    assert!(matches!(cut, TraceError::Truncated { bytes: 7, .. }), "{cut:?}");
    let unpacked = read(&write(&dir, "cut.u32.zst", &zst[..zst.len() / 2])).unwrap_err();
    assert!(matches!(unpacked, TraceError::Zstd { .. }), "{unpacked:?}");
    // A few hundred bytes must not fill the memory.
    let full = read(&write(&dir, "full.u32.zst", &zstd::encode_all(&vec![0; 64 << 20][..], 3).unwrap())).unwrap_err();
    assert!(matches!(full, TraceError::Unpacked { most, .. } if most < 40 << 20), "{full}");
    assert_eq!(
        read(&write(&dir, "zeros.u32.zst", &zstd::encode_all(&vec![0; 4 << 20][..], 3).unwrap())).unwrap().ids.len(),
        1 << 20
    );
    let foreign = read(&write(&dir, "foreign.u32.zst", b"no zstd at all")).unwrap_err();
    assert!(matches!(foreign, TraceError::Zstd { .. }), "{foreign:?}");
    let large = read(&write(&dir, "large.u32", &bytes(&[1, u32::MAX]))).unwrap_err();
    assert!(matches!(large, TraceError::Id { position: 1, .. }), "{large:?}");
    for name in ["empty.u32", "empty.txt", "empty.tsv"] {
        let empty = read(&write(&dir, name, b"")).unwrap_err();
        assert!(matches!(empty, TraceError::Empty { .. }), "{empty:?}");
        message(&empty);
    }
    let packed_text = read(&write(&dir, "x.txt.zst", b"")).unwrap_err();
    assert!(matches!(packed_text, TraceError::Format { .. }), "{packed_text:?}");
    let missing = read(&dir.path().join("missing.u32")).unwrap_err();
    assert!(matches!(missing, TraceError::NotFound { .. }), "{missing:?}");
    let folder = read(dir.path()).unwrap_err();
    assert!(matches!(folder, TraceError::NotFound { .. }), "{folder:?}");
    for error in [cut, unpacked, foreign, large, packed_text, missing, folder] {
        message(&error);
    }
}

#[test]
fn bare_names_are_looked_up_in_the_data_folder() {
    let dir = TempDir::new().unwrap();
    write(&dir, "some_trace.u32.zst", &packed(&IDS));
    let source = Source { data: Some(dir.path()), seed: 0 };
    assert_eq!(load("some_trace", &source).unwrap().ids, IDS);
    assert_eq!(load("some_trace.u32.zst", &source).unwrap().ids, IDS);
    assert!(matches!(load("other_trace", &source), Err(TraceError::NotFound { .. })));
    message(&load("some_trace", &Source::default()).unwrap_err());
}

#[test]
fn generated_traces_depend_on_the_seed_only() {
    for text in ["zipf:rows=500,s=1.1,n=2000", "uniform:rows=500,n=2000", "meta2021:rows=300"] {
        let make = |seed| load(text, &Source { data: None, seed }).unwrap();
        assert_eq!(make(1), make(1));
        assert_ne!(make(1).ids, make(2).ids);
        assert_eq!(make(1).name, text);
    }
    assert_eq!(load("meta2021:n=1000", &Source::default()).unwrap().ids.len(), 1000);
    assert_eq!(load("uniform:rows=3", &Source::default()).unwrap().ids.len(), 1_000_000);
}

/// Frequencies of a Zipf trace follow (id + 1)^-s.
#[test]
fn zipf_is_zipf() {
    let trace = load("zipf:rows=1000,s=0.8,n=400000", &Source::default()).unwrap();
    let total: f64 = (1..=1000).map(|rank| f64::from(rank).powf(-0.8)).sum();
    for id in [0_u32, 1, 9, 99] {
        let expected = 400_000.0 * f64::from(id + 1).powf(-0.8) / total;
        let found = trace.ids.iter().filter(|&&other| other == id).count() as f64;
        // Five standard deviations of a Poisson count.
        assert!((found - expected).abs() < 5.0 * expected.sqrt(), "id {id}: {found}, expected {expected}");
    }
    assert!(trace.ids.iter().all(|&id| id < 1000));
}

#[test]
fn generated_refusals() {
    for text in [
        "zipf:rows=10",
        "zipf:s=1",
        "zipf",
        "zipf:rows=10,s=1,x=2",
        "zipf:rows=10,s=nan",
        "zipf:rows=10,s=-1",
        "zipf:rows=0,s=1",
        "zipf:rows=4294967295,s=1",
        "zipf:rows=10,s=1,n=0",
        "zipf:rows=10,s=1,n=5000000000",
        "zipf:rows=10,rows=10,s=1",
        "uniform:rows",
        "uniform:rows=ten",
        "meta2021:s=1",
        "meta2021:rows=4294967294",
    ] {
        let error = load(text, &Source::default()).unwrap_err();
        assert!(matches!(error, TraceError::Spec { .. }), "{text}: {error:?}");
        message(&error);
    }
}
