//! The header of a table file: the shape of the table, and its progress.

use bytemuck::{Pod, Zeroable};

use crate::{
    config::{GroupConfig, OptimizerKind, Precision},
    error::Error,
    table::layout::Layout,
};

/// Byte at which the records begin: a page, so that they are aligned whatever their length.
pub(crate) const PAGE: u64 = 4096;
/// Bytes of the header. It lies within one sector, which a disk writes as a whole.
pub(crate) const BYTES: usize = size_of::<Header>();

const MAGIC: [u8; 8] = *b"hotrow\r\n";
/// A change of the bytes of header or records raises it.
const VERSION: u32 = 2;

/// The progress of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Progress {
    /// Some initial values are missing.
    Filling = 1,
    /// A cache may have held newer rows.
    Unflushed = 2,
    /// The file has the newest value of every row.
    Flushed = 3,
}

/// The header. Its words have the low byte first, as in records.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub(crate) struct Header {
    magic: [u8; 8],
    version: u32,
    progress: u32,
    pub(crate) step: u32,
    rows: u32,
    record_words: u32,
    dim: u32,
    /// The word of the format: bits of a weight, weights of a block, type of its head.
    format: u32,
    optimizer: u32,
    seed: u32,
    /// CRC-32 of the rows of each table.
    tables: u32,
    /// Bits of a float of an element's state.
    state_bits: u32,
    /// The hash of an own rule's identity, low half first; 0 for a rule of the library.
    rule: [u32; 2],
    /// CRC-32 of all fields before this one.
    checksum: u32,
}

impl Header {
    /// The header of a new file.
    pub(crate) fn new(config: &GroupConfig, layout: &Layout) -> Self {
        Self {
            magic: MAGIC,
            version: VERSION,
            progress: Progress::Filling as u32,
            step: 0,
            rows: layout.total_rows,
            record_words: layout.row.record_words,
            dim: layout.row.dim,
            format: layout.row.precision.format().word(),
            optimizer: config.optimizer.kind as u32,
            seed: config.seed,
            tables: crc32fast::hash(bytemuck::cast_slice(&config.tables)),
            state_bits: layout.row.state_bits,
            rule: [layout.own_rule as u32, (layout.own_rule >> 32) as u32],
            checksum: 0,
        }
        .signed()
    }

    fn signed(mut self) -> Self {
        self.checksum = crc32fast::hash(&bytemuck::bytes_of(&self)[..BYTES - 4]);
        self
    }

    /// The header of the same file with another progress and step.
    pub(crate) fn at(self, progress: Progress, step: u32) -> Self {
        Self { progress: progress as u32, step, ..self }.signed()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        bytemuck::bytes_of(self)
    }

    /// Bytes of the whole file.
    pub(crate) fn file_bytes(&self) -> u64 {
        PAGE + u64::from(self.rows) * self.stride()
    }

    pub(crate) fn rows(&self) -> u32 {
        self.rows
    }

    pub(crate) fn stride(&self) -> u64 {
        u64::from(self.record_words) * 4
    }

    /// The progress of the file; `None` for a word that no writer has written.
    pub(crate) fn progress(&self) -> Option<Progress> {
        [Progress::Filling, Progress::Unflushed, Progress::Flushed].into_iter().find(|&p| p as u32 == self.progress)
    }

