//! The calls that every kind of table takes: all that a trainer needs.

use crate::{
    config::GroupConfig,
    error::Error,
    host::alloc::{room, zeroed},
    lookup::outputs::OutputSlice,
    memory::MemoryReport,
    robe::{RobeSnapshot, config::Config},
    scaler::GradSlice,
    table::{
        abi::ScalerState, batch::Bags, counters::Counters, layout::Layout, params::Mode, parts::Part,
        snapshot::Snapshot,
    },
};

pub(crate) mod outputs;
#[cfg(all(feature = "ranks", not(target_family = "wasm")))]
pub(crate) mod shard;

/// Tables that are looked up and trained, whether rows with a cache ([`Embedding`]) or one shared array ([`SharedArray`]) hold their
/// weights. Each call waits for its result.
///
/// An index counts within its table. `offsets` has one entry for each bag and one more; the bags come feature by feature, the same
/// number for each. Outputs and gradients are row-major: `[bags, dim]`, or `[indices, dim]` with [`Pooling::None`](crate::Pooling::None).
///
/// On a GPU each call first returns the error of an earlier encoded step that was skipped, if there is one. In that case the call has done
/// nothing and may be made again.
///
/// ```
/// use hotrow::{Bags, CpuGroup, CpuSharedGroup, Error, GroupConfig, Lookup, Mode, robe};
///
/// // A program that takes either kind.
/// fn sums(table: &mut dyn Lookup) -> Result<Vec<f32>, Error> {
///     table.forward(Bags::new(&[1, 2, 3], &[0, 2, 3]), Mode::Frozen) // two bags: rows 1 and 2, row 3
/// }
///
/// assert_eq!(sums(&mut CpuGroup::new(GroupConfig::new(&[10], 4))?)?, [0.0; 8]);
/// assert_eq!(sums(&mut CpuSharedGroup::new(robe::Config::new(&[10], 4, 16, 4))?)?.len(), 8);
/// # Ok::<(), Error>(())
/// ```
pub trait Lookup {
    /// Whether a forward waits for its backward.
    #[must_use]
    fn pending(&self) -> bool;

    /// Gives up the backward of the last training forward: its gradient is not wanted. The forward's work (step number, stamps, frequencies,
    /// admissions, counters) remains. Without such a forward nothing happens.
    fn discard_pending(&mut self);

    /// Number of floats that a forward of `indices` indices in `bags` bags writes.
    #[must_use]
    fn output_len(&self, indices: usize, bags: usize) -> usize;

    /// Runs a forward (SPEC 3) into `outputs`, FP32 or FP16, which has [`output_len`](Self::output_len) of them. With [`Mode::Train`] it is one
    /// step; with [`Mode::Frozen`] nothing changes: no step, stamp, frequency, admission or counter.
    ///
    /// An FP16 output is the FP32 one rounded to the nearest half, ties to even. Magnitudes beyond 65504 become 65504, infinity stays
    /// infinite, and every NaN becomes 0x7e00. On a GPU the device rounds, so half the bytes come to the host; an encoded forward writes
    /// halves to an [`FloatBuffer::F16`](crate::FloatBuffer::F16). [`OutputSlice::with_floats`] gives a kind of table FP16 outputs.
    ///
    /// # Errors
    /// [`Error::Length`] for outputs of another length; [`Error::BadOffsets`] and [`Error::IndexOutOfRange`]; [`Error::Order`] for a step if the
    /// last one waits for its backward, whose gradient would be lost. After an error tables and outputs are as they were.
    fn forward_into(&mut self, bags: Bags<'_>, mode: Mode, outputs: OutputSlice<'_>) -> Result<(), Error>;

