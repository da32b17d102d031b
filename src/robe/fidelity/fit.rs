//! The shared array that is nearest to a table.

use rayon::prelude::*;

use crate::{
    error::Error,
    host::alloc::zeroed,
    robe::{
        config::Config,
        fidelity::measure::Fidelity,
        hash::{chunk_start, location, row_hash},
    },
    source::Source,
};

/// Floats of a block of rows, and of the part of it that a thread asks for at once.
const BLOCK: usize = 1 << 20;
const PART: usize = 1 << 14;

/// The shared array nearest to a table in least squares: each weight is the mean of what reads it.
#[derive(Clone, Debug)]
pub struct Fit {
    config: Config,
    weights: Vec<f32>,
    /// How many elements read each weight; with uses: how often.
    reads: Vec<f64>,
    weighted: bool,
}

impl Fit {
    /// Goes once through all rows of `rows`, on all cores, block by block, and sums in FP64. The same bits on any number of cores. `config`
    /// says how the rows share weights: its tables, dim, weights and chunk. `uses`: how often each linear row is looked up; a
    /// row of none has no say. While it works it takes 20 B a weight and a block of 4 MiB, or a row if that is longer.
    ///
    /// # Errors
    /// [`Error::Config`]; what `rows` says, [`Error::Source`] for the first row with a value that is not finite; [`Error::Length`] unless
    /// `uses` has one for each row, [`Error::Fidelity`] if all of them are 0; [`Error::OutOfMemory`].
    pub fn new(config: &Config, rows: &dyn Source, uses: Option<&[u32]>) -> Result<Self, Error> {
        let total = checked(config, rows)?;
        if let Some(uses) = uses {
            let (wanted, found) = (u64::from(total), uses.len() as u64);
            if wanted != found {
                return Err(Error::Length { what: "uses", wanted, found });
            }
            if uses.iter().all(|&uses| uses == 0) {
                return Err(Error::Fidelity {
                    what: "uses",
                    wanted: "at least one row that is used".into(),
                    found: "none".into(),
                });
            }
        }
        let robe = config.robe();
        let (dim, chunks) = (config.dim as usize, robe.chunks as usize);
        // Of each weight: the sum of what reads it, and how often it is read.
        let n = config.weights as usize;
        let (mut sums, mut reads): (Vec<f64>, Vec<f64>) = (zeroed("sums", n)?, zeroed("reads", n)?);
        let mut starts: Vec<u32> = Vec::new();
        // A weight has one thread, which meets the elements in the order of the rows.
        let share = n.div_ceil(rayon::current_num_threads());
        blocks(rows, dim, total, |first_row, values| {
            starts.resize(values.len() / dim * chunks, 0);
            starts.par_chunks_mut(chunks).enumerate().for_each(|(k, starts)| {
                let hash = row_hash(first_row + k as u32);
                (0..).zip(starts).for_each(|(j, start)| *start = chunk_start(hash, j, robe.starts));
            });
            let shares = sums.par_chunks_mut(share).zip(reads.par_chunks_mut(share));
            shares.enumerate().for_each(|(k, (sums, reads))| {
                let from = k * share;
                let rows = starts.chunks_exact(chunks).zip(values.chunks_exact(dim)).enumerate();
                for (row, (starts, values)) in rows {
                    let uses = uses.map_or(1.0, |uses| f64::from(uses[first_row as usize + row]));
                    for (&start, values) in starts.iter().zip(values.chunks(config.chunk as usize)) {
                        let start = start as usize;
                        let (begin, end) = (start.max(from), (start + values.len()).min(from + sums.len()));
                        if begin < end {
                            let values = &values[begin - start..end - start];
                            let own = begin - from..end - from;
                            for ((sum, reads), &x) in sums[own.clone()].iter_mut().zip(&mut reads[own]).zip(values) {
                                *sum += uses * f64::from(x);
                                *reads += uses;
                            }
                        }
                    }
                }
            });
        })?;
        let mut weights = zeroed("weights", n)?;
        for ((weight, &sum), &reads) in weights.iter_mut().zip(&sums).zip(&reads) {
            *weight = if reads > 0.0 { (sum / reads) as f32 } else { 0.0 };
        }
        Ok(Self { config: config.clone(), weights, reads, weighted: uses.is_some() })
    }