    /// Reads the header of file `name` from its first bytes, and checks that it describes the same table as `wanted`. `None` if the file
    /// ends within it.
    pub(crate) fn read(name: &str, start: &[u8], wanted: &Self) -> Result<Option<Self>, Error> {
        let fail = |what, wanted: String, found: String, remedy| {
            Err(Error::Store { store: name.into(), what, wanted, found, remedy, source: None })
        };
        let magic = &start[..start.len().min(MAGIC.len())];
        if !MAGIC.starts_with(magic) {
            let found = format!("a file that begins with {}", magic.escape_ascii());
            return fail("format", "a table of hotrow's".into(), found, "name another file");
        }
        let Ok(found) = bytemuck::try_pod_read_unaligned::<Self>(start) else { return Ok(None) };
        if found.version != VERSION {
            let remedy = "open it with the release that wrote it";
            return fail("version", VERSION.to_string(), found.version.to_string(), remedy);
        }
        if found != found.signed() || found.progress().is_none() {
            let wanted = format!("checksum {:08x}", found.signed().checksum);
            return fail("header", wanted, format!("{:08x}", found.checksum), "restore the table from a checkpoint");
        }
        let shape = [
            ("rows", wanted.rows, found.rows),
            ("dim", wanted.dim, found.dim),
            ("precision", wanted.format, found.format),
            ("optimizer", wanted.optimizer, found.optimizer),
            ("bits of a state", wanted.state_bits, found.state_bits),
            ("words of a record", wanted.record_words, found.record_words),
            ("checksum of the tables' rows", wanted.tables, found.tables),
            ("seed", wanted.seed, found.seed),
            ("hash of the rule", wanted.rule[0], found.rule[0]),
            ("hash of the rule", wanted.rule[1], found.rule[1]),
        ];
        if let Some((what, wanted, found)) = shape.into_iter().find(|(_, wanted, found)| wanted != found) {
            let remedy = "open it with the configuration it was made for";
            if what == "optimizer" {
                let name = |kind| OptimizerKind::ALL.get(kind as usize).map_or("own", |kind| kind.name());
                return fail(what, name(wanted).into(), name(found).into(), remedy);
            }
            if what == "precision" {
                let of = |word| move |precision: &Precision| precision.format().word() == word;
                let name = |word| Precision::ALL.into_iter().chain(Precision::READ_ONLY).find(of(word));
                let name = |word| name(word).map_or_else(|| format!("format {word:#x}"), |known| known.to_string());
                return fail(what, name(wanted), name(found), remedy);
            }
            return fail(what, wanted.to_string(), found.to_string(), remedy);
        }
        Ok(Some(found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Optimizer, Precision, StatePrecision};

    fn of(config: &GroupConfig) -> Header {
        Header::new(config, &Layout::new(config, u64::MAX).unwrap())
    }

    fn config() -> GroupConfig {
        GroupConfig::new(&[50, 70], 5).with_optimizer(Optimizer::adagrad(0.5)).with_seed(9)
    }

    fn read(start: &[u8], wanted: &Header) -> Result<Option<Header>, &'static str> {
        Header::read("file", start, wanted).map_err(|error| match error {
            Error::Store { what, .. } => what,
            error => panic!("{error}"),
        })
    }

    #[test]
    fn a_header_reads_back_at_every_progress() {
        let header = of(&config());
        // 8 + 5 x 2 + 5 bytes, rounded up to words, are a record.
        assert_eq!((header.rows(), header.stride(), header.file_bytes()), (120, 24, 4096 + 120 * 24));
        assert_eq!((header.progress(), header.step, BYTES), (Some(Progress::Filling), 0, 64));
        for (progress, step) in [(Progress::Filling, 0), (Progress::Unflushed, 3), (Progress::Flushed, u32::MAX)] {
            let at = header.at(progress, step);
            let found = read(&[at.bytes(), &[0; 9]].concat()[..BYTES], &header).unwrap().unwrap();
            assert_eq!((found, found.progress(), found.step), (at, Some(progress), step));
        }
    }

    #[test]
    fn a_file_that_ends_within_its_header_is_told_from_another_one() {
        let header = of(&config());
        for length in 0..BYTES {
            assert_eq!(read(&header.bytes()[..length], &header), Ok(None), "{length}");
        }
        for length in 1..BYTES {
            let mut other = header.bytes()[..length].to_vec();
            other[(length - 1).min(7)] ^= 1;
            assert_eq!(read(&other, &header), Err("format"), "{length}");
        }
    }

    #[test]
    fn every_byte_of_a_header_counts() {
        let header = of(&config()).at(Progress::Flushed, 5);
        for at in 0..BYTES {
            let mut wrong = header.bytes().to_vec();
            wrong[at] ^= 4;
            let what = ["format", "version", "header"][usize::from(at >= 8) + usize::from(at >= 12)];
            assert_eq!(read(&wrong, &header), Err(what), "byte {at}");
        }
        // A right checksum over a progress that no writer has written.
        for progress in [0, 4] {
            let other = Header { progress, ..header }.signed();
            assert_eq!((read(other.bytes(), &header), other.progress()), (Err("header"), None));
        }
    }

    #[test]
    fn another_table_is_named() {
        type Change = fn(&mut GroupConfig);
        let wrong: [(&str, Change); 8] = [
            ("rows", |config| config.tables[0] = 51),
            ("dim", |config| config.dim = 6),
            ("precision", |config| config.precision = Precision::Int4),
            ("optimizer", |config| config.optimizer = Optimizer::momentum(0.1)),
            ("bits of a state", |config| config.state = Some(StatePrecision::Int8)),
            ("bits of a state", |config| config.state = Some(StatePrecision::Fp32)),
            ("checksum of the tables' rows", |config| config.tables = vec![70, 50]),
            ("seed", |config| config.seed = 8),
        ];
        for (what, change) in wrong {
            let mut other = config();
            change(&mut other);
            assert_eq!(read(of(&config()).bytes(), &of(&other)), Err(what));
        }
        // Nothing that a record does not show.
        let free = config().with_cache_rows(32).with_features(vec![1]);
        assert_eq!(read(of(&config()).bytes(), &of(&free)), Ok(Some(of(&config()))));
        let text = Header::read("file", of(&config()).bytes(), &of(&GroupConfig::new(&[50, 70], 5).with_seed(9)));
        let text = text.unwrap_err().to_string();
        assert!(text.contains("wanted sgd, found adagrad"), "{text}");
    }
}