    /// Runs a forward, as [`forward_into`](Self::forward_into), and returns its outputs.
    ///
    /// # Errors
    /// As [`forward_into`](Self::forward_into); [`Error::OutOfMemory`] if the host has no room for the outputs.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn forward(&mut self, bags: Bags<'_>, mode: Mode) -> Result<Vec<f32>, Error> {
        let (mut outputs, found) =
            room("outputs", self.output_len(bags.indices.len(), bags.offsets.len().saturating_sub(1)));
        // A call without room is refused; over several ranks the others wait for it.
        let done = self.forward_into(bags, mode, OutputSlice::F32(&mut outputs));
        found.and(done).map(|()| outputs)
    }

    /// Updates each row that the last forward has read (in a shared array: each weight) once, with the sum of its gradients. `grad_outputs`
    /// has the gradients of the outputs.
    ///
    /// # Errors
    /// [`Error::Order`] without a forward before it, [`Error::Length`] for the wrong number of gradients.
    fn backward(&mut self, grad_outputs: &[f32]) -> Result<(), Error>;

    /// As [`backward`](Self::backward), with gradients of a loss that was multiplied by a scale (SPEC 8), FP32 or FP16. Each gradient is
    /// multiplied by the scaler's inverse, in FP32, before gradients are added. `scaler` is the decision of a
    /// [`CpuScaler`](crate::CpuScaler) on the gradients of this step, of all groups and of the rest of the model. If they overflowed, no
    /// row, state, dirty flag or counter changes. The forward's work (step number, stamps, frequencies, admissions) remains.
    ///
    /// # Errors
    /// As [`backward`](Self::backward); [`Error::Order`] for a scaler that has not decided yet.
    fn backward_scaled(&mut self, grad_outputs: GradSlice<'_>, scaler: &ScalerState) -> Result<(), Error>;

    /// Returns the gradient of the last forward's loss with respect to each index's weight (TBE's gradient of `indice_weights`): the dot
    /// product of the row, as that forward read it, and the gradient of its output row; with mean pooling divided by the number of rows of
    /// its bag. An index that is left out has gradient 0. `bags` are that forward's; their weights are not read, and it may have had none.
    /// `grad_outputs` has the gradients of its outputs. Nothing changes, and the forward still waits for its backward. With gradients of a
    /// scaled loss the result is scaled likewise.
    ///
    /// ```
    /// use hotrow::{Bags, CpuGroup, Error, GroupConfig, Init, Mode, prelude::*};
    ///
    /// let mut group = CpuGroup::new(GroupConfig::new(&[100], 2).with_init(Init::Constant(3.0)))?;
    /// let (indices, offsets) = ([5, 6], [0, 2]);
    /// group.forward(Bags::new(&indices, &offsets).with_weights(Some(&[0.25, 0.75])), Mode::Train)?;
    /// assert_eq!(group.weight_gradient(Bags::new(&indices, &offsets), &[1.0, 2.0])?, [9.0, 9.0]); // 3 * 1 + 3 * 2
    /// group.backward(&[1.0, 2.0])?;
    /// assert!(group.weight_gradient(Bags::new(&indices, &offsets), &[1.0, 2.0]).is_err());
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Order`] unless a forward waits for its backward, and for an index outside its table, which no forward of this batch can have
    /// accepted; [`Error::Length`] for a batch or gradients of another shape; [`Error::BadOffsets`]; [`Error::OutOfMemory`].
    fn weight_gradient(&mut self, bags: Bags<'_>, grad_outputs: &[f32]) -> Result<Vec<f32>, Error>;

    /// Reads the newest weights of linear rows, flushed or not: `[rows, dim]`.
    ///
    /// # Errors
    /// [`Error::RowOutOfRange`] names the first row that does not exist.
    fn read_rows(&mut self, rows: &[u32]) -> Result<Vec<f32>, Error>;

    /// Sets the learning rate from the next backward on.
    ///
    /// # Errors
    /// [`Error::Config`] for a rate that is not finite; the old one stays.
    fn set_learning_rate(&mut self, lr: f32) -> Result<(), Error>;

    /// The counters of each table. A shared array counts `accesses`, `out_of_range`, bytes, and `skipped_rows`. The last one counts weights
    /// there, all under the first table. The bytes count dim weights an access, read in forward and written in backward; fewer are
    /// written where rows repeat or chunks overlap.
    ///
    /// # Errors
    /// [`Error::Device`] if the device is lost.
    fn counters(&mut self) -> Result<Vec<Counters>, Error>;

    /// The counters of each table, without waiting. A GPU group returns the newest report that has arrived, and requests another;
    /// before the first report it returns `None`. Encoded steps count once the device has executed them. A CPU group returns the current
    /// counters.
    ///
    /// # Errors
    /// [`Error::Device`] if the device is lost.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn try_counters(&mut self) -> Result<Option<Vec<Counters>>, Error> {
        self.counters().map(Some)
    }

    /// The bytes that the group has allocated, by purpose. A group on the CPU reports what a group on a device has before its first batch,
    /// the 80 bytes of its report included, but no step scratch.
    fn memory(&self) -> MemoryReport;

    /// The calls of a table that has rows of its own, cached or not.
    ///
    /// ```
    /// use hotrow::{CpuGroup, Error, GroupConfig, Lookup};
    ///
    /// fn flush(table: &mut dyn Lookup) -> Result<(), Error> {
    ///     // A shared array has no cache.
    ///     table.as_embedding().map_or(Ok(()), |rows| rows.flush())
    /// }
    ///
    /// flush(&mut CpuGroup::new(GroupConfig::new(&[10], 4))?)
    /// # ; Ok::<(), Error>(())
    /// ```
    fn as_embedding(&mut self) -> Option<&mut dyn Embedding> {
        None
    }

    /// The calls of a shared array. A table that is neither, such as rows on several ranks, has methods of its own.
    fn as_shared_array(&mut self) -> Option<&mut dyn SharedArray> {
        None
    }
}

