//! Reads the rows of a source block by block.

use hotrow::{Error, Source, robe::Config};

/// Floats of a block of rows.
const BLOCK: usize = 1 << 20;

/// Checks that such tables can exist and that the source has their rows. Returns the number of rows.
pub(crate) fn checked(config: &Config, source: &dyn Source) -> Result<u32, Error> {
    config.check()?;
    let rows = config.tables.iter().sum();
    source.check(rows, config.dim as usize)?;
    Ok(rows)
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
        read(source, first_row, dim, values)?;
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
