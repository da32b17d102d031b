//! The sort and the dedup of a step for data of the caller's.

use crate::{
    error::Error,
    gpu::{
        engine::{bind::names, call::Call, context::Context},
        stages::sort::{
            dedup,
            space::{DedupTo, Pairs, SortJob, SortScratch, SortSpace},
        },
    },
    table::abi::{Step, count},
};

/// Stable sort and dedup of `u32` keys with `u32` values, encoded into the caller's encoder, on the caller's buffers.
///
/// A radix sort by 8 bits a pass, with three dispatches a pass; up to 1,024 keys take a single dispatch. Its cost depends on the number of
/// keys, which may be known to the device alone, and not on the capacity. No workgroup waits for another, so the sort is safe on every
/// device (reduce-then-scan: Merrill and Grimshaw 2011, "High Performance and Scalable Radix Sorting").
///
/// Results are in buffers of the sorter, with usage `STORAGE | COPY_SRC | COPY_DST`, until the next `encode_*` of the same sorter. Use or
/// copy them before that call's commands, in the same encoder or in an earlier submission.
///
/// ```
/// use hotrow::wgpu::util::DeviceExt as _;
/// use hotrow::{Sorter, adapter, wgpu};
///
/// # fn main() -> Result<(), hotrow::Error> {
/// // A program that has a device and a queue calls `Context::new`.
/// let Ok(context) = adapter::open_best() else { return Ok(()) };
/// let keys = context.device().create_buffer_init(&wgpu::util::BufferInitDescriptor {
///     label: None,
///     contents: bytemuck::cast_slice(&[7u32, 3, 7, 3, 7]),
///     usage: wgpu::BufferUsages::STORAGE,
/// });
/// let sorter = Sorter::new(&context, 5)?;
/// let mut encoder = context.device().create_command_encoder(&Default::default());
/// let found = sorter.encode_dedup(&mut encoder, keys.slice(..), None, None, 3)?;
/// // Bind them in passes of your own: keys 3 3 7 7 7, values 1 3 0 2 4, segment 0 0 1 1 1, starts 0 2, counts 2 5.
/// assert!(found.keys.size() >= 5 * 4 && found.counts.size() >= 2 * 4);
/// context.queue().submit([encoder.finish()]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Sorter {
    context: Context,
    capacity: u32,
    space: SortSpace,
    scratch: SortScratch,
    step: wgpu::Buffer,
    segment: wgpu::Buffer,
    starts: wgpu::Buffer,
    counts: wgpu::Buffer,
}

/// The result of a dedup of `n` keys, `valid` of which are not [`layout::NONE`](crate::table::abi::NONE).
///
/// Example: [`Sorter`].
#[derive(Clone, Copy, Debug)]
pub struct Distinct<'a> {
    /// `n` keys, ascending.
    pub keys: &'a wgpu::Buffer,
    /// `n` values, or positions.
    pub values: &'a wgpu::Buffer,
    /// For each of the `valid` sorted keys, the number of its distinct key, counted from 0.
    pub segment: &'a wgpu::Buffer,
    /// For each distinct key, the position of its first sorted key.
    pub starts: &'a wgpu::Buffer,
    /// Two words: the number of distinct keys, and `valid`.
    pub counts: &'a wgpu::Buffer,
}

impl Drop for Sorter {
    fn drop(&mut self) {
        self.context.forget_bindings();
    }
}

impl Sorter {
    /// Allocates buffers for up to `capacity` keys: 24.3 bytes a key.
    ///
    /// # Errors
    /// [`Error::TooLarge`] for more keys than the device can bind, [`Error::OutOfMemory`].
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn new(context: &Context, capacity: u32) -> Result<Self, Error> {
        let words = |what, n: u32| context.buffer(what, u64::from(n) * 4, wgpu::BufferUsages::empty());
        Ok(Self {
            context: context.clone(),
            capacity,
            space: SortSpace::new(context, capacity)?,
            scratch: SortScratch::new(context, capacity)?,
            step: context.buffer("step", size_of::<Step>() as u64, wgpu::BufferUsages::empty())?,
            segment: words("segment", capacity)?,
            starts: words("starts", capacity)?,
            counts: words("counts", 2)?,
        })
    }