/// A parameter-shared table ([`robe`](crate::robe)), on a GPU or on the CPU.
///
/// ```
/// use hotrow::{Bags, CpuSharedGroup, Error, Lookup, Mode, SharedArray, robe};
///
/// fn steps(table: &mut dyn SharedArray) -> Result<u32, Error> {
///     Ok(table.snapshot()?.t)
/// }
///
/// let mut table = CpuSharedGroup::new(robe::Config::new(&[10], 4, 16, 4))?;
/// table.forward(Bags::new(&[1], &[0, 1]), Mode::Train)?;
/// assert_eq!(steps(&mut table)?, 1);
/// # Ok::<(), Error>(())
/// ```
pub trait SharedArray: Lookup {
    /// The configuration.
    fn config(&self) -> &Config;

    /// A copy of the state that the array keeps between steps.
    ///
    /// # Errors
    /// [`Error::Device`] if the device is lost.
    fn snapshot(&mut self) -> Result<RobeSnapshot, Error>;

    /// Restores a snapshot.
    ///
    /// # Errors
    /// [`Error::Snapshot`] for a snapshot of another configuration; the array stays as it was.
    fn restore(&mut self, snapshot: &RobeSnapshot) -> Result<(), Error>;

    /// Returns the gradient of the last forward's loss with respect to the shared weights (ROBE, sections 2.4 and 3), one float for each
    /// weight: the sum over all chunks that cover it, in the order of [`backward`](Lookup::backward), and -0.0 where no chunk of the batch
    /// lies. It includes neither the optimiser's rule nor weight decay, and is not finite where a gradient of the outputs was not.
    /// `grad_outputs` has the gradients of the outputs, FP32 or FP16. No weight changes, and the forward still waits for its backward.
    ///
    /// # Errors
    /// As [`backward`](Lookup::backward); [`Error::OutOfMemory`]; [`Error::TooLarge`] for more weights than a device binds at once.
    fn gradient(&mut self, grad_outputs: GradSlice<'_>) -> Result<Vec<f32>, Error>;

    /// Moves the shared weights by a gradient of them, one float for each, in place of the last forward's [`backward`](Lookup::backward): with
    /// the array's rule, step number and random bits. By [`gradient`](Self::gradient)'s floats it gives the bits of `backward`; by their sum
    /// over several ranks, each with bags of its own, it gives the same bits on all. A weight whose gradient is -0.0 stays as it is, states
    /// too, as one that no chunk of the batch covers; one whose gradient or new value is not finite stays and is counted. -0.0 added to any
    /// number leaves that number, but a sum that begins with +0.0 loses it: momentum, Adam and weight decay then move every weight. If no
    /// index of the forward counted, the step advances the step number.
    ///
    /// ```
    /// use hotrow::{Bags, CpuSharedGroup, Error, GradSlice, Mode, prelude::*, robe};
    ///
    /// let config = robe::Config::new(&[1000], 4, 64, 4);
    /// let [mut one, mut other] = [CpuSharedGroup::new(config.clone())?, CpuSharedGroup::new(config)?];
    /// let outputs = one.forward(Bags::new(&[7, 9], &[0, 2]), Mode::Train)?;
    /// let gradient = one.gradient(GradSlice::F32(&outputs))?;
    /// one.step(&gradient)?;
    /// other.forward(Bags::new(&[7, 9], &[0, 2]), Mode::Train)?;
    /// other.backward(&outputs)?;
    /// assert_eq!(one.snapshot(), other.snapshot());
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Order`] without a forward before it; [`Error::Length`] unless there is a float for each weight; [`Error::TooLarge`] for more
    /// weights than a device binds at once.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn step(&mut self, gradient: &[f32]) -> Result<(), Error> {
        self.step_scaled(gradient, &ScalerState::unscaled_decision())
    }

    /// As [`step`](Self::step), with the gradient of a loss that was multiplied by a scale (SPEC 8): each float is multiplied by the scaler's
    /// inverse. `scaler` is one decision on the gradients of all ranks. If they overflowed, no weight, state or counter changes.
    ///
    /// # Errors
    /// As [`step`](Self::step); [`Error::Order`] for a scaler that has not decided yet.
    fn step_scaled(&mut self, gradient: &[f32], scaler: &ScalerState) -> Result<(), Error>;
}

/// A group of tables whose rows are cached in FP32, on a GPU or on the CPU. [`Lookup`] has the calls of training; this trait has the calls
/// for the cache, for single rows and for a group's whole state. Each call waits for its result.
///
/// ```
/// use hotrow::{CpuGroup, Embedding, Error, GroupConfig};
///
/// // A program that takes a group of any backend.
/// fn hold(group: &mut dyn Embedding) -> Result<Vec<u32>, Error> {
///     group.pin(&[7, 3], 16)?;
///     group.pinned()
/// }
///
/// let mut config = GroupConfig::new(&[1000], 4);
/// config.cache_rows = 64;
/// assert_eq!(hold(&mut CpuGroup::new(config)?)?.len(), 2);
/// # Ok::<(), Error>(())
/// ```
pub trait Embedding: Lookup {
    /// The configuration, with the learning rate that is set now.
    fn config(&self) -> &GroupConfig;

    #[doc(hidden)]
    fn layout(&self) -> &Layout;

    /// Number of rows that the cache can hold.
    fn cache_slots(&self) -> u32 {
        self.layout().slots()
    }

    /// Bytes of a packed row, and of the part before its weights: scale, bias and the optimiser's state.
    fn record_bytes(&self) -> [u64; 2] {
        let row = &self.layout().row;
        [row.stride(), 2 * u64::from(row.payload_half)]
    }

    /// Decides the next step, that is the rows to admit and to evict, while the last step may still wait for its backward. A staged table's
    /// missing rows are fetched in the background. The last step's `backward` may follow, then
    /// [`forward_prefetched`](Self::forward_prefetched); every other call is refused until then. Outputs, tags and tables have the
    /// bits that `forward` gives.
    ///
    /// # Errors
    /// As [`Lookup::forward`] for the batch's shape; `forward_prefetched` returns the error of a bad index. [`Error::Order`] if another
    /// prefetched batch waits for its forward.
    fn prefetch(&mut self, bags: Bags<'_>) -> Result<(), Error>;

    /// Runs the forward of the prefetched batch.
    ///
    /// # Errors
    /// As [`Lookup::forward`]; [`Error::Order`] without a prefetch.
    fn forward_prefetched(&mut self) -> Result<Vec<f32>, Error>;

    /// Writes every dirty row to the table and marks it clean.
    ///
    /// # Errors
    /// [`Error::Device`] if the device is lost.
    fn flush(&mut self) -> Result<(), Error>;

    /// Flushes, then empties the cache. The step number and the frequencies stay.
    ///
    /// # Errors
    /// [`Error::Order`] between forward and backward.
    fn reset(&mut self) -> Result<(), Error>;

    /// Empties the cache without a flush. Changes that were not written back are lost.
    ///
    /// # Errors
    /// [`Error::Order`] between forward and backward.
    fn reset_discarding(&mut self) -> Result<(), Error>;

    /// Replaces the weights of linear rows; the optimiser state stays, but FTRL's y becomes that of the new weight. If a row is listed twice, its last value counts. A row whose new
    /// value is not finite keeps its old one and counts as skipped. A row in the cache is FP32 there; others are rounded by
    /// [`GroupConfig::write_rounding`].
    ///
    /// # Errors
    /// [`Error::RowOutOfRange`], [`Error::Length`], and [`Error::Order`] between forward and backward.
    fn write_rows(&mut self, rows: &[u32], values: &[f32]) -> Result<(), Error>;

    /// Pins exactly `rows` (linear rows, hottest first; a row listed twice counts once), except those that it returns: rows whose set has
    /// `ways` pinned rows before them in the list, in the order given. A pinned row is in the cache and is never a victim; in all other
    /// respects it is an ordinary row. Rows that are no longer pinned stay as ordinary rows; under
    /// [`Policy::Static`](crate::Policy::Static) they leave.
    ///
    /// The cache is flushed first. A resident row keeps its slot; any other row is loaded into the slot that admission would give it, with
    /// the stamp of the last step. The step number stays. A loaded row counts as unique, as missed and as admitted; a row that leaves for
    /// it counts as evicted; none counts as access or hit. Pins change no value of an FP32 table. They are part of [`Part::Ways`], so
    /// snapshots and checkpoints keep them; [`reset`](Self::reset) forgets them.
    ///
    /// Source: SCARS, section II-B, the hot rows held in the device's memory. `ways` leaves room in each set for other rows.
    ///
    /// # Errors
    /// [`Error::Pins`] unless `ways` is 1 to [`GroupConfig::ways`], and for rows to pin without a cache; [`Error::RowOutOfRange`] names the
    /// first row that does not exist; [`Error::Order`] between forward and backward. After these errors nothing has changed.
    /// [`Error::Store`] if a staged table's store fails: the rows to load are not in the cache, and the call may be made again.
    fn pin(&mut self, rows: &[u32], ways: u32) -> Result<Vec<u32>, Error>;

    /// The pinned rows, in slot order.
    ///
    /// # Errors
    /// [`Error::Device`] if the device is lost.
    fn pinned(&mut self) -> Result<Vec<u32>, Error>;

    /// Gives the cache another size, rounded up to whole sets; 0 means no cache. The cache is flushed and emptied. Then the pinned rows, in
    /// slot order, are pinned again as by [`pin`](Self::pin); it returns those that find no way. Step number, table, frequencies and
    /// counters stay.
    ///
    /// # Errors
    /// [`Error::Config`] for more rows than the group has, [`Error::TooLarge`], [`Error::OutOfMemory`], and [`Error::Order`] between
    /// forward and backward. After these errors nothing has changed. [`Error::Store`] if a staged table's store fails: during the flush
    /// nothing has changed; later the cache has its new size (see [`cache_slots`](Self::cache_slots)), and rows that were not loaded are not pinned.
    fn resize_cache(&mut self, cache_rows: u32) -> Result<Vec<u32>, Error>;

    /// Reads `out.len()` words of a part, from `first_word` on.
    ///
    /// # Errors
    /// [`Error::Length`] past the part's end, [`Error::Device`] if the device is lost.
    fn read_part(&mut self, part: Part, first_word: u64, out: &mut [u32]) -> Result<(), Error>;

    /// Replaces words of a part, from `first_word` on. [`Part::Ways`] takes whole sets, 4 words a way, after [`Part::Clock`]. It refuses
    /// metadata that no group can have at that step. A forward still waits for its backward only if step number and ways are those that it
    /// left.
    ///
    /// # Errors
    /// [`Error::Length`] past the part's end, or for a part of a set; [`Error::Snapshot`]; [`Error::Config`] for a frequency above
    /// [`CounterBits::most`](crate::CounterBits::most). After these errors nothing has changed.
    /// [`Error::Device`] if the device is lost.
    fn write_part(&mut self, part: Part, first_word: u64, words: &[u32]) -> Result<(), Error>;

    /// Copies the state that the group keeps between steps into memory. Meant for tests and inspection; a checkpoint streams instead.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the host has no room for the copy, [`Error::Device`] if the device is lost.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn snapshot(&mut self) -> Result<Snapshot, Error> {
        let words = |this: &Self, part: Part| part.words(this.config(), this.layout()) as usize;
        let mut whole = |part| {
            let mut all = zeroed("snapshot", words(self, part))?;
            self.read_part(part, 0, &mut all)?;
            Ok::<_, Error>(all)
        };
        let (clock, counters, ways) = (whole(Part::Clock)?, whole(Part::Counters)?, whole(Part::Ways)?);
        let (records, freqs, since) = (whole(Part::Records)?, whole(Part::Frequencies)?, whole(Part::Since)?);
        let since = Part::since(&since);
        let mut cache = zeroed("snapshot", words(self, Part::Cache))?;
        self.read_part(Part::Cache, 0, bytemuck::cast_slice_mut(&mut cache))?;
        let counters = Counters::from_part(&counters, self.layout().stride());
        Ok(Snapshot { t: clock[0], ways, cache, records, freqs, since, counters })
    }

    /// Restores a snapshot of a group of the same configuration, taken on any backend. A forward still waits for its backward only if step
    /// number and cache metadata are those that it left.
    ///
    /// # Errors
    /// [`Error::Length`] names the first part of another size, [`Error::Snapshot`] metadata that no group can have, [`Error::Config`] a
    /// frequency above [`CounterBits::most`](crate::CounterBits::most). After these errors nothing has changed. [`Error::Device`] if the device is lost.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), Error> {
        snapshot.check(self.config(), self.layout())?;
        self.write_part(Part::Clock, 0, &[snapshot.t])?;
        self.write_part(Part::Counters, 0, &Counters::to_part(&snapshot.counters))?;
        self.write_part(Part::Ways, 0, &snapshot.ways)?;
        self.write_part(Part::Cache, 0, bytemuck::cast_slice(&snapshot.cache))?;
        self.write_part(Part::Records, 0, &snapshot.records)?;
        self.write_part(Part::Frequencies, 0, &snapshot.freqs)?;
        self.write_part(Part::Since, 0, &snapshot.since_words())
    }
}
