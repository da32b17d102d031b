//! Every trace format is written and read back, and every fault of a file is found.

use crate::common::{id_bytes, write};
use crate::golden;
use hotrow_cli::trace::{CriteoFile, MAX_ID, Source, Trace, TraceError, load};
use npyz::WriterBuilder;
use std::fs;
use std::io::Write;
use tempfile::TempDir;

const IDS: [u32; 6] = [3, 0, 7, 3, MAX_ID, 65_536];
const BAGS: [u32; 4] = [0, 2, 2, 6];

fn packed(words: &[u32]) -> Vec<u8> {
    zstd::encode_all(&id_bytes(words)[..], 3).unwrap()
}

fn read(path: &str) -> Result<Trace, TraceError> {
    load(path, &Source::default())
}

fn npy<T: npyz::AutoSerialize + Copy>(dir: &TempDir, name: &str, values: &[T], shape: &[u64]) -> String {
    let mut content = Vec::new();
    let mut writer = npyz::WriteOptions::new().default_dtype().shape(shape).writer(&mut content).begin_nd().unwrap();
    writer.extend(values).unwrap();
    writer.finish().unwrap();
    write(dir, name, &content)
}

#[test]
fn every_format_is_read() {
    let dir = TempDir::new().unwrap();
    let content = |name: &str, words: &[u32]| if name.ends_with("zst") { packed(words) } else { id_bytes(words) };
    for name in ["plain.u32", "packed.u32.zst"] {
        let trace = read(&write(&dir, name, &content(name, &IDS))).unwrap();
        assert_eq!((&trace.ids[..], trace.distinct, trace.offsets), (&IDS[..], 5, None));
        assert_eq!(trace.name, name.split('.').next().unwrap());
    }
    // Bags beside the ids.
    for (ids, offsets) in [("x.u32", "x.offsets.u32.zst"), ("y.u32.zst", "y.offsets.u32")] {
        let path = write(&dir, ids, &content(ids, &IDS));
        write(&dir, offsets, &content(offsets, &BAGS));
        assert_eq!(read(&path).unwrap().offsets.unwrap(), BAGS);
    }
    let small = [3_u32, 0, 7];
    for path in [
        npy(&dir, "a.npy", &small, &[3]),
        npy(&dir, "b.npy", &small.map(|id| id as i32), &[3]),
        npy(&dir, "c.npy", &small.map(u64::from), &[3]),
        npy(&dir, "d.npy", &small.map(i64::from), &[3]),
    ] {
        assert_eq!(read(&path).unwrap().ids, small);
    }
    // A line is a bag.
    let trace = read(&write(&dir, "x.txt", b"3 0\r\n\n7,3, 4294967293\t65536")).unwrap();
    assert_eq!((&trace.ids[..], &trace.offsets.unwrap()[..]), (&IDS[..], &BAGS[..]));
}

/// A line of Criteo: a label with its tab, 13 counts, the two given categories, and 24 categories of zero.
fn criteo(label: &str, count: &str, first: &str, second: &str) -> String {
    format!("{label}{count}{}\t{first}\t{second}{}\n", "\t7".repeat(12), "\t0".repeat(24))
}

#[test]
fn criteo_lines_are_bags_of_26() {
    let dir = TempDir::new().unwrap();
    let lines =
        [criteo("1\t", "7", "ab", ""), criteo("", "7", "ab", "ab"), criteo("0\t", "7", "", "ffffffff")].concat();
    let trace = read(&write(&dir, "day.tsv", lines.as_bytes())).unwrap();
    assert_eq!(trace.offsets.unwrap(), [0, 26, 52, 78]);
    assert_eq!(&trace.ids[..4], [0, 1, 2, 3], "by first appearance");
    assert_eq!(&trace.ids[26..29], [0, 26, 2], "equal digits in another field are another row");
    assert_eq!(&trace.ids[52..55], [27, 28, 2], "an empty category is a value");
    assert_eq!(trace.distinct, 29);
}

/// Bad labels, counts and categories, and the text that the message must contain.
#[test]
fn criteo_refusals() {
    let dir = TempDir::new().unwrap();
    let line = |label: &str, count: &str, category: &str| criteo(&format!("{label}\t"), count, category, "0");
    let good = line("1", "-2", "ab");
    let refused = |name: &str, content: &[u8]| {
        let mut file = CriteoFile::open(write(&dir, name, content).as_ref()).unwrap();
        loop {
            let done = file.next_line().and_then(|line| {
                let Some(line) = line else { return Ok(None) };
                Ok(Some((line.label()?, line.counts()?, line.categories()?)))
            });
            match done {
                Ok(Some(_)) => {}
                Ok(None) => panic!("{name} was accepted"),
                Err(error) => return error.to_string(),
            }
        }
    };
    for (name, content, found) in [
        ("hex", good.clone() + &line("1", "", "xyz"), "category 1 of 26, found \"xyz\" in line 2"),
        ("half", line("1", "1.5", "a"), "count 1 of 13, found \"1.5\" in line 1"),
        ("huge", line("1", "99999999999999999999", "a"), "99999999999999999999"),
        ("two", line("2", "", "a"), "a label of 0 or 1, found \"2\" in line 1"),
        ("none", line("", "", "a"), "a label of 0 or 1, found \"\" in line 1"),
        ("test file", good.replacen("1\t", "", 1), "no label"),
    ] {
        let error = refused(name, content.as_bytes());
        assert!(error.contains(found), "{name}: {error}");
    }
    let text = good.repeat(1000);
    let packed = zstd::encode_all(text.as_bytes(), 3).unwrap();
    assert!(refused("cut.zst", &packed[..packed.len() / 2]).contains("wanted a complete zstd file"));
    let packed = gzip(text.as_bytes());
    assert!(refused("cut.gz", &packed[..packed.len() / 2]).contains("wanted a complete gzip file"));
    // A trace uses the categories alone.
    assert_eq!(read(&write(&dir, "day.tsv", line("", "x", "ab").as_bytes())).unwrap().ids.len(), 26);
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
        let mut file = CriteoFile::open(write(&dir, name, &content).as_ref()).unwrap();
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
    assert!(missing.to_string().contains("wanted a readable file"), "{missing}");
}

