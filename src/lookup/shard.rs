//! What a cached group does as one part of a group over several ranks (SPEC 11).

use crate::{error::Error, lookup::Embedding, record::wire::WireForm, table::abi::ScalerState};

/// A cached group that can be a virtual shard of a group over several ranks (SPEC 11): its configuration is one of [`shards`](crate::ranks::shards).
/// `hotrow_dist::Group` makes these calls; its programs only make the shards. Rows are linear rows of this group.
///
/// A step is `fetch`, then `send_rows` as often as ranks ask for rows, then `apply` or [`discard_pending`](crate::Lookup::discard_pending). As to order, a `fetch` is a forward and `apply` its
/// backward: calls that a group refuses between these two are refused between those. A `backward` after a `fetch`, and an `apply` after a `forward`, are
/// refused on the CPU. `send_rows` may be called at any other time, too, but not between `prefetch` and `forward_prefetched`.
///
/// ```
/// use hotrow::{CpuGroup, Error, GroupConfig, Init, Optimizer, Precision, ScalerState, prelude::*, ranks::{Shard, Wire, WireForm, shards}};
///
/// // Rows 1 and 3 of four, in FP32.
/// let config = GroupConfig::new(&[4], 2).with_precision(Precision::Fp32).with_init(Init::Constant(1.0));
/// let config = config.with_optimizer(Optimizer::sgd(0.5));
/// let mut shard = CpuGroup::new(shards(&config, 2)?.swap_remove(1).unwrap())?;
/// // Row 3, which two accesses of the batch of all ranks read.
/// shard.fetch(&[1], &[2])?;
/// let (mut message, mut rows) = (Vec::new(), Vec::new());
/// assert_eq!(shard.send_rows(&[1], WireForm::Exact, 0, &mut message)?, [true]); // without a cache each row is its record
/// assert!(Wire::received(2, Precision::Fp32, WireForm::Exact).take(1, &mut &message[..], &mut rows).is_some());
/// assert_eq!(rows, [1f32.to_bits(); 2]);
/// // Two output rows and their gradients: the accesses read one each.
/// shard.apply(&[[0, 0], [1, 0]], false, &[1.0, 0.0, 1.0, 2.0], &ScalerState::unscaled_decision())?;
/// assert_eq!(shard.read_rows(&[1])?, [0.0, 0.0]);
/// # Ok::<(), Error>(())
/// ```
pub trait Shard: Embedding {
    /// Runs the forward of a step, without outputs. `rows` are ascending and distinct, and `counts[i]` accesses of the batch of all ranks, at least one,
    /// read `rows[i]`. A forward without a row only counts as a step. `apply` is its backward.
    ///
    /// # Errors
    /// As [`Lookup::forward`](crate::Lookup::forward); [`Error::RowOutOfRange`]; [`Error::Length`].
    fn fetch(&mut self, rows: &[u32], counts: &[u32]) -> Result<(), Error>;

    /// The most bytes of outputs, or of gradients, that a call may have: on a device the most bytes of a buffer.
    fn most_bytes(&self) -> u64 {
        u64::MAX
    }

    /// Appends rows to a message, as a forward would read them now: packed where the row is its record and so shorter than in `form`, else in `form`.
    /// `step`, a number that is the same on all ranks, decides the random bits of a form that rounds. Returns for each row whether it is its record: a row
    /// that is not changes when it is written back.
    ///
    /// # Errors
    /// [`Error::RowOutOfRange`]; [`Error::Device`]; [`Error::Store`].
    fn send_rows(
        &mut self,
        rows: &[u32],
        form: WireForm,
        step: u32,
        message: &mut Vec<u32>,
    ) -> Result<Vec<bool>, Error>;

    /// Runs the backward of the last [`fetch`](Self::fetch). `accesses` has one entry for each access, in the order of the fetched rows: its row of
    /// `gradients`, and the bits of its factor. `gradients` is `[.., dim]`. Without `factors` every factor counts as 1, whatever its bits.
    ///
    /// # Errors
    /// As [`Lookup::backward_scaled`](crate::Lookup::backward_scaled).
    fn apply(
        &mut self,
        accesses: &[[u32; 2]],
        factors: bool,
        gradients: &[f32],
        scaler: &ScalerState,
    ) -> Result<(), Error>;
}

/// Checks what [`Shard::fetch`] is given. Returns the number of accesses.
pub(crate) fn check_fetch(group: &dyn Embedding, rows: &[u32], counts: &[u32]) -> Result<u32, Error> {
    if rows.len() != counts.len() {
        return Err(Error::Length { what: "counts", wanted: rows.len() as u64, found: counts.len() as u64 });
    }
    crate::table::batch::check_rows(group.layout(), rows, "fetch")?;
    let accesses = counts.iter().map(|&count| u64::from(count)).sum();
    crate::table::batch::check_shape(group.config(), accesses, 0, None)?;
    Ok(accesses as u32)
}

/// Checks what [`Shard::apply`] is given after a forward of `indices` accesses.
pub(crate) fn check_apply(indices: u32, dim: u32, accesses: &[[u32; 2]], gradients: usize) -> Result<(), Error> {
    let rows = gradients as u64 / u64::from(dim);
    let length = |what, wanted: u64, found: u64| Err(Error::Length { what, wanted, found });
    if accesses.len() as u64 != u64::from(indices) {
        return length("accesses", indices.into(), accesses.len() as u64);
    }
    let wanted = accesses.iter().map(|&[row, _]| u64::from(row) + 1).max().unwrap_or(0).max(rows) * u64::from(dim);
    if wanted != gradients as u64 { length("gradients", wanted, gradients as u64) } else { Ok(()) }
}
