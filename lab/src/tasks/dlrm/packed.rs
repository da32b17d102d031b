//! The packed form of a click log: 160 bytes a line, which batches read where they lie, so that no log is too large for the memory.
//!
//! A header (little-endian words of 32 bits) has the magic and the version, the lines, the line that begins the test set, the length of the log and the
//! time of its last change, whether the categories were hashed, the rows of the tables, a CRC-32 of all samples, and one of the header. A sample has
//! 40 words, as in DLRM's own binary: in the first the label is the lowest bit, and the others a checksum of the sample; then come 13 floats and 26
//! rows.

use super::criteo::{self, CriteoFile, Sample};
use anyhow::{Context as _, bail, ensure};
use hotrow_report::output;
use hotrow_report::trace::{CRITEO_CATEGORIES, CRITEO_COUNTS};
use std::fs::{self, File};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// The first words: a name, and a version behind it.
const MAGIC: [u32; 2] = [u32::from_le_bytes(*b"hotr"), u32::from_le_bytes(*b"owC\x01")];

/// Words of a sample.
const WORDS: usize = 1 + CRITEO_COUNTS + CRITEO_CATEGORIES;

/// Bytes of a sample.
const EACH: usize = 4 * WORDS;

/// Words of the header without its own checksum.
const HEAD: usize = 13 + CRITEO_CATEGORIES;

/// What the packed form was made of, and what it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Header {
    pub(super) lines: u64,
    /// The first line of the test set.
    pub(super) test: u64,
    /// Bytes of the log, and nanoseconds of its last change since 1970.
    log: [u64; 2],
    hashed: bool,
    pub(super) rows: [u32; CRITEO_CATEGORIES],
    /// A CRC-32 of all samples.
    pub(super) crc: u32,
}

impl Header {
    fn to_bytes(self) -> Vec<u8> {
        let numbers = [self.lines, self.test, self.log[0], self.log[1]];
        let halves = numbers.iter().flat_map(|number| [*number as u32, (number >> 32) as u32]);
        let words = MAGIC.into_iter().chain(halves).chain([self.hashed.into(), self.crc, 0]).chain(self.rows);
        let mut bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        bytes
    }

    /// The header of these bytes, of which [`to_bytes`](Self::to_bytes) makes the same; else what is wrong.
    fn of_bytes(bytes: &[u8; 4 * HEAD + 4]) -> Result<Self, &'static str> {
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| bytes[4 * at + byte]));
        let number = |at: usize| u64::from(word(at)) | u64::from(word(at + 1)) << 32;
        if [word(0), word(1)] != MAGIC {
            return Err("a file of another kind or version");
        }
        let rows = std::array::from_fn(|table| word(13 + table));
        let (lines, test, log) = (number(2), number(4), [number(6), number(8)]);
        let found = Self { lines, test, log, hashed: word(10) == 1, crc: word(11), rows };
        if found.to_bytes() == *bytes { Ok(found) } else { Err("a damaged header") }
    }

    fn bytes_of_file(&self) -> u64 {
        (4 * HEAD + 4) as u64 + self.lines * EACH as u64
    }
}

/// The checksum and the label in one word.
fn first_word(sample: &[u8], label: u32) -> u32 {
    let mut crc = crc32fast::Hasher::new_with_initial(label);
    crc.update(sample);
    crc.finalize() & !1 | label
}

fn to_bytes(sample: &Sample) -> [u8; EACH] {
    let mut bytes = [0; EACH];
    let words = sample.dense.into_iter().map(f32::to_bits).chain(sample.rows);
    bytes[4..].as_chunks_mut().0.iter_mut().zip(words).for_each(|(bytes, word)| *bytes = word.to_le_bytes());
    let first = first_word(&bytes[4..], sample.label.into());
    bytes[..4].copy_from_slice(&first.to_le_bytes());
    bytes
}

#[derive(Debug)]
pub(super) struct Packed {
    file: File,
    place: PathBuf,
    pub(super) header: Header,
}

