//! The shared array that is nearest to a table.

use rayon::prelude::*;

use crate::{
    error::Error,
    host::alloc::zeroed,
    robe::{
        config::Config,
        fidelity::{
            measure::Fidelity,
            rows::{blocks, check_rows, checked},
        },
        hash::{chunk_start, location, row_hash},
    },
    source::Source,
};

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
