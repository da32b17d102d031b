//! Every trace format is written and read back, and every fault of a file is found.

use crate::common::command::{outcome, value};
use crate::common::{id_bytes, write};
use crate::golden;
use hotrow_report::trace::{CriteoFile, MAX_ID, Reading, Source, Trace, TraceError, load, load_as};
use npyz::WriterBuilder;
use std::fs;
use std::io::Write;
use tempfile::TempDir;

const IDS: [u32; 6] = [3, 0, 7, 3, MAX_ID, 65_536];
const BAGS: [u32; 4] = [0, 2, 2, 6];

/// The bytes of a file of this name, packed if it ends in .zst or .gz.
fn packed(name: &str, content: &[u8]) -> Vec<u8> {
    match name.rsplit('.').next() {
        Some("zst") => zstd::encode_all(content, 3).unwrap(),
        Some("gz") => {
            let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            packer.write_all(content).unwrap();
            packer.finish().unwrap()
        }
        _ => content.to_vec(),
    }
}

/// Writes a file that is packed as its name says.
fn pack(dir: &TempDir, name: &str, content: &[u8]) -> String {
    write(dir, name, &packed(name, content))
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
    for name in ["plain.u32", "packed.u32.zst", "other.u32.gz"] {
        let trace = read(&pack(&dir, name, &id_bytes(&IDS))).unwrap();
        assert_eq!((&trace.ids[..], trace.distinct, trace.offsets), (&IDS[..], 5, None));
        assert_eq!(trace.name, name.split('.').next().unwrap());
    }
    // Bags beside the ids.
    for (ids, offsets) in
        [("x.u32", "x.offsets.u32.zst"), ("y.u32.zst", "y.offsets.u32"), ("z.u32.gz", "z.offsets.u32.gz")]
    {
        let path = pack(&dir, ids, &id_bytes(&IDS));
        pack(&dir, offsets, &id_bytes(&BAGS));
        assert_eq!(read(&path).unwrap().offsets.unwrap(), BAGS);
    }
    let small = [3_u32, 0, 7];
    for path in [
        npy(&dir, "a.npy", &small, &[3]),
        npy(&dir, "b.npy", &small.map(|id| id as i32), &[3]),
        npy(&dir, "c.npy", &small.map(u64::from), &[3]),
        npy(&dir, "d.npy", &small.map(i64::from), &[3]),
        npy(&dir, "e.npy", &small.map(|id| id as u8), &[3]),
        npy(&dir, "f.npy", &small.map(|id| id as i8), &[3]),
        npy(&dir, "g.npy", &small.map(|id| id as u16), &[3]),
        npy(&dir, "h.npy", &small.map(|id| id as i16), &[3]),
    ] {
        assert_eq!(read(&path).unwrap().ids, small);
    }
    // A line is a bag.
    let trace = read(&write(&dir, "x.txt", b"3 0\r\n\n7,3, 4294967293\t65536")).unwrap();
    assert_eq!((&trace.ids[..], &trace.offsets.unwrap()[..]), (&IDS[..], &BAGS[..]));
}

/// Records of libCacheSim's oracleGeneral: a time, an id, a size, and the record that has the id next, or -1.
fn oracle(ids: &[u64]) -> Vec<u8> {
    let record = |(at, id): (usize, &u64)| {
        let next = ids[at + 1..].iter().position(|other| other == id).map_or(-1, |by| (at + 1 + by) as i64);
        [&(at as u32 / 2).to_le_bytes()[..], &id.to_le_bytes(), &7_u32.to_le_bytes(), &next.to_le_bytes()].concat()
    };
    ids.iter().enumerate().flat_map(record).collect()
}

