//! The header of a checkpoint: the list of tensors, and the configuration of the group.

use std::path::Path;

use safetensors::tensor::{Dtype, Metadata};
use serde::de::DeserializeOwned;

use crate::{
    checkpoint::{
        fault,
        fields::{self, Texts},
    },
    config::GroupConfig,
    error::Error,
    table::{layout::Layout, parts::Part},
};

const VERSION: &str = "1";

/// The text of the field `sets` in a file with a cache. Older files have none, and other sets.
const SETS: &str = "multiplicative";

/// A kind of file: its format, and the remedy if a file is of none.
pub(crate) struct Kind {
    pub(crate) format: &'static str,
    pub(crate) foreign: &'static str,
}

/// The file of a group.
pub(crate) const ROWS: Kind =
    Kind { format: "hotrow checkpoint", foreign: "give the path of a file that checkpoint::save wrote, unchanged" };

/// Name of the last tensor.
pub(crate) const CHECKSUMS: &str = "checksums";

/// The contents of a checkpoint, without its tables.
///
/// Example: the [module](crate::checkpoint).
#[derive(Clone, Debug, PartialEq)]
pub struct Contents {
    /// The configuration of the group that was saved. Placement, pieces and initial values are not kept; here they are
    /// the defaults of [`GroupConfig::new`].
    pub config: GroupConfig,
    /// The step number of the group that was saved.
    pub step: u32,
}

/// A tensor of the file.
#[derive(Debug)]
pub(crate) struct Tensor {
    pub(crate) name: &'static str,
    pub(crate) part: Part,
    dtype: Dtype,
    shape: Vec<u64>,
}

impl Tensor {
    /// The last number of its shape.
    pub(crate) fn width(&self) -> usize {
        self.shape.last().map_or(0, |&width| width as usize)
    }

    /// Number of its bytes, a multiple of 4.
    pub(crate) fn bytes(&self) -> u64 {
        self.shape.iter().product::<u64>() * (self.dtype.bitsize() as u64 / 8)
    }
}

/// The parts of a group as tensors, in file order: U64 first, so that each tensor is aligned to its type. A table has `counters` of them.
pub(crate) fn tensors(config: &GroupConfig, layout: &Layout, counters: u64) -> Vec<Tensor> {
    let (slots, rows) = (u64::from(layout.slots()), u64::from(layout.total_rows));
    let tensor = |name, part, dtype, shape: &[u64]| Tensor { name, part, dtype, shape: shape.to_vec() };
    let mut tensors = vec![
        tensor("counters", Part::Counters, Dtype::U64, &[config.tables.len() as u64, counters]),
        tensor("since", Part::Since, Dtype::U64, &[Part::Since.words(config, layout) / 2]),
        tensor("ways", Part::Ways, Dtype::U32, &[u64::from(layout.sets), 4, u64::from(layout.ways)]),
        tensor("cache", Part::Cache, Dtype::F32, &[slots, u64::from(layout.row.row_words)]),
        tensor("records", Part::Records, Dtype::U8, &[rows, layout.stride()]),
        tensor("frequencies", Part::Frequencies, Dtype::U32, &[rows]),
    ];
    tensors.retain(|tensor| tensor.part.words(config, layout) > 0);
    tensors
}

