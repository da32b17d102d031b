//! Parameter-shared tables (P4, ROBE-Z): instead of rows one array of |M| FP32 weights, 10 to 10,000 times smaller than the rows would be.
//! A row is cut into chunks of Z values; chunk j of row i is read at a hashed place of the array ([`hash`]), and rows share weights.
//!
//! [`Group`] is on a GPU, [`cpu::Group`] on the CPU; both are driven through [`Lookup`](crate::lookup::Lookup).

mod config;
pub mod hash;

pub use crate::gpu::robe::Group;
use crate::{
    Error,
    layout::{CLOCK_WORDS, TABLE_WORDS, table_words},
};
pub(crate) use config::BLOCK as INITIAL_BLOCK;
pub use config::{Backward, Config};

/// The CPU backend.
pub mod cpu {
    pub use crate::cpu::robe::Group;
}

/// Everything a group keeps between steps, bit by bit.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// Step number.
    pub t: u32,
    /// The shared weights.
    pub weights: Vec<f32>,
    /// The optimiser's state, one a weight; empty under SGD.
    pub states: Vec<f32>,
    /// What steps did.
    pub counters: Counters,
}

/// What steps did, counted. What a table reads and writes follows from it: dim weights an access.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Indices looked up in each table, duplicates too.
    pub accesses: Vec<u64>,
    /// Indices outside each table.
    pub out_of_range: Vec<u64>,
    /// Weights left as they were because a gradient's sum or the new value was not finite. They belong to no table.
    pub skipped_weights: u64,
}

impl Snapshot {
    /// Each part has the size it has in a group of this configuration, and every value is finite.
    pub(crate) fn check(&self, config: &Config) -> Result<(), Error> {
        let (weights, tables) = (u64::from(config.weights), config.tables.len() as u64);
        let parts = [
            ("snapshot's weights", weights, self.weights.len()),
            ("snapshot's states", if config.has_state() { weights } else { 0 }, self.states.len()),
            ("snapshot's accesses", tables, self.counters.accesses.len()),
            ("snapshot's out_of_range", tables, self.counters.out_of_range.len()),
        ];
        for (what, wanted, found) in parts {
            if wanted != found as u64 {
                return Err(Error::Length { what, wanted, found: found as u64 });
            }
        }
        finite("snapshot's weights", &self.weights)?;
        finite("snapshot's states", &self.states)
    }
}

/// As many weights as the array has, every one finite.
pub(crate) fn check_weights(config: &Config, weights: &[f32]) -> Result<(), Error> {
    let (wanted, found) = (u64::from(config.weights), weights.len() as u64);
    if wanted != found {
        return Err(Error::Length { what: "weights", wanted, found });
    }
    finite("weights", weights)
}

fn finite(name: &str, values: &[f32]) -> Result<(), Error> {
    let Some(place) = values.iter().position(|x| !x.is_finite()) else { return Ok(()) };
    Err(Error::Source {
        name: name.into(),
        row: place as u32,
        wanted: "a finite value".into(),
        found: values[place].to_string(),
        remedy: "correct it",
    })
}

impl Counters {
    /// The `tables` buffer that [`from_words`](Self::from_words) reads.
    pub(crate) fn words(&self, config: &Config, t: u32) -> Vec<u32> {
        let mut words = table_words(&config.rows());
        words[0] = t;
        let tables = words[CLOCK_WORDS..].chunks_exact_mut(TABLE_WORDS);
        let skipped = std::iter::once(self.skipped_weights).chain(std::iter::repeat(0));
        for (((table, accesses), out_of_range), skipped_rows) in
            tables.zip(&self.accesses).zip(&self.out_of_range).zip(skipped)
        {
            let counters = crate::Counters {
                accesses: *accesses,
                out_of_range: *out_of_range,
                skipped_rows,
                ..crate::Counters::default()
            };
            let counters = crate::Counters::to_part(&[counters]);
            table[2..2 + counters.len()].copy_from_slice(&counters);
        }
        words
    }

    /// Out of the `tables` buffer: a weight that is skipped is counted as a row of the first table.
    pub(crate) fn from_words(words: &[u32]) -> Self {
        let tables = crate::Counters::from_words(words, 0);
        Self {
            accesses: tables.iter().map(|table| table.accesses).collect(),
            out_of_range: tables.iter().map(|table| table.out_of_range).collect(),
            skipped_weights: tables.iter().map(|table| table.skipped_rows).sum(),
        }
    }
}