#[test]
fn records_of_one_length_are_read() {
    let dir = TempDir::new().unwrap();
    let ids: Vec<u64> = (0..9000).map(|k| u64::MAX - k % 97).collect();
    let wanted: Vec<u32> = (0..9000).map(|k| k % 97).collect();
    let (records, words) = (oracle(&ids), ids.iter().flat_map(|id| id.to_le_bytes()).collect::<Vec<_>>());
    let names =
        "a.oracleGeneral b.oracleGeneral.bin c.oracleGeneral.zst d.oracleGeneral.bin.gz e.bin f g.zst h.u64 i.u64.gz";
    for name in names.split(' ') {
        let trace = read(&pack(&dir, name, if name.contains(".u64") { &words } else { &records })).unwrap();
        assert_eq!((&trace.ids, &trace.name[..], trace.numbered), (&wanted, &name[..1], true));
        let is_told = trace.notes.iter().any(|note| note.contains("taken as libCacheSim's oracleGeneral"));
        assert_eq!(is_told, ["e", "f", "g"].contains(&&name[..1]), "{:?}", trace.notes);
    }
    write(&dir, "h.offsets.u32", &id_bytes(&[0, 5, 9000]));
    assert_eq!(read(dir.path().join("h.u64").to_str().unwrap()).unwrap().offsets.unwrap(), [0, 5, 9000]);
    // The beginning of a longer trace; numbers count from 1 on in some.
    let trace = read(&write(&dir, "j.oracleGeneral", &records[..24 * 5000])).unwrap();
    assert!(
        trace.ids == wanted[..5000] && trace.notes.iter().any(|note| note.contains("is cut off, or part of a longer"))
    );
    // A small id is itself, and text of 24 bytes is text.
    assert_eq!(read(&write(&dir, "k.bin", &oracle(&[7, 9, 7]))).unwrap().ids, [7, 9, 7]);
    assert_eq!(read(&write(&dir, "l.bin", b"1 2 3 4 5 6 7 8 9 10 11\n")).unwrap().ids.len(), 11);
}

/// A log in which each kind of request has another number of fields, and the ids of its 5,000 requests.
fn requests() -> (String, Vec<u32>) {
    let tail = ["GET", "PUT", "HEAD", "DELETE"].into_iter().zip([" 4096 0 4095", " 4096", " 4096", ""]);
    let line = |(k, (kind, tail))| (format!("{} {kind} {}{tail}\n", 1_000_000 + k, k * k % 997), (k * k % 997) as u32);
    (0..5000).zip(tail.cycle()).map(line).unzip()
}

#[test]
fn lines_of_other_lengths() {
    let (log, ids) = requests();
    let read = |text: &str, by| column("x.log", text.as_bytes(), by);
    let trace = read(&log, Some("3"));
    assert_eq!((&trace.ids, &trace.offsets, &trace.notes[..]), (&ids, &None, &[][..]));
    let trace = read(&log, Some("4"));
    let note = "1250 of 5000 lines have no column 4 and are left out; the first is line 4";
    assert!(trace.ids == [4096; 3750] && trace.notes[0].ends_with(note), "{:?}", trace.notes);
    assert_eq!(read(&log, Some("6")).ids, [4095; 1250]);
    assert_eq!(read("DELETE 5\nGET 5 1\n", Some("3")).ids, [1], "beyond the first line's");
    // Words alone are bags, and so are words among which numbers are, lines of one length, and numbers.
    for text in ["a b c\nd e\n", "one 3 dogs\n4 cats ran\nhigh 5\n", "GET 1\nPUT 2\n", "1 2 3\n4\n"] {
        assert!(read(text, None).offsets.is_some(), "{text}");
    }
}

#[test]
fn comments_at_the_beginning_are_left_out() {
    for (text, by, wanted) in [
        ("# a 1\n#b\n\n # c\n7 8\n#9\n", None, &[0, 1, 2][..]),
        ("\u{feff}#made,by\r\nid,size\r\n7,1\r\n8,2\r\n", Some("id"), &[7, 8]),
    ] {
        let trace = column("x.txt", text.as_bytes(), by);
        assert_eq!(trace.ids, wanted, "{text}");
        assert!(trace.notes.iter().any(|note| note.contains("comments, ")), "{:?}", trace.notes);
    }
    let long = format!("{}7 8\n", "# x\n".repeat(2000));
    assert_eq!(column("x.txt", long.as_bytes(), None).ids, [7, 8]);
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
    for (name, format) in [("cut.zst", "zstd"), ("cut.gz", "gzip")] {
        let packed = packed(name, text.as_bytes());
        assert!(refused(name, &packed[..packed.len() / 2]).contains(&format!("wanted a complete {format} file")));
    }
    // A trace uses the categories alone.
    assert_eq!(read(&write(&dir, "day.tsv", line("", "x", "ab").as_bytes())).unwrap().ids.len(), 26);
}