impl Packed {
    /// The packed form of a log, from its file if that is there and of this log, else written now. `hashed` has the rows of the tables if
    /// categories are hashed; else every category has a row.
    pub(super) fn open(
        log: &Path,
        place: Option<&Path>,
        hashed: Option<&[u32; CRITEO_CATEGORIES]>,
    ) -> anyhow::Result<Self> {
        let ending = if hashed.is_some() { ".hashed" } else { ".packed" };
        let mut beside = log.as_os_str().to_owned();
        beside.push(ending);
        let place = place.map_or_else(|| PathBuf::from(beside), Path::to_owned);
        drop(CriteoFile::open(log)?);
        let meta = fs::metadata(log)?;
        let changed = meta.modified()?.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        let log_now = [meta.len(), changed];
        let is_of = |found: &Self| {
            let header = &found.header;
            header.log == log_now && header.hashed == hashed.is_some() && hashed.is_none_or(|rows| *rows == header.rows)
        };
        match Self::read(&place)? {
            Some(found) if is_of(&found) => return Ok(found),
            Some(_) => output::note(&format!("{}: of another log or other tables, written again", place.display())),
            None => {}
        }
        let (name, lines) = (place.display(), criteo::lines(log)?);
        let bytes = |bytes: u64| hotrow_report::units::bytes(bytes as f64);
        let mut header = Header { lines, log: log_now, hashed: hashed.is_some(), ..Header::default() };
        header.test = criteo::test_begins(log, lines)?;
        let memory = match hashed {
            Some(_) => "categories are hashed".to_owned(),
            None => format!(
                "categories are numbered: at most {} of memory, {} for each different one",
                bytes(lines.saturating_mul(CRITEO_CATEGORIES as u64 * criteo::BYTES)),
                bytes(criteo::BYTES)
            ),
        };
        output::note(&format!(
            "{name}: {} for {lines} lines of {}; {memory}",
            bytes(header.bytes_of_file()),
            log.display()
        ));
        let mut crc = crc32fast::Hasher::new();
        output::replace(&place, |to| {
            to.write_all(&header.to_bytes())?;
            header.rows = criteo::samples(log, hashed, |sample| {
                let bytes = to_bytes(&sample);
                crc.update(&bytes);
                Ok(to.write_all(&bytes)?)
            })?;
            header.crc = std::mem::take(&mut crc).finalize();
            to.seek(SeekFrom::Start(0))?;
            Ok(to.write_all(&header.to_bytes())?)
        })
        .map_err(|failure| anyhow::anyhow!("{failure}"))?;
        Self::read(&place)?
            .with_context(|| format!("{name}: wanted the packed log, found none; is it removed by another?"))
    }

    /// The packed log in a file; `None` if there is no file.
    fn read(place: &Path) -> anyhow::Result<Option<Self>> {
        let file = match File::open(place) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => bail!("{}: wanted a readable packed log, found: {error}", place.display()),
        };
        let (length, mut head) = (file.metadata()?.len(), [0; 4 * HEAD + 4]);
        let header = match length < head.len() as u64 {
            true => Err("a file without its header"),
            false => {
                read_exact_at(&file, &mut head, 0).map_or(Err("an unreadable header"), |()| Header::of_bytes(&head))
            }
        };
        let name = place.display();
        let header = header.map_err(|found| {
            anyhow::anyhow!(
                "{name}: wanted a packed click log, found {found}; remove it, or name another with packed=FILE"
            )
        })?;
        let wanted = header.bytes_of_file();
        ensure!(
            length == wanted,
            "{name}: wanted {wanted} bytes for {} lines, found {length}; remove it",
            header.lines
        );
        Ok(Some(Self { file, place: place.to_owned(), header }))
    }

    pub(super) fn samples(&self, lines: impl Iterator<Item = u64>) -> anyhow::Result<Vec<Sample>> {
        let mut bytes = [0; EACH];
        let one = |line: u64| {
            let at = (4 * HEAD + 4) as u64 + line * EACH as u64;
            let found = read_exact_at(&self.file, &mut bytes, at).map_err(|error| error.to_string());
            found.and_then(|()| self.sample(&bytes)).map_err(|found| {
                let name = self.place.display();
                anyhow::anyhow!("{name}: wanted sample {line}, found {found}; remove the file, and it is written again")
            })
        };
        lines.map(one).collect()
    }

    fn sample(&self, bytes: &[u8; EACH]) -> Result<Sample, String> {
        let words: [u32; WORDS] =
            std::array::from_fn(|at| u32::from_le_bytes(std::array::from_fn(|i| bytes[4 * at + i])));
        let label = words[0] & 1;
        if first_word(&bytes[4..], label) != words[0] {
            return Err("damaged bytes".to_owned());
        }
        let dense = std::array::from_fn(|count| f32::from_bits(words[1 + count]));
        Ok(Sample { dense, rows: std::array::from_fn(|table| words[1 + CRITEO_COUNTS + table]), label: label == 1 })
    }
}

#[cfg(unix)]
fn read_exact_at(file: &File, out: &mut [u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, out, at)
}