    /// The most keys that it can sort.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Encodes a stable sort of `keys`, together with `values`, by the low `key_bits` bits of a key, at most 32. Fewer bits take fewer
    /// passes: one for each 8 bits, at least one.
    ///
    /// `keys` has `u32` keys, at most [`Sorter::capacity`]. `values` has at least as many `u32` as `keys`; `None` stands for the positions of the
    /// keys. Both need usage `STORAGE` and are not changed. `n` has the number of keys that count, the first ones: one `u32`, which the device
    /// reads when it executes the sort, at most the number of keys, in a buffer of usage `COPY_SRC` and at a multiple of 4 bytes; `None` stands for
    /// all.
    ///
    /// Returns the keys, ascending by these bits, and the value (or position) of each, as many as there are keys.
    ///
    /// # Errors
    /// [`Error::Buffer`] names the buffer that cannot be used, and the reason; [`Error::TooLarge`] for more than the device can bind.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn encode_sort(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        keys: wgpu::BufferSlice<'_>,
        values: Option<wgpu::BufferSlice<'_>>,
        n: Option<wgpu::BufferSlice<'_>>,
        key_bits: u32,
    ) -> Result<[&wgpu::Buffer; 2], Error> {
        self.context.guarded(|| {
            let job = self.job(encoder, keys, values, n, key_bits)?;
            let call = &mut Call::begin(&self.context, encoder, "hotrow.sort");
            let Pairs { keys, values } = self.space.encode(call, &self.step, &job, &self.scratch);
            Ok([keys, values])
        })
    }

    /// Encodes a sort as [`Sorter::encode_sort`] does, and then finds the distinct keys.
    ///
    /// The key [`layout::NONE`](crate::table::abi::NONE) is left out: it sorts last and counts as no key. If `key_bits` is below 32 and
    /// NONE occurs, all other keys must be below `2^key_bits - 1`.
    ///
    /// # Errors
    /// As [`Sorter::encode_sort`].
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn encode_dedup(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        keys: wgpu::BufferSlice<'_>,
        values: Option<wgpu::BufferSlice<'_>>,
        n: Option<wgpu::BufferSlice<'_>>,
        key_bits: u32,
    ) -> Result<Distinct<'_>, Error> {
        self.context
            .guarded(|| {
                let job = self.job(encoder, keys, values, n, key_bits)?;
                let (segment, starts, counts) = (&self.segment, &self.starts, &self.counts);
                let to = DedupTo { segment, starts, segments: count::UNIQUE, valid: count::VALID, base: None };
                let call = &mut Call::begin(&self.context, encoder, "hotrow.dedup");
                let Pairs { keys, values } = dedup::encode(call, &self.step, &job, &self.space, &self.scratch, &to);
                Ok(Distinct { keys, values, segment, starts, counts })
            })
            .inspect(|_| {
                for (i, which) in [count::UNIQUE, count::VALID].into_iter().enumerate() {
                    encoder.copy_buffer_to_buffer(&self.step, word(which), &self.counts, 4 * i as u64, 4);
                }
            })
    }

    /// Checks the caller's buffers, and encodes the copy of the number of keys.
    fn job<'b>(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        keys: wgpu::BufferSlice<'b>,
        values: Option<wgpu::BufferSlice<'b>>,
        n: Option<wgpu::BufferSlice<'_>>,
        key_bits: u32,
    ) -> Result<SortJob<'b>, Error> {
        for (what, slice) in [("keys", Some(keys)), ("values", values)] {
            if slice.is_some_and(|slice| self.owns(slice.buffer())) {
                let (wanted, found) = ("a buffer of your own".into(), "one of this sorter's".into());
                return Err(Error::Buffer { what, wanted, found });
            }
        }
        let most = keys.size() / 4;
        if most > u64::from(self.capacity) {
            let wanted = format!("at most {} keys, for which the sorter was made", self.capacity);
            return Err(Error::Buffer { what: "keys", wanted, found: most.to_string() });
        }
        if let Some(slice) = n {
            self.check_count(slice)?;
        }
        let job = SortJob {
            keys: self.context.bind("keys", keys, most * 4)?,
            values: values.map(|values| self.context.bind("values", values, most * 4)).transpose()?,
            capacity: most as u32,
            count: count::INDICES,
            key_bits: key_bits.min(32),
            counted: None,
        };
        encoder.clear_buffer(&self.step, 0, None);
        let to = word(count::INDICES);
        match n {
            None => encoder.copy_buffer_to_buffer(&self.context.uniform(&(most as u32)), 0, &self.step, to, 4),
            Some(slice) => encoder.copy_buffer_to_buffer(slice.buffer(), slice.offset(), &self.step, to, 4),
        }
        Ok(job)
    }

    fn check_count(&self, slice: wgpu::BufferSlice<'_>) -> Result<(), Error> {
        let fail = |wanted: &str, found| Err(Error::Buffer { what: "count", wanted: wanted.into(), found });
        if !slice.buffer().usage().contains(wgpu::BufferUsages::COPY_SRC) {
            return fail("usage COPY_SRC", names(slice.buffer().usage().iter_names()));
        }
        if slice.size() < 4 {
            return fail("4 bytes", format!("{} bytes", slice.size()));
        }
        if slice.offset() % 4 != 0 {
            return fail("an offset that is a multiple of 4", slice.offset().to_string());
        }
        Ok(())
    }

    fn owns(&self, buffer: &wgpu::Buffer) -> bool {
        self.space.arrays.iter().flatten().chain([&self.segment, &self.starts]).any(|own| own == buffer)
    }
}

/// The byte offset of one of the counts in [`Step`].
fn word(which: usize) -> u64 {
    (std::mem::offset_of!(Step, counts) + 4 * which) as u64
}