    /// How rows share the weights.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The weights, |M| of them: what [`write_weights`](crate::CpuRobeGroup::write_weights) takes.
    #[must_use]
    pub fn weights(&self) -> &[f32] {
        &self.weights
    }

    /// As [`weights`](Self::weights), and nothing else is kept.
    #[must_use]
    pub fn into_weights(self) -> Vec<f32> {
        self.weights
    }

    /// How many elements read each weight, or with uses how often it is read: 0 of some, the load on average.
    #[must_use]
    pub fn reads(&self) -> &[f64] {
        &self.reads
    }

    /// What the array loses of these rows of the table.
    ///
    /// # Errors
    /// As [`Fidelity::new`].
    pub fn fidelity(&self, table: &dyn Source, rows: &[u32]) -> Result<Fidelity, Error> {
        Fidelity::new(&self.config, &self.weights, table, rows)
    }

    /// The share of their variance that these rows' elements would lose, were all elements of the table independent and of one
    /// variance: the mean of `1 - 1/c` over them, c being the elements that read an element's weight. None of a fit with uses.
    ///
    /// # Errors
    /// [`Error::RowOutOfRange`].
    pub fn unlike_share(&self, rows: &[u32]) -> Result<Option<f64>, Error> {
        check_rows(&self.config, rows, "Fit::unlike_share")?;
        if self.weighted || rows.is_empty() {
            return Ok(None);
        }
        let Config { dim, weights, chunk, .. } = self.config;
        let lost = |row| {
            (0..dim).map(|element| 1.0 - 1.0 / self.reads[location(row, element, weights, chunk) as usize]).sum::<f64>()
        };
        let each: Vec<f64> = rows.par_iter().map(|&row| lost(row)).collect();
        Ok(Some(each.iter().sum::<f64>() / rows.len() as f64 / f64::from(dim)))
    }
}

/// The rows of all tables, if there can be such tables and the source has them.
pub(crate) fn checked(config: &Config, source: &dyn Source) -> Result<u32, Error> {
    config.check()?;
    let rows = config.rows().total_rows() as u32;
    source.check(rows, config.dim as usize)?;
    Ok(rows)
}

pub(crate) fn check_rows(config: &Config, given: &[u32], call: &'static str) -> Result<(), Error> {
    let rows = config.rows().total_rows() as u32;
    match given.iter().position(|&row| row >= rows) {
        None => Ok(()),
        Some(place) => Err(Error::RowOutOfRange { call, rows, position: place as u32, row: given[place] }),
    }
}

/// Hands all rows on, block by block, in order: first row, `[rows, dim]`.
pub(crate) fn blocks(
    source: &dyn Source,
    dim: usize,
    rows: u32,
    mut take: impl FnMut(u32, &[f32]),
) -> Result<(), Error> {
    let block = (BLOCK / dim).clamp(1, rows.max(1) as usize);
    let mut values = zeroed("block of rows", block * dim)?;
    for first_row in (0..rows).step_by(block) {
        let values = &mut values[..block.min((rows - first_row) as usize) * dim];
        let part = (PART / dim).max(1);
        let failed = values.par_chunks_mut(part * dim).enumerate().find_map_first(|(k, values)| {
            let first_row = first_row + (k * part) as u32;
            read(source, first_row, dim, values).err()
        });
        if let Some(error) = failed {
            return Err(error);
        }
        take(first_row, values);
    }
    Ok(())
}

/// Neighbouring rows, every value finite.
pub(crate) fn read(source: &dyn Source, first_row: u32, dim: usize, values: &mut [f32]) -> Result<(), Error> {
    source.rows(first_row, dim, values)?;
    let Some(place) = values.iter().position(|x| !x.is_finite()) else { return Ok(()) };
    Err(Error::Source {
        name: "source".into(),
        row: first_row + (place / dim) as u32,
        wanted: "finite values".into(),
        found: format!("{} at element {}", values[place], place % dim),
        remedy: "correct the row",
    })
}