/// Elsewhere by a handle of its own, since threads share the place of one.
#[cfg(not(unix))]
fn read_exact_at(file: &File, out: &mut [u8], at: u64) -> io::Result<()> {
    use std::io::Read as _;
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    (&mut &*file).seek(SeekFrom::Start(at))?;
    (&mut &*file).read_exact(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoints::Keep;
    use crate::device::Device;
    use crate::end::End;
    use crate::hyper::Hyper;
    use crate::order::Mixed;
    use crate::run::{self, RunOptions};
    use crate::setting::Setting;
    use crate::task::Task as _;
    use crate::tasks::dlrm::{planted, tests::open};
    use std::collections::HashSet;

    /// 1,000 samples as lines of Criteo's log, as the fixture has them. A count of 0 stays 0, is missing, or is negative, and row 0 is a missing
    /// category in every other field; the other rows of a table become 32 bits of their own each.
    fn planted_lines() -> (Vec<Sample>, String) {
        let rows = std::array::from_fn(|table| [9, 300, 5000][table % 3]);
        let set = planted::generate(&rows, [858, 142], planted::Law { drift: None, large_share: 0.5 }, 44).unwrap();
        let samples = [set.train, set.test].concat();
        let line = |(at, sample): (usize, &Sample)| {
            let zero = |at: usize| ["0", "", "-1", "-3"][at % 4].to_owned();
            let count = |(i, &value): (usize, &f32)| {
                if value == 0.0 { zero(at + i) } else { value.exp_m1().round().to_string() }
            };
            let category = |(table, &row): (usize, &u32)| match row {
                0 if table % 2 == 0 => String::new(),
                row => format!("{:08x}", hotrow_report::fmix32((table as u32) << 16 | row)),
            };
            let counts = sample.dense.iter().enumerate().map(count);
            let fields: Vec<String> = counts.chain(sample.rows.iter().enumerate().map(category)).collect();
            format!("{}\t{}\n", u8::from(sample.label), fields.join("\t"))
        };
        let text = samples.iter().enumerate().map(line).collect();
        (samples, text)
    }

    /// The fixture is what `planted_lines` writes, then `gzip -9n`. Every field of every line is compared.
    #[test]
    fn a_log_of_criteos_format_is_read_whole() {
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/criteo-1000.txt.gz");
        let (folder, (wanted, text)) = (tempfile::tempdir().unwrap(), planted_lines());
        let [place, written] = ["packed", "log"].map(|name| folder.path().join(name));
        fs::write(&written, text).unwrap();
        let packed = Packed::open(&fixture, Some(&place), None).unwrap();
        let header = packed.header;
        assert_eq!(Packed::open(&written, None, None).unwrap().header.crc, header.crc);
        assert_eq!((header.lines, header.test), (1000, 858), "the last 142 lines are the last seventh");
        let found = packed.samples(0..1000).unwrap();
        let close = |(found, wanted): (&f32, &f32)| (found - wanted).abs() < 1e-6;
        for (at, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
            assert_eq!(found.label, wanted.label, "line {at}");
            assert!(found.dense.iter().zip(&wanted.dense).all(close), "line {at}: {found:?} {wanted:?}");
        }
        for table in 0..CRITEO_CATEGORIES {
            // One row for each category, numbered as they come, and 0 for the missing ones.
            let pairs: HashSet<[u32; 2]> =
                found.iter().zip(&wanted).map(|(a, b)| [a.rows[table], b.rows[table]]).collect();
            let of = |side: usize| pairs.iter().map(|pair| pair[side]).collect::<HashSet<u32>>().len();
            assert_eq!((of(0), of(1)), (pairs.len(), pairs.len()), "C{}: one to one", table + 1);
            let mut next = 1;
            found.iter().for_each(|sample| next += u32::from(sample.rows[table] == next));
            assert_eq!(header.rows[table], next, "C{}", table + 1);
            let missing = |samples: &[Sample]| samples.iter().filter(|sample| sample.rows[table] == 0).count();
            assert_eq!(missing(&found), if table % 2 == 0 { missing(&wanted) } else { 0 });
        }
        // Some categories are in the test set alone.
        let most = |samples: &[Sample]| samples.iter().map(|sample| sample.rows[2]).max().unwrap();
        assert!(most(&found[..858]) + 1 < header.rows[2], "{}", header.rows[2]);
        // It trains.
        let task = open(&format!("criteo={} packed={}", fixture.display(), place.display())).unwrap();
        assert!(task.about().source.contains(" tables of ") && task.about().source.contains("Table 1 has 33762591"));
        assert_eq!(
            (task.mixed(), task.about().train, task.about().tables[2].rows),
            (Mixed::Blocks, 858, header.rows[2])
        );
        let train = |end| {
            let options =
                RunOptions { hyper: Hyper::adagrad(16, 32, 0.05), end, limit: None, device: Device::default() };
            run::run(&task, &[Setting::FP32; 26], 1, &options, &Keep::default(), &|_| {}, None).unwrap()
        };
        let (first, last) = (train(End::Steps(1)), train(End::Epochs(4)));
        assert!(last.steps == 108 && last.train_loss < first.train_loss - 0.1, "{first:?} {last:?}");
    }

    /// A line with `count` as its first count and `category` as its first and last category.
    fn line(label: &str, count: &str, category: &str) -> String {
        format!("{label}\t{count}{}\t{category}{}\t{category}\n", "\t7".repeat(12), "\t".repeat(24))
    }

    #[test]
    fn lines_become_samples() {
        let folder = tempfile::tempdir().unwrap();
        let [log, other] = ["day.txt", "other"].map(|name| folder.path().join(name));
        let mut rows = [5; CRITEO_CATEGORIES];
        rows[25] = 5000;
        let text: String =
            (0..15).map(|i| line(&(i % 2).to_string(), &(i - 1).to_string(), &format!("{i:x}"))).collect();
        let dense = |count: i32| (f64::from(count.max(0))).ln_1p() as f32;
        for text in [text.clone(), text.replace('\n', "\r\n"), text.trim_end().to_owned()] {
            fs::write(&log, text).unwrap();
            let hashed = Packed::open(&log, None, Some(&rows)).unwrap();
            let samples = hashed.samples(0..15).unwrap();
            assert_eq!(
                (hashed.header.test, hashed.header.rows, samples[14].label, samples[1].label),
                (13, rows, false, true)
            );
            assert!(samples.iter().zip(-1..).all(|(sample, count)| sample.dense[..2] == [dense(count), dense(7)]));
            // A missing category is row 0; four others have rows of their own, further ones share them. A large table hashes.
            let hash = |i: u32, rows: u32| 1 + hotrow_report::fmix32(i) % (rows - 1);
            assert_eq!(samples[0].rows[1..25], [0; 24]);
            let first: Vec<u32> = samples[..6].iter().map(|sample| sample.rows[0]).collect();
            assert_eq!(first, [1, 2, 3, 4, hash(4, 5), hash(5, 5)]);
            assert_eq!(samples[14].rows[25], hash(14, 5000));
            let numbered = Packed::open(&log, None, None).unwrap();
            assert_eq!((numbered.header.rows[0], numbered.header.rows[1]), (16, 1));
            assert!(numbered.samples(0..15).unwrap().iter().zip(1..).all(|(sample, row)| sample.rows[25] == row));
        }
        // What is there is taken as it is; of another log, or of other tables, it is written again.
        let place = folder.path().join("day.txt.packed");
        let time = |place: &Path| fs::metadata(place).unwrap().modified().unwrap();
        let (before, again) = (time(&place), Packed::open(&log, None, None).unwrap());
        assert!(Packed::open(&log, None, Some(&rows)).unwrap().header.hashed && time(&place) == before);
        fs::write(&log, text.replace("\t7", "\t8")).unwrap();
        let changed = Packed::open(&log, None, None).unwrap();
        assert!(changed.header.crc != again.header.crc && changed.samples(0..1).unwrap()[0].dense[1] == dense(8));
        rows[0] = 6;
        assert_eq!(Packed::open(&log, None, Some(&rows)).unwrap().header.rows, rows);
        // Files that are cut, foreign or damaged are refused, and no other is written over them.
        let good = fs::read(&place).unwrap();
        let with = |at: usize| [&good[..at], &[good[at] ^ 1], &good[at + 1..]].concat();
        for (bytes, wanted) in [
            (good[..good.len() - 1].to_vec(), "wanted 2560 bytes for 15 lines, found 2559; remove it"),
            (good[..20].to_vec(), "found a file without its header"),
            (with(7), "found a file of another kind or version; remove it, or name another with packed=FILE"),
            (with(60), "found a damaged header"),
            (b"a shopping list".repeat(20), "found a file of another kind"),
            (with(160 + 160 * 3), "wanted sample 3, found damaged bytes; remove the file, and it is written again"),
            (with(160 + 160 * 3 + 159), "wanted sample 3, found damaged bytes"),
        ] {
            fs::write(&other, &bytes).unwrap();
            let found = Packed::open(&log, Some(&other), None).and_then(|packed| packed.samples(0..15));
            let error = format!("{:#}", found.unwrap_err());
            let names = error.starts_with(&format!("{}: wanted ", other.display()));
            assert!(names && error.contains(wanted), "{wanted}: {error}");
            assert_eq!(fs::read(&other).unwrap(), bytes);
        }
        fs::write(&other, &good).unwrap();
        assert_eq!(Packed::open(&log, Some(&other), None).unwrap().samples(0..15).unwrap().len(), 15);
        fs::write(&log, line("1", "", "ab").repeat(6)).unwrap();
        let error = format!("{:#}", Packed::open(&log, None, None).unwrap_err());
        assert!(error.contains("day.txt: wanted at least 7 lines") && fs::read(&place).unwrap() == good, "{error}");
    }
}
