//! Saves and loads a parameter-shared group. Its array is copied into memory as a whole, since it is far smaller than
//! the table it stands for.

use std::{fs, io::Read as _, path::Path};

use safetensors::tensor::Dtype;

use crate::{
    checkpoint::{
        beside::Beside,
        fault,
        fields::{self, Texts},
        header::{CHECKSUMS, Found, Kind, Place, compose, foreign, in_order},
        reader::{DAMAGED, MAX_HEADER, check_sum, unreadable},
    },
    config::Precision,
    error::Error,
    lookup::SharedArray,
    robe::{RobeCounters, RobeSnapshot, config::Config},
    table::step_state,
};

const ARRAY: Kind = Kind {
    format: "hotrow robe checkpoint",
    foreign: "give the path of a file that checkpoint::save_lookup wrote of a shared array, unchanged",
};
/// What a group must have in common with its checkpoint, and the states if there are any.
const SAME: [&str; 11] =
    ["tables", "dim", "weights", "chunk", "addressing", "precision", "rounding", "block", "optimizer", "seed", "state"];

/// The texts that a checkpoint keeps of a configuration.
fn texts(config: &Config) -> Texts {
    const LEFT_OUT: [&str; 7] = ["backward", "decoupled", "beta1", "beta2", "own_count", "clip_value", "clip_norm"];
    let mut texts = fields::texts(&config.clone().with_state(Some(config.state_precision())));
    texts.retain(|field, text| !LEFT_OUT.contains(&&**field) && (field != "write_rounding" || text != "nearest"));
    texts
}

/// The tensors of such a group, in file order: FP32 weights as floats, other precisions as the words that hold them.
fn places(config: &Config) -> Vec<Place> {
    let plain = config.precision == Precision::Fp32;
    let dtype = if plain { Dtype::F32 } else { Dtype::U32 };
    let [weights, states] = config.array_bytes().map(|bytes| vec![bytes / 4]);
    let mut tensors = vec![("counters", Dtype::U64, vec![config.tables.len() as u64, 3]), ("weights", dtype, weights)];
    if config.states() > 0 {
        tensors.push(("states", dtype, states));
    }
    in_order(tensors.into_iter())
}

pub(crate) fn save(group: &mut (impl SharedArray + ?Sized), path: &Path) -> Result<(), Error> {
    if group.pending() {
        return Err(step_state::backward_first("checkpoint::save_lookup"));
    }
    let RobeSnapshot { t, weight_words, state_words, counters } = group.snapshot()?;
    let config = group.config();
    let head = compose(&ARRAY, t, texts(config), &places(config));
    let mut file = Beside::create(path)?;
    let mut checksums = Vec::new();
    for bytes in [head, counted(&counters), bytes_of(&weight_words), bytes_of(&state_words)]
        .iter()
        .filter(|bytes| !bytes.is_empty())
    {
        checksums.push(crc32fast::hash(bytes));
        file.write(bytes)?;
    }
    file.write(&checksums.iter().flat_map(|sum| sum.to_le_bytes()).collect::<Vec<u8>>())?;
    file.replace()
}

/// Reads the configuration and the step number of a shared array's checkpoint. The weights are not read. The way of the backward, initial values and
/// the optimiser's settings but for its rule, rate, eps and decay are not kept; here they are those of [`Config::new`], and initial values are 0.
///
/// ```
/// use hotrow::{CpuSharedGroup, Error, checkpoint, prelude::*, robe::Config};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("array.safetensors");
/// let mut group = CpuSharedGroup::new(Config::compressed(&[1000], 16, 10.0, 8)?)?;
/// checkpoint::save_lookup(&mut group, &path)?;
/// let (config, step) = checkpoint::array_contents(&path)?;
/// let mut again = CpuSharedGroup::new(config)?;
/// checkpoint::load_lookup(&mut again, &path)?;
/// assert_eq!((again.snapshot(), step), (group.snapshot(), 0));
/// # Ok::<(), Error>(())
/// ```
///
/// # Errors
/// [`Error::Checkpoint`] if the file cannot be read, is no checkpoint of a shared array, or has a damaged header.
#[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
pub fn array_contents(path: impl AsRef<Path>) -> Result<(Config, u32), Error> {
    let path = path.as_ref();
    let read = |bytes| {
        let mut start = Vec::new();
        let file = fs::File::open(path).and_then(|file| file.take(bytes).read_to_end(&mut start));
        file.map(|_| start).map_err(|error| unreadable(path, &error))
    };
    let length = read(8)?.iter().rev().fold(0, |all, &byte| all << 8 | u64::from(byte));
    let bytes = read(8 + length.min(MAX_HEADER))?;
    let found = Found::parse(&ARRAY, path, header(path, &bytes)?)?;
    let (config, step): (Config, u32) = found.configured(path)?;
    config.check().map_err(|error| foreign(&ARRAY, path, "configuration", &error))?;
    Ok((config, step))
}

