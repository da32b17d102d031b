//! Reads the rows of a source block by block.

use rayon::prelude::*;

use hotrow::{Error, Source, robe::Config};

/// Floats of a block of rows, and of the part that one thread reads at once.
const BLOCK: usize = 1 << 20;
const PART: usize = 1 << 14;

/// Checks that such tables can exist and that the source has their rows. Returns the number of rows.
pub(crate) fn checked(config: &Config, source: &dyn Source) -> Result<u32, Error> {
    config.check()?;
    let rows = config.tables.iter().sum();
    source.check(rows, config.dim as usize)?;
    Ok(rows)
}

pub(crate) fn check_rows(config: &Config, given: &[u32], call: &'static str) -> Result<(), Error> {
    let rows = config.tables.iter().sum();
    match given.iter().position(|&row| row >= rows) {
        None => Ok(()),
        Some(place) => Err(Error::RowOutOfRange { call, rows, position: place as u32, row: given[place] }),
    }
}

/// Allocates `n` zeros.
pub(crate) fn zeroed<T: Copy + Default>(what: &'static str, n: usize) -> Result<Vec<T>, Error> {
    let mut data = Vec::new();
    data.try_reserve_exact(n).map_err(|_| Error::OutOfMemory { what, bytes: n as u64 * size_of::<T>() as u64 })?;
    data.resize(n, T::default());
    Ok(data)
}

/// Calls `take` with all rows, block by block, in order: first row, values `[rows, dim]`.
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

/// Reads neighbouring rows and checks that every value is finite.
pub(crate) fn read(source: &dyn Source, first_row: u32, dim: usize, values: &mut [f32]) -> Result<(), Error> {
    source.rows(first_row, dim, values)?;
    let Some(place) = values.iter().position(|x| !x.is_finite()) else { return Ok(()) };
    Err(Error::Source {
        name: "source".into(),
        row: first_row + (place / dim) as u32,
        wanted: "finite values".into(),
        found: format!("{} at element {}", values[place], place % dim),
        remedy: "correct the row",
        source: None,
    })
}
