//! Fits the shared array that is nearest to a table.

use crate::{
    Error,
    fidelity::{
        no_answer,
        rows::{blocks, checked, zeroed},
    },
};
use hotrow::{Source, robe::Config};
use rayon::prelude::*;

/// The shared array that is nearest to a table in least squares, as [`write_weights`](hotrow::CpuSharedGroup::write_weights) takes it: each weight is the mean
/// of the elements that read it, and 0 if none does.
///
/// One pass over the rows, on all cores, block by block, with sums in FP64. The bits do not depend on the number of cores. `config` decides how rows share
/// weights: by its tables, dim, weights and chunk. `uses` tells how often each linear row is looked up; the mean is weighted by it. The fit takes 20 bytes a
/// weight and a block of 4 MiB (or one row, if that is longer).
///
/// # Errors
/// [`Config`](hotrow::Error::Config); the errors of `rows`; [`Source`](hotrow::Error::Source) for the first row with a value that is not finite;
/// [`Length`](hotrow::Error::Length) unless `uses` has one value for each row; [`Error::Argument`] if all uses are 0;
/// [`OutOfMemory`](hotrow::Error::OutOfMemory).
///
/// Example: the [module](crate::fidelity).
pub fn fit(config: &Config, rows: &dyn Source, uses: Option<&[u32]>) -> Result<Vec<f32>, Error> {
    let total = checked(config, rows)?;
    if let Some(uses) = uses {
        let (wanted, found) = (u64::from(total), uses.len() as u64);
        if wanted != found {
            return Err(hotrow::Error::Length { what: "uses", wanted, found }.into());
        }
        if uses.iter().all(|&uses| uses == 0) {
            return Err(no_answer("uses", "at least one row that is used", &"none"));
        }
    }
    let (dim, chunks) = (config.dim as usize, config.dim.div_ceil(config.chunk) as usize);
    // For each weight: the sum of the elements that read it, and their number.
    let n = config.weights as usize;
    let (mut sums, mut reads): (Vec<f64>, Vec<f64>) = (zeroed("sums", n)?, zeroed("reads", n)?);
    let mut starts: Vec<u32> = Vec::new();
    // One thread sums a weight and meets its elements in the order of the rows.
    let share = n.div_ceil(rayon::current_num_threads());
    blocks(rows, dim, total, |first_row, values| {
        starts.resize(values.len() / dim * chunks, 0);
        starts.par_chunks_mut(chunks).enumerate().for_each(|(k, starts)| {
            let start_of = |j| config.location(first_row + k as u32, j * config.chunk) as u32;
            (0..).zip(starts).for_each(|(j, start)| *start = start_of(j));
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
    Ok(weights)
}
