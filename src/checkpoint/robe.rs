//! Saves and loads a parameter-shared group. Its array is copied into memory as a whole, since it is far smaller than
//! the table it stands for.

use std::{fs, path::Path};

use safetensors::tensor::{Dtype, Metadata};

use crate::{
    checkpoint::{
        beside::Beside,
        fault, fields,
        header::{CHECKSUMS, Place, compose, in_order},
        refused,
    },
    config::Precision,
    error::Error,
    lookup::SharedArray,
    robe::{RobeCounters, RobeSnapshot, config::Config},
    table::step_state,
};

const FORMAT: &str = "hotrow robe checkpoint";
const VERSION: &str = "1";
const DAMAGED: &str = "the file is damaged: get another copy, or take an older checkpoint";
const FOREIGN: &str = "give the path of a file that checkpoint::save_lookup wrote of a shared array, unchanged";

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
    let own = [("format", FORMAT.into()), ("version", VERSION.into()), ("step", t.to_string())];
    let metadata = own.into_iter().chain(fields::of_robe(config).into_iter().map(|(field, value, _)| (field, value)));
    let head = compose(metadata, &places(config));
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

pub(crate) fn load(group: &mut (impl SharedArray + ?Sized), path: &Path) -> Result<(), Error> {
    if group.pending() {
        return Err(step_state::backward_first("checkpoint::load_lookup"));
    }
    let bytes = fs::read(path)
        .map_err(|error| refused(path, "file", "one that can be read", &error, "check the path and its permissions"))?;
    let foreign = |what, found: &dyn std::fmt::Display| {
        fault(path, what, format!("a safetensors file of format {FORMAT:?}"), &found, FOREIGN)
    };
    let text = bytes.first_chunk().map(|&length| u64::from_le_bytes(length));
    let text = text.and_then(|text| bytes.get(8..usize::try_from(text).ok()?.checked_add(8)?));
    let text = text.ok_or_else(|| foreign("header", &format!("a file of {} bytes", bytes.len())))?;
    let found: Metadata = serde_json::from_slice(text).map_err(|error| foreign("header", &error))?;
    let field = |field: &str| found.metadata().as_ref().and_then(|all| all.get(field)).map_or("none", String::as_str);
    if field("format") != FORMAT {
        return Err(foreign("format", &field("format")));
    }
    if field("version") != VERSION {
        let remedy = "read it with the version of hotrow that wrote it, or a newer one";
        return Err(fault(path, "version", VERSION, &field("version"), remedy));
    }
    for (name, wanted, must) in fields::of_robe(group.config()) {
        let found = field(name);
        if must && found != wanted {
            let remedy = "load it into a group of the same configuration, or take another file";
            return Err(fault(path, name, wanted, &found, remedy));
        }
    }
    // The configuration decides the tensors; they must lie where they would have been written.
    let places = places(group.config());
    for (name, dtype, shape, [begin, end]) in &places {
        let wanted = format!("{dtype:?} {shape:?} at {begin} to {end}");
        let found = found.info(name).map_or("none".into(), |info| {
            format!("{:?} {:?} at {} to {}", info.dtype, info.shape, info.data_offsets.0, info.data_offsets.1)
        });
        if wanted != found {
            return Err(fault(path, name, wanted, &found, FOREIGN));
        }
    }
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
        let found = crc32fast::hash(part);
        if found != wanted {
            return Err(fault(path, name, format!("checksum {wanted:08x}"), &format!("{found:08x}"), DAMAGED));
        }
    }
    let step = field("step");
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
