//! `uniform:rows=..[,n=..]`: every id is equally likely, so a cache cannot help.

use super::error::TraceError;
use super::limits::room;
use super::spec::{DEFAULT_ACCESSES, Spec};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

pub(super) fn generate(spec: &Spec<'_>, seed: u64) -> Result<Vec<u32>, TraceError> {
    let rows = spec.required("rows", spec.rows()?)? as u32;
    let n = spec.accesses()?.unwrap_or(DEFAULT_ACCESSES);
    let mut random = Pcg64::seed_from_u64(seed);
    let mut ids = room(spec.text(), n)?;
    ids.extend((0..n).map(|_| random.random_range(0..rows)));
    Ok(ids)
}