/// The header of a file, without its length.
fn header<'b>(path: &Path, bytes: &'b [u8]) -> Result<&'b [u8], Error> {
    let text = bytes.first_chunk().map(|&length| u64::from_le_bytes(length));
    let text = text.and_then(|text| bytes.get(8..usize::try_from(text).ok()?.checked_add(8)?));
    text.ok_or_else(|| foreign(&ARRAY, path, "header", &format!("a file of {} bytes", bytes.len())))
}

pub(crate) fn load(group: &mut (impl SharedArray + ?Sized), path: &Path) -> Result<(), Error> {
    if group.pending() {
        return Err(step_state::backward_first("checkpoint::load_lookup"));
    }
    let bytes = fs::read(path).map_err(|error| unreadable(path, &error))?;
    let text = header(path, &bytes)?;
    let found = Found::parse(&ARRAY, path, text)?;
    let config = group.config();
    let fields = if config.states() > 0 { &SAME[..] } else { &SAME[..10] };
    let remedy = "load it into a group of the same configuration, or take another file";
    fields::same(path, fields, &texts(config), |field| found.text(field), remedy)?;
    // The configuration decides the tensors; they must lie where they would have been written.
    let places = places(config);
    found.check(&ARRAY, path, &places)?;
    let (head, data) = bytes.split_at(8 + text.len());
    let wanted = places.last().map_or(0, |(.., [_, end])| *end);
    if data.len() as u64 != wanted {
        let remedy = "the file is cut off or something follows it: get it again, or take an older checkpoint";
        return Err(fault(path, "length", format!("{wanted} bytes of tensors"), &data.len(), remedy));
    }
    let mut parts = places.iter().map(|(.., [begin, end])| &data[*begin as usize..*end as usize]).collect::<Vec<_>>();
    let checksums = parts.pop().unwrap_or_default();
    let names = ["header"].into_iter().chain(places.iter().map(|(name, ..)| *name).filter(|name| *name != CHECKSUMS));
    for ((name, part), wanted) in names.zip([head].iter().chain(&parts)).zip(words(checksums)) {
        check_sum(path, name, wanted, crc32fast::hash(part), DAMAGED)?;
    }
    let step = found.text("step");
    let t = step.parse().map_err(|_| fault(path, "step", "a whole number", &step, DAMAGED))?;
    let part = |at: usize| parts.get(at).map_or_else(Vec::new, |part| words(part).collect());
    let snapshot = RobeSnapshot { t, weight_words: part(1), state_words: part(2), counters: uncounted(parts[0]) };
    group.restore(&snapshot)
}

fn bytes_of(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
}

/// The counters as bytes: accesses, out of range, and in the first row the skipped weights.
fn counted(counters: &RobeCounters) -> Vec<u8> {
    let skipped = std::iter::once(counters.skipped_weights).chain(std::iter::repeat(0));
    let rows = counters.accesses.iter().zip(&counters.out_of_range).zip(skipped);
    rows.flat_map(|((&accesses, &outside), skipped)| [accesses, outside, skipped]).flat_map(u64::to_le_bytes).collect()
}

fn uncounted(bytes: &[u8]) -> RobeCounters {
    let words: Vec<u32> = words(bytes).collect();
    let column =
        |at: usize| words.chunks_exact(6).map(move |row| u64::from(row[2 * at]) | u64::from(row[2 * at + 1]) << 32);
    RobeCounters {
        accesses: column(0).collect(),
        out_of_range: column(1).collect(),
        skipped_weights: column(2).fold(0, u64::saturating_add),
    }
}
