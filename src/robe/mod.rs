//! Parameter-shared tables (ROBE, ROBE-Z): instead of rows there is one array of |M| weights, 10 to 10,000 times
//! smaller than the rows would be.
//!
//! The array is FP32, or FP16, or integers in blocks that share a scale and a bias ([`Config::precision`]), rounded like the rows of a
//! cached table. An array larger than a device can bind lies in several buffers, the windows, which change no bit.
//!
//! [`SharedGroup`](crate::SharedGroup) is on a GPU, [`CpuSharedGroup`](crate::CpuSharedGroup) on the CPU; both implement [`Lookup`](crate::Lookup).
//! The package `hotrow-plan` measures what a given table would lose in such an array.

pub(crate) mod config;
pub mod hash;
pub(crate) mod storage;

use crate::{
    error::Error,
    robe::storage::Storage,
    table::{
        abi::{CLOCK_WORDS, TABLE_WORDS, table_words},
        counters::Counters,
    },
};
pub use config::{Addressing, Backward, Config};

/// The gradient of a weight that no chunk of the batch covers. Added to any number it leaves that number, and the sum of a covered weight is never
/// -0.0, so that it still says of the sum of several gradients that no chunk covers the weight.
pub(crate) const UNCOVERED: f32 = -0.0;

/// The state that a group keeps between steps, bit by bit.
///
/// ```
/// use hotrow::{CpuSharedGroup, Error, prelude::*, robe};
///
/// let config = robe::Config::new(&[1000], 8, 64, 4);
/// let mut table = CpuSharedGroup::new(config.clone())?;
/// assert_eq!(table.snapshot()?.weights(&config)?.len(), 64);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct RobeSnapshot {
    /// Step number.
    pub t: u32,
    /// The shared weights as stored: FP32, one a word; FP16, two a word; integers in blocks, each with scale, bias and codes.
    pub weight_words: Vec<u32>,
    /// The optimiser's state, one value for each weight: FP32, or FP16, two a word, beside packed weights. Empty under SGD.
    pub state_words: Vec<u32>,
    /// The counters of each table, of all steps so far.
    pub counters: Vec<Counters>,
}

impl RobeSnapshot {
    /// Unpacks the weights into FP32.
    ///
    /// # Errors
    /// As `restore`, if this is no snapshot of a group of `config`.
    pub fn weights(&self, config: &Config) -> Result<Vec<f32>, Error> {
        self.check(config).map(|storage| storage.weights(&self.weight_words))
    }

    /// Unpacks the states into FP32. The states of a weight lie side by side: AdaGrad's sum of squares, the momentum, or Adam's first and second
    /// moment; none under SGD.
    ///
    /// # Errors
    /// As [`weights`](Self::weights).
    pub fn states(&self, config: &Config) -> Result<Vec<f32>, Error> {
        self.check(config).map(|storage| storage.states(&self.state_words))
    }

    /// Checks that each part has the size of a group of `config` and that every value is finite.
    pub(crate) fn check(&self, config: &Config) -> Result<Storage, Error> {
        config.rows().check()?;
        let storage = config.storage();
        let words = storage.all();
        let tables = config.tables.len();
        let parts = [
            ("snapshot's weight_words", words.memory, self.weight_words.len()),
            ("snapshot's state_words", words.states, self.state_words.len()),
            ("snapshot's counters", tables, self.counters.len()),
        ];
        for (what, wanted, found) in parts {
            if wanted != found {
                return Err(Error::Length { what, wanted: wanted as u64, found: found as u64 });
            }
        }
        finite("snapshot's weights", storage.not_finite(&self.weight_words))?;
        finite("snapshot's states", storage.state_not_finite(&self.state_words))?;
        Ok(storage)
    }
}

/// Checks that there is one gradient for each weight.
pub(crate) fn check_gradient(config: &Config, gradient: &[f32]) -> Result<(), Error> {
    let (wanted, found) = (u64::from(config.weights), gradient.len() as u64);
    if wanted == found { Ok(()) } else { Err(Error::Length { what: "gradient", wanted, found }) }
}

/// Checks that there are as many weights as the array has, all finite.
///
/// # Errors
/// [`Error::Length`]; [`Error::Source`] for the first weight that is not finite.
pub fn check_weights(config: &Config, weights: &[f32]) -> Result<(), Error> {
    let (wanted, found) = (u64::from(config.weights), weights.len() as u64);
    if wanted != found {
        return Err(Error::Length { what: "weights", wanted, found });
    }
    let wrong = (0..).zip(weights).find(|(_, x)| !x.is_finite());
    finite("weights", wrong.map(|(place, &x)| (place, x)))
}

fn finite(name: &str, wrong: Option<(u32, f32)>) -> Result<(), Error> {
    let Some((row, value)) = wrong else { return Ok(()) };
    Err(Error::Source {
        name: name.into(),
        row,
        wanted: "a finite value".into(),
        found: value.to_string(),
        remedy: "correct it",
        source: None,
    })
}

/// The words of the `tables` buffer, as [`counters_of`] reads them.
pub(crate) fn counter_words(config: &Config, t: u32, counters: &[Counters]) -> Vec<u32> {
    let mut words = table_words(&config.rows());
    words[0] = t;
    for (table, counters) in words[CLOCK_WORDS..].chunks_exact_mut(TABLE_WORDS).zip(counters) {
        let counters = Counters::to_part(&[*counters]);
        table[2..2 + counters.len()].copy_from_slice(&counters);
    }
    words
}

/// Reads the counters of each table from the words of the `tables` buffer. A skipped weight is counted as a row of the first table. The bytes are
/// dim weights an access, read and written; they count no scales.
pub(crate) fn counters_of(config: &Config, words: &[u32]) -> Vec<Counters> {
    let mut tables = Counters::from_words(words, 0);
    for table in &mut tables {
        let bits = u64::from(config.dim) * u64::from(config.precision.bits());
        let bytes = table.accesses.saturating_mul(bits).div_ceil(8); // a restored count may be any number
        (table.bytes_read, table.bytes_written) = (bytes, bytes);
    }
    tables
}