/// Every kind of damaged file, and wrong generated traces.
#[test]
fn refused_traces() {
    let dir = TempDir::new().unwrap();
    let whole = fs::read(npy(&dir, "whole.npy", &IDS, &[6])).unwrap();
    let text = String::from_utf8_lossy(&whole[10..128]).into_owned();
    let huge = text.replace("(6,)", "(4611686018427387904,4611686018427387904)");
    let zst = packed(&(0..10_000).collect::<Vec<_>>());
    let line = |category: &str| criteo("1\t", "7", category, "0");
    npy(&dir, "below.npy", &[1_i64, -5], &[2]);
    npy(&dir, "above.npy", &[i64::from(MAX_ID) + 1], &[1]);
    npy(&dir, "most.npy", &[u64::MAX], &[1]);
    npy(&dir, "floats.npy", &[1.5_f32], &[1]);
    npy(&dir, "axes.npy", &IDS, &[2, 3]);
    for (name, content) in [
        ("cut.npy", whole[..whole.len() - 3].to_vec()),
        ("head.npy", whole[..20].to_vec()),
        ("none.npy", b"no array".to_vec()),
        ("huge.npy", [&whole[..10], huge.as_bytes()].concat()),
        ("empty.npy", Vec::new()),
        // Found by the fuzz targets: a shape under another spelling, brackets in brackets, and a header of 4 GiB.
        ("quoted.npy", [&whole[..10], huge.replace('\'', "\"").as_bytes()].concat()),
        ("brackets.npy", [&b"\x93NUMPY\x01\0\0\x0f"[..], &[b'('; 0x0f00]].concat()),
        ("header.npy", [&b"\x93NUMPY\x02\0\xff\xff\xff\xff"[..], text.as_bytes()].concat()),
        ("word.txt", b"1\n2 x3\n".to_vec()),
        ("half.txt", b"1.5".to_vec()),
        ("bytes.txt", b"\xff\xfe\0".to_vec()),
        ("minus.txt", b"1 -2".to_vec()),
        ("large.txt", b"99999999999999999999".to_vec()),
        ("empty.txt", Vec::new()),
        ("packed.txt.zst", Vec::new()),
        ("few.tsv", b"1\t2\t3\n".to_vec()),
        ("less.tsv", (line("ab") + &line("ab").replacen("\t7", "", 2)).into_bytes()),
        ("more.tsv", line("ab").replace('\n', "\t0\n").into_bytes()),
        ("blank.tsv", (line("ab") + "\n").into_bytes()),
        ("endless.tsv", vec![b'x'; 1 << 20]),
        ("nine.tsv", line("123456789").into_bytes()),
        ("sign.tsv", line("+1").into_bytes()),
        ("empty.tsv", Vec::new()),
        ("cut.u32", id_bytes(&IDS)[..7].to_vec()),
        ("empty.u32", Vec::new()),
        ("large.u32", id_bytes(&[1, u32::MAX])),
        ("cut.u32.zst", zst[..zst.len() / 2].to_vec()),
        // A few hundred bytes must not fill the memory.
        ("full.u32.zst", zstd::encode_all(&vec![0; 64 << 20][..], 3).unwrap()),
        ("foreign.u32.zst", b"no zstd at all".to_vec()),
    ] {
        write(&dir, name, &content);
    }
    for (name, offsets) in
        [("first", &[1, 6][..]), ("turned", &[0, 4, 3, 6]), ("short", &[0, 5]), ("long", &[0, 7]), ("bare", &[])]
    {
        write(&dir, &format!("{name}.u32"), &id_bytes(&IDS));
        write(&dir, &format!("{name}.offsets.u32"), &id_bytes(offsets));
    }
    fs::create_dir(dir.path().join("folder")).unwrap();
    golden::refused("traces", dir.path());
    let zeros = zstd::encode_all(&vec![0; 4 << 20][..], 3).unwrap();
    assert_eq!(read(&write(&dir, "zeros.u32.zst", &zeros)).unwrap().ids.len(), 1 << 20);
}

#[test]
fn bare_names_are_looked_up_in_the_data_folder() {
    let dir = TempDir::new().unwrap();
    write(&dir, "some_trace.u32.zst", &packed(&IDS));
    let source = Source { data: Some(dir.path()), seed: 0 };
    assert_eq!(load("some_trace", &source).unwrap().ids, IDS);
    assert_eq!(load("some_trace.u32.zst", &source).unwrap().ids, IDS);
    assert!(load("other_trace", &source).unwrap_err().to_string().contains("no such file here or in "));
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