/// Name, type, shape, and its first byte and end, counted from behind the header.
pub(crate) type Place = (&'static str, Dtype, Vec<u64>, [u64; 2]);

/// The places of tensors one after another, followed by the checksums of the header and of each tensor.
pub(crate) fn in_order(tensors: impl ExactSizeIterator<Item = (&'static str, Dtype, Vec<u64>)>) -> Vec<Place> {
    let checksums = tensors.len() as u64 + 1;
    let mut end = 0;
    let place = |(name, dtype, shape): (&'static str, Dtype, Vec<u64>)| {
        let begin = end;
        end += shape.iter().product::<u64>() * (dtype.bitsize() as u64 / 8);
        (name, dtype, shape, [begin, end])
    };
    tensors.chain([(CHECKSUMS, Dtype::U32, vec![checksums])]).map(place).collect()
}

fn places(tensors: &[Tensor]) -> Vec<Place> {
    in_order(tensors.iter().map(|tensor| (tensor.name, tensor.dtype, tensor.shape.clone())))
}

/// Returns the first bytes of the file: the header's length, then the header.
pub(crate) fn write(contents: &Contents, tensors: &[Tensor]) -> Vec<u8> {
    let mut texts = fields::of(&contents.config);
    if contents.config.cache_rows > 0 {
        texts.insert("sets".into(), SETS.into());
    }
    compose(&ROWS, contents.step, texts, &places(tensors))
}

/// Composes a header with the texts of a configuration and these tensors, preceded by its length.
pub(crate) fn compose(kind: &Kind, step: u32, mut texts: Texts, places: &[Place]) -> Vec<u8> {
    let own = [("format", kind.format.into()), ("version", VERSION.into()), ("step", step.to_string())];
    texts.extend(own.map(|(field, text)| (field.to_owned(), text)));
    let mut header = serde_json::Map::new();
    header.insert("__metadata__".into(), serde_json::json!(texts));
    for (name, dtype, shape, offsets) in places {
        let info = serde_json::json!({ "dtype": dtype, "shape": shape, "data_offsets": offsets });
        header.insert((*name).into(), info);
    }
    let mut text = serde_json::Value::Object(header).to_string();
    // The tensors begin at a multiple of 8 bytes.
    text.extend(std::iter::repeat_n(' ', text.len().next_multiple_of(8) - text.len()));
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

/// A header as read from a file, not checked yet.
pub(crate) struct Found {
    tensors: Metadata,
    texts: Texts,
}

impl Found {
    /// Reads the header of a file of this kind, without its length.
    pub(crate) fn parse(kind: &Kind, path: &Path, text: &[u8]) -> Result<Self, Error> {
        let foreign = |what, found: &dyn std::fmt::Display| foreign(kind, path, what, found);
        let tensors: Metadata = serde_json::from_slice(text).map_err(|error| foreign("header", &error))?;
        let texts = tensors.metadata().clone().into_iter().flatten().collect();
        let found = Self { tensors, texts };
        let format = found.text("format");
        if format != kind.format {
            return Err(foreign("format", &format));
        }
        let remedy = "read it with the version of hotrow that wrote it, or a newer one";
        match found.text("version") {
            VERSION => Ok(found),
            version => Err(fault(path, "version", VERSION, version, remedy)),
        }
    }

    pub(crate) fn text(&self, field: &str) -> &str {
        self.texts.get(field).map_or("none", String::as_str)
    }

    /// The configuration that was saved, and the step number.
    pub(crate) fn configured<C: DeserializeOwned>(&self, path: &Path) -> Result<(C, u32), Error> {
        let config = fields::config(path, &self.texts)?;
        let step = self.text("step").parse().map_err(|_| fields::unread(path, "step", &self.texts))?;
        Ok((config, step))
    }

    /// Whether the rows of the cache lie in the sets of before.
    pub(crate) fn has_older_sets(&self) -> bool {
        self.tensors.info("ways").is_some() && self.text("sets") != SETS
    }

    /// Number of bytes behind the header.
    pub(crate) fn data_bytes(&self) -> u64 {
        self.tensors.data_len() as u64
    }

    /// Number of bytes of the checksums, which end the file.
    pub(crate) fn checksum_bytes(&self, path: &Path) -> Result<u64, Error> {
        let found = self.tensors.info(CHECKSUMS).filter(|info| info.dtype == Dtype::U32);
        match found.map(|info| (info.data_offsets.1 - info.data_offsets.0) as u64) {
            Some(bytes) if bytes >= 4 => Ok(bytes),
            _ => Err(foreign(&ROWS, path, CHECKSUMS, "none")),
        }
    }

    /// Checks that the tensors are those that a group of this configuration writes. Returns configuration, layout and
    /// tensors. An older file may have more sets than a cache of its rows has now; the layout has those of the file.
    pub(crate) fn understand(&self, path: &Path) -> Result<(Contents, Layout, Vec<Tensor>), Error> {
        let (config, step) = self.configured(path)?;
        let mut layout =
            Layout::new(&config, u64::MAX).map_err(|error| foreign(&ROWS, path, "configuration", &error))?;
        if self.has_older_sets() {
            layout.sets = config.cache_rows.div_ceil(config.ways);
        }
        // A file of a group that has counted padding has one counter more.
        let counters = self.tensors.info("counters").and_then(|info| info.shape.get(1).copied());
        let counters = counters.map_or(0, |found| found as u64).clamp(11, 12);
        let tensors = tensors(&config, &layout, counters);
        let places = places(&tensors);
        self.check(&ROWS, path, &places)?;
        let extra = self.tensors.offset_keys().into_iter().find(|name| places.iter().all(|(known, ..)| known != name));
        match extra {
            None => Ok((Contents { config, step }, layout, tensors)),
            Some(name) => Err(fault(path, "tensors", "those of a checkpoint", &name, ROWS.foreign)),
        }
    }

    /// Checks that these tensors lie where they would have been written.
    pub(crate) fn check(&self, kind: &Kind, path: &Path, places: &[Place]) -> Result<(), Error> {
        for (name, dtype, shape, [begin, end]) in places {
            let wanted = format!("{dtype:?} {shape:?} at {begin} to {end}");
            let found = self.tensors.info(name).map_or("none".into(), |info| {
                format!("{:?} {:?} at {} to {}", info.dtype, info.shape, info.data_offsets.0, info.data_offsets.1)
            });
            if wanted != found {
                return Err(fault(path, name, wanted, &found, kind.foreign));
            }
        }
        Ok(())
    }
}

/// The error for a file that is no checkpoint of this kind, or too damaged to tell.
pub(crate) fn foreign(
    kind: &Kind,
    path: &Path,
    what: &'static str,
    found: &(impl std::fmt::Display + ?Sized),
) -> Error {
    fault(path, what, format!("a safetensors file of format {:?}", kind.format), found, kind.foreign)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::config::{Optimizer, Policy, Precision};

    /// Two sets of 32 ways, 120 rows of 5 INT8 weights; AdaGrad's sums are FP16.
    fn config() -> GroupConfig {
        GroupConfig::new(&[50, 70], 5)
            .with_cache_rows(40)
            .with_policy(Policy::Lfu)
            .with_precision(Precision::Int8)
            .with_optimizer(Optimizer::adagrad(0.5))
            .with_seed(9)
    }

    fn contents() -> Contents {
        Contents { config: config(), step: 77 }
    }

    fn of(config: &GroupConfig) -> Vec<Tensor> {
        tensors(config, &Layout::new(config, u64::MAX).unwrap(), 11)
    }

    /// The header as JSON, without its length.
    fn header() -> Value {
        serde_json::from_slice(&write(&contents(), &of(&config()))[8..]).unwrap()
    }

    fn parse(header: &Value) -> Result<Found, Error> {
        Found::parse(&ROWS, Path::new("file"), header.to_string().as_bytes())
    }

    /// The field that an error names.
    fn named<T>(result: Result<T, Error>) -> &'static str {
        match result {
            Err(Error::Checkpoint { what, .. }) => what,
            Err(error) => panic!("{error}"),
            Ok(_) => "",
        }
    }

    fn understood(header: &Value) -> &'static str {
        named(parse(header).and_then(|found| found.understand(Path::new("file"))))
    }

    #[test]
    fn tensors_lie_one_behind_another() {
        let bytes = |config: &GroupConfig| of(config).iter().map(|t| (t.name, t.bytes())).collect::<Vec<_>>();
        // 8 + 5 x 2 + 5 bytes, rounded up to words, are the stride of a record.
        let all = [
            ("counters", 2 * 11 * 8),
            ("ways", 2 * 4 * 32 * 4),
            ("cache", 64 * 10 * 4),
            ("records", 120 * 24),
            ("frequencies", 120 * 4),
        ];
        assert_eq!(bytes(&config()), all);
        let lru = config().with_policy(Policy::Lru).with_cache_rows(0);
        assert_eq!(bytes(&lru), [all[0], all[3]]);

        let places = places(&of(&config()));
        let mut end = 0;
        for (place, (name, bytes)) in places.iter().zip(all.into_iter().chain([(CHECKSUMS, 6 * 4)])) {
            assert_eq!((place.0, place.3), (name, [end, end + bytes]));
            end += bytes;
        }
        let found = parse(&header()).unwrap();
        assert_eq!(found.data_bytes(), end);
        assert_eq!(found.checksum_bytes(Path::new("file")), Ok(24));
    }

    #[test]
    fn a_header_reads_back() {
        let bytes = write(&contents(), &of(&config()));
        let length = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        assert_eq!(length as usize + 8, bytes.len());
        assert!(length.is_multiple_of(8) && bytes[8] == b'{' && bytes[bytes.len() - 8..].contains(&b'}'));
        // Padding is less than 8 spaces, at every length of the text.
        for n in 0..8 {
            let bytes = compose(&ROWS, 0, Texts::from([("n".into(), "x".repeat(n))]), &[]);
            let text = std::str::from_utf8(&bytes[8..]).unwrap();
            assert_eq!(text.len(), text.trim_end().len().next_multiple_of(8), "{n}");
        }
        let (found, layout, tensors) = parse(&header()).unwrap().understand(Path::new("file")).unwrap();
        assert_eq!((found, layout), (contents(), Layout::new(&config(), u64::MAX).unwrap()));
        assert_eq!(places(&tensors), places(&of(&config())));
    }

    #[test]
    fn a_header_of_something_else_is_named() {
        type Change = fn(&mut Value);
        let parsed: [(&str, Change); 4] = [
            ("", |_| ()),
            ("format", |header| drop(header.as_object_mut().unwrap().remove("__metadata__"))),
            ("version", |header| header["__metadata__"]["version"] = "2".into()),
            ("version", |header| drop(header["__metadata__"].as_object_mut().unwrap().remove("version"))),
        ];
        for (what, change) in parsed {
            let mut header = header();
            change(&mut header);
            assert_eq!(named(parse(&header)), what);
        }
        assert_eq!(named(Found::parse(&ROWS, Path::new("file"), b"{")), "header");

        let wrong: [(&str, Change); 5] = [
            ("", |_| ()),
            ("configuration", |header| header["__metadata__"]["cache_rows"] = "2147483649".into()),
            ("records", |header| header["records"]["shape"] = json!([24, 120])),
            ("cache", |header| header["cache"]["dtype"] = "I32".into()),
            ("tensors", |header| header["more"] = json!({ "dtype": "U8", "shape": [0], "data_offsets": [0, 0] })),
        ];
        for (what, change) in wrong {
            let mut changed = header();
            change(&mut changed);
            assert_eq!(understood(&changed), what);
        }
    }

    #[test]
    fn checksums_are_words_behind_all_else() {
        let sums = |dtype: &str, words: u64| {
            let end = parse(&header()).unwrap().data_bytes() - 24;
            let mut header = header();
            let bytes = words * if dtype == "U32" { 4 } else { 1 };
            header[CHECKSUMS] = json!({ "dtype": dtype, "shape": [words], "data_offsets": [end, end + bytes] });
            parse(&header).unwrap().checksum_bytes(Path::new("file"))
        };
        assert_eq!((sums("U32", 1), sums("U32", 6)), (Ok(4), Ok(24)));
        assert_eq!((named(sums("U32", 0)), named(sums("U8", 24))), (CHECKSUMS, CHECKSUMS));
        let mut without = header();
        without.as_object_mut().unwrap().remove(CHECKSUMS);
        assert_eq!(named(parse(&without).unwrap().checksum_bytes(Path::new("file"))), CHECKSUMS);
    }
}
