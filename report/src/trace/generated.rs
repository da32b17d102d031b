//! `zipf:rows=..,s=..[,n=..]`: independent ids; id i has probability ~ (i + 1)^-s. `drift:rows=..,s=..,every=..[,n=..]`: as zipf, but
//! after every so many accesses all ids move on by the golden part of the rows, so that other ids are popular. `uniform:rows=..[,n=..]`: every id is equally
//! likely, so a cache cannot help.

use super::error::TraceError;
use super::spec::{DEFAULT_ACCESSES, accesses, exponent, room, rows};
use crate::spec::Spec;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Zipf};
use rand_pcg::Pcg64;

pub(super) fn zipf(spec: &Spec<'_>, seed: u64) -> Result<Vec<u32>, TraceError> {
    let rows = spec.required("rows", rows)?;
    let s = spec.required("s", exponent)?;
    let n = spec.number("n", accesses)?.unwrap_or(DEFAULT_ACCESSES);
    let ranks = Zipf::new(rows as f64, s)
        .map_err(|error| format!("wanted a Zipf distribution, found none: {error}; take another s"))?;
    let mut ids = room(n)?;
    let last = (rows - 1) as u32;
    // Ranks run from 1 to `rows`; the minimum guards against rounding.
    ids.extend(ranks.sample_iter(Pcg64::seed_from_u64(seed)).take(n as usize).map(|rank| (rank as u32 - 1).min(last)));
    Ok(ids)
}

pub(super) fn drift(spec: &Spec<'_>, seed: u64) -> Result<Vec<u32>, TraceError> {
    let every = spec.required("every", accesses)? as usize;
    let rows = spec.required("rows", rows)?;
    let mut ids = zipf(spec, seed)?;
    // Any few stretches that follow one another have their popular ids far apart.
    let step = (rows as f64 * 0.618_033_988_749_895) as u64;
    for (stretch, ids) in (0..).zip(ids.chunks_mut(every)) {
        ids.iter_mut().for_each(|id| *id = ((u64::from(*id) + stretch * step) % rows) as u32);
    }
    Ok(ids)
}

pub(super) fn uniform(spec: &Spec<'_>, seed: u64) -> Result<Vec<u32>, TraceError> {
    let rows = spec.required("rows", rows)? as u32;
    let n = spec.number("n", accesses)?.unwrap_or(DEFAULT_ACCESSES);
    let mut random = Pcg64::seed_from_u64(seed);
    let mut ids = room(n)?;
    ids.extend((0..n).map(|_| random.random_range(0..rows)));
    Ok(ids)
}