/// The same lines from plain and packed files, with either line end, and without the last line end.
#[test]
fn criteo_files_in_every_form() {
    let dir = TempDir::new().unwrap();
    let counts = ["", "-2", "0", "7", "", "", "", "", "", "", "", "", "4294967296"].join("\t");
    let text = format!("1\t{counts}\tFF\t{}\tdeadbeef\n", "\t".repeat(23)).repeat(2);
    for (name, content, lines) in [
        ("plain.txt", text.clone().into_bytes(), 2),
        ("crlf.txt", text.replace('\n', "\r\n").into_bytes(), 2),
        ("no_end.txt", text.trim_end().as_bytes().to_vec(), 2),
        ("x.zst", packed("zst", text.as_bytes()), 2),
        ("two_members.gz", packed("gz", text.as_bytes()).repeat(2), 4),
        ("empty.txt", Vec::new(), 0),
    ] {
        let mut file = CriteoFile::open(write(&dir, name, &content).as_ref()).unwrap();
        let mut found = 0;
        while let Some(line) = file.next_line().unwrap() {
            assert!(line.label().unwrap());
            let counts = line.counts().unwrap();
            let found_counts = [0, 1, 2, 12].map(|at: usize| counts[at]);
            assert_eq!(found_counts, [None, Some(-2), Some(0), Some(1 << 32)], "{name}");
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
fn popular_ids_drift() {
    let of = |text: &str| load(text, &Source::default()).unwrap().ids;
    let (still, moved) = (of("zipf:rows=1000,s=1.2,n=5000"), of("drift:rows=1000,s=1.2,every=2000,n=5000"));
    let step = |at: usize| at as u32 / 2000 * 618;
    assert!(still.iter().zip(&moved).enumerate().all(|(at, (id, moved))| (id + step(at)) % 1000 == *moved));
    assert_ne!(still[2000..], moved[2000..]);
}

#[test]
fn refused_traces() {
    let dir = TempDir::new().unwrap();
    let whole = fs::read(npy(&dir, "whole.npy", &IDS, &[6])).unwrap();
    let text = String::from_utf8_lossy(&whole[10..128]).into_owned();
    let huge = text.replace("(6,)", "(4611686018427387904,4611686018427387904)");
    let zst = packed("zst", &id_bytes(&(0..10_000).collect::<Vec<_>>()));
    let line = |category: &str| criteo("1\t", "7", category, "0");
    let noise: Vec<u8> =
        (0..10_000_u32).flat_map(|k| format!("{}\n", k.wrapping_mul(0x9e37_79b9)).into_bytes()).collect();
    npy(&dir, "floats.npy", &[1.5_f32], &[1]);
    npy(&dir, "axes.npy", &IDS, &[2, 3]);
    for (name, content) in [
        ("cut.npy", whole[..whole.len() - 3].to_vec()),
        ("head.npy", whole[..20].to_vec()),
        ("huge.npy", [&whole[..10], huge.as_bytes()].concat()),
        // Found by the fuzz targets: a shape under another spelling, brackets in brackets, and a header of 4 GiB.
        ("quoted.npy", [&whole[..10], huge.replace('\'', "\"").as_bytes()].concat()),
        ("brackets.npy", [&b"\x93NUMPY\x01\0\0\x0f"[..], &[b'('; 0x0f00]].concat()),
        ("header.npy", [&b"\x93NUMPY\x02\0\xff\xff\xff\xff"[..], text.as_bytes()].concat()),
        ("late.csv", [&b"1,a\n".repeat(1 << 15)[..], b"1,a\0\n"].concat()),
        ("cut.bin", oracle(&[5; 2000])[..24 * 1500 + 5].to_vec()),
        ("requests.log", requests().0.into_bytes()),
        ("comments.txt", b"# x\n".repeat(1 << 15)),
        ("cut.csv.gz", packed("gz", &noise)[..500].to_vec()),
        ("one.txt.gz", packed("gz", &vec![b'1'; 64 << 20])),
        ("behind.txt.gz", [&packed("gz", b"1\n")[..], b"no gzip behind its end"].concat()),
        ("few.txt.gz", [&packed("gz", b"1\n")[..], b"few"].concat()),
        ("long.npy", [&b"\x93NUMPY\x01\0\xff\xff"[..], &[b' '; 5000]].concat()),
        // Tables.
        ("endless.csv", vec![b'x'; 2 << 20]),
        ("less.tsv", (line("ab") + &line("ab").replacen("\t7", "", 2)).into_bytes()),
        ("more.tsv", line("ab").replace('\n', "\t0\n").into_bytes()),
        ("blank.tsv", (line("ab") + "\n").into_bytes()),
        ("nine.tsv", line("123456789").into_bytes()),
        ("sign.tsv", line("+1").into_bytes()),
        ("cut.u32.zst", zst[..zst.len() / 2].to_vec()),
        // A few hundred bytes must not fill the memory.
        ("full.u32.zst", packed("zst", &vec![0; 64 << 20])),
    ] {
        write(&dir, name, &content);
    }
    fs::create_dir(dir.path().join("folder")).unwrap();
    golden::refused("traces", dir.path());
    assert_eq!(read(&pack(&dir, "zeros.u32.zst", &vec![0; 4 << 20])).unwrap().ids.len(), 1 << 20);
}

/// The ids in a column of a file of this name and text.
fn column(name: &str, text: &[u8], column: Option<&str>) -> Trace {
    let dir = TempDir::new().unwrap();
    load_as(&write(&dir, name, text), &Source::default(), &Reading { column, ..Reading::default() }).unwrap()
}

/// One table as people write it: the ids 7, 8, 7 in the second of three columns, and 1, 2, 3 in the third.
#[test]
fn a_column_of_a_table_in_every_spelling() {
    let plain = "time,id,size\n0.5,7,1\n0.5,8,2\n1.5,7,3\n";
    let headless = plain.split_once('\n').unwrap().1;
    for (name, text, by) in [
        ("x.csv", plain.to_owned(), "id"),
        ("x.csv", plain.to_owned(), "2"),
        ("x.csv", headless.to_owned(), "2"),
        ("x.txt", headless.to_owned(), "2"),
        ("x.log", plain.replace(',', " ").replace(" 8", " \t8"), "id"),
        ("x.csv", plain.replace(',', ";").replace('.', ","), "id"),
        ("x.csv", plain.replace(',', "|"), "id"),
        ("x.csv", plain.replace(',', " "), "id"),
        ("x.tsv", plain.replace(',', "\t"), "id"),
        ("x.csv", plain.replace(',', " , "), "id"),
        ("x.csv", plain.replace('\n', "\r\n"), "id"),
        ("x.csv", format!("\u{feff}{plain}\n  \n"), "id"),
        ("x.csv", plain.trim_end().to_owned(), "id"),
        ("x.csv", plain.replace("0.5", "\"a, \"\"b\"\"\"").replace("time", "\"time, of day\""), "id"),
        ("x.csv", plain.replace('7', "\"7\"").replace("id", "\"id\""), "id"),
        ("x.csv", plain.replace("1.5", "").replace("0.5", "no"), "id"),
        ("x.csv", plain.replace(",7,", ",7.0,").replace(",8,", ",8.,"), "id"),
    ] {
        let trace = column(name, text.as_bytes(), Some(by));
        assert_eq!((&trace.ids[..], trace.offsets, trace.numbered), (&[7, 8, 7][..], None, false), "{text}");
        // Another column is noticed.
        assert_eq!(column(name, text.as_bytes(), Some("3")).ids, [1, 2, 3], "{text}");
    }
    // A column alone needs no name, with a header or not, and packed.
    for text in ["id\n7\n8\n7\n", "7\n8\n7\n", "\"id\"\n\"7\"\n\"8\"\n\"7\"\n\n"] {
        for name in ["x.csv", "x.csv.gz", "x.tsv.zst"] {
            assert_eq!(column(name, &packed(name, text.as_bytes()), None).ids, [7, 8, 7], "{text}");
        }
    }
    assert_eq!(column("x.dat", b"1::7::3\n2::8::4\n", Some("2")).ids, [7, 8]);
    assert_eq!(column("x.csv", b"name\nnull\nab\n1.5\nnull\n", None).ids, [0, 1, 2, 3, 1], "among words");
    // What is packed under another name is known by its first bytes; numbers may have any.
    assert_eq!(
        column("x.csv", &packed("gz", b"7\n8\n"), None).ids,
        column("x.txt.gz", &packed("zst", b"7\n8\n"), None).ids
    );
    assert_eq!(column("x.u32", b"\x1f\x8b\x08\0", None).ids, [0x0008_8b1f]);
    assert_eq!(column("x.csv", b"city\nNew York\nLos Angeles\nNew York\n", None).ids, [0, 1, 2, 1], "one column");
    assert_eq!(column("x.txt", b"id\n7\n8\n", None).ids, [7, 8], "a heading");
    assert_eq!(column("x.csv", b"user,item\nab,cd\n", Some("item")).ids, [0], "a name makes a header");
}

#[test]
fn other_ids_than_small_numbers_are_numbered_by_first_appearance() {
    let dir = TempDir::new().unwrap();
    let most = (u64::from(MAX_ID) + 1).to_string();
    for (text, wanted) in [
        (format!("5\n{most}\n5\n"), vec![0, 1, 0]),
        ("b a\nb c\n".to_owned(), vec![0, 1, 0, 2]),
        (
            "9223372036854775807,-3,7,-3,18446744073709551615,99999999999999999999,7".to_owned(),
            vec![0, 1, 2, 1, 3, 4, 2],
        ),
        ("3 1.5 é 3 1.5".to_owned(), vec![0, 1, 2, 0, 1]),
    ] {
        let trace = read(&write(&dir, "x.txt", text.as_bytes())).unwrap();
        assert_eq!((&trace.ids, trace.numbered), (&wanted, true), "{text}");
        let note = format!(": {} distinct ids, text or numbers", trace.distinct);
        assert!(trace.notes[0].contains(&note), "{:?}", trace.notes);
    }
    let small = [npy(&dir, "c.npy", &[1_i8, -5, 1], &[3]), npy(&dir, "d.npy", &[1_i16, -5, 1], &[3])];
    let wide = [npy(&dir, "a.npy", &[1_i64, -5, 1], &[3]), npy(&dir, "b.npy", &[1, u64::MAX, 1], &[3])];
    for path in small.into_iter().chain(wide) {
        let trace = read(&path).unwrap();
        assert_eq!((&trace.ids[..], trace.distinct, trace.numbered), (&[0, 1, 0][..], 2, true));
    }
    // Small numbers stay as they are.
    assert!(!read(&write(&dir, "y.txt", format!("5\n{MAX_ID}").as_bytes())).unwrap().numbered);
    // The command says so in one line, and how much memory that takes; less is refused.
    let texts: String = (0..2000).map(|k| format!("user-{}\n", k % 1000)).collect();
    let path = write(&dir, "users.csv", texts.as_bytes());
    let (_, stderr) = outcome(&["simulate", "--trace", &path], 0);
    let wanted = format!(
        "note: {path}: 1000 distinct ids, text or numbers of more than 32 bits (the first is \"user-0\" in line 1), are numbered by first appearance, in "
    );
    assert!(stderr.starts_with(&wanted) && stderr.lines().count() == 1, "{stderr}");
    let (_, stderr) = outcome(&["simulate", "--trace", &path, "--memory", "10KiB"], 1);
    assert!(stderr.contains("wanted at most 10.0 KiB to number its ids (--memory), found "), "{stderr}");
    // The rows of a table have their own numbers.
    let rows = npy(&dir, "rows.npy", &[0.5_f32; 4000], &[1000, 4]);
    let (_, stderr) = outcome(&["plan", "robe", &rows, "--trace", &path], 2);
    assert!(stderr.contains("wanted ids that are rows of"), "{stderr}");
}

/// The names that Criteo gives, a test set, and a copy of another name.
#[test]
fn click_logs_are_known_by_their_shape() {
    let dir = TempDir::new().unwrap();
    let line = |label: &str, first: &str| criteo(label, "-2", first, "00ffffff");
    let text = line("1\t", "ab") + &line("0\t", "");
    let wanted = read(&write(&dir, "day.tsv", text.as_bytes())).unwrap();
    assert_eq!((wanted.ids.len(), wanted.offsets.as_deref()), (52, Some(&[0, 26, 52][..])));
    assert!((0..52).all(|at| usize::from(wanted.tables.as_ref().unwrap()[at]) == at % 26));
    let test = line("", "ab") + &line("", "");
    let named = ["train.txt", "day_0", "day_1.gz"].map(|name| (name, &text));
    for (name, text) in named.into_iter().chain(["test.txt", "clicks.csv.zst"].map(|name| (name, &test))) {
        let trace = read(&pack(&dir, name, text.as_bytes())).unwrap();
        let [found, wanted] = [&trace, &wanted].map(|trace| (&trace.ids, &trace.offsets, &trace.tables));
        assert_eq!(found, wanted, "{name}");
    }
    // Bags of 40 decimal ids are bags.
    let bags = ["7"; 40].join("\t") + "\n";
    let trace = read(&write(&dir, "bags.txt", bags.repeat(2).as_bytes())).unwrap();
    assert_eq!((trace.ids, trace.tables, trace.offsets.unwrap().len()), (vec![7; 80], None, 3));
    assert!(trace.notes[0].contains("every line is taken as a bag of 40 ids"), "{:?}", trace.notes);
}

/// With room for all rows, a table misses its distinct rows and nothing else.
#[test]
fn hits_of_each_table() {
    let dir = TempDir::new().unwrap();
    let ids: Vec<u32> = (0..6000).map(|k| k * k % 97 + 100 * (k % 3)).collect();
    let tables: Vec<u8> = (0..6000).map(|k| [2, 5, 200][k % 3]).collect();
    let path = write(&dir, "x.u32", &id_bytes(&ids));
    let found = |tables: &[u8]| {
        pack(&dir, "x.table.u8.gz", tables);
        let found = value(&["simulate", "--trace", &path, "--cache-percent", "100", "--ways", "0", "--batch", "1"]);
        let tables = found[0]["tables"].clone();
        let hits = tables.as_array().unwrap().iter().map(|table| table["hits"].as_u64().unwrap());
        assert_eq!(hits.sum::<u64>(), found[0]["hits"]);
        tables
    };
    let of = |tables: &[u8]| -> Vec<serde_json::Value> {
        let mut names = tables.to_vec();
        names.sort_unstable();
        names.dedup();
        let each = names.into_iter().map(|name| {
            let ids: Vec<u32> = ids.iter().zip(tables).filter(|(_, table)| **table == name).map(|(&id, _)| id).collect();
            let hits = ids.len() - ids.iter().collect::<std::collections::HashSet<_>>().len();
            serde_json::json!({ "table": name, "accesses": ids.len(), "hits": hits, "hit_rate": hits as f64 / ids.len() as f64 })
        });
        each.collect()
    };
    assert_eq!(found(&tables), serde_json::Value::from(of(&tables)));
    // Tables that share ids: each pair is a row, so both miss it once.
    let shared: Vec<u8> = (0..6000).map(|k| (k / 3 % 2) as u8).collect();
    assert_eq!(found(&shared), serde_json::Value::from(of(&shared)));
    assert_ne!(of(&tables), of(&shared));
    let (stdout, stderr) = outcome(&["simulate", "--trace", &path, "--policy", "lru"], 0);
    assert!(stdout.contains("| table of x | accesses | lru 32 ways 1 % | lru 32 ways 5 % |"), "{stdout}");
    assert!(stderr.contains("pairs of a table and an id since tables share ids, are numbered"), "{stderr}");
    // Real tables: the largest of 30 has 48 % of the accesses.
    let Some(trace) = crate::common::trace("cache2k_orm_busy") else { return };
    let tables = trace.tables.unwrap();
    let mut counts = [0; 256];
    tables.iter().for_each(|&table| counts[usize::from(table)] += 1);
    assert_eq!((trace.numbered, counts.iter().filter(|&&count| count > 0).count()), (false, 30));
    assert!((0.475..0.485).contains(&(f64::from(counts[17]) / tables.len() as f64)), "{counts:?}");
}

#[test]
fn bare_names_are_looked_up_in_the_data_folder() {
    let dir = TempDir::new().unwrap();
    pack(&dir, "some_trace.u32.zst", &id_bytes(&IDS));
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
