//! Measures the time of each dispatch on the device: by a stamp between dispatches if a pass can take one, else by a pass for each
//! dispatch; without stamps it counts dispatches. Only a context made with [`Context::timed`](crate::Context::timed) is measured.

use std::sync::{
    Arc, Mutex, MutexGuard,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use futures_intrusive::channel::shared::oneshot_channel;

#[cfg(not(target_family = "wasm"))]
use crate::gpu::engine::wait::{block_on, wait};
use crate::{
    error::Error,
    gpu::engine::{lost::failed, wait::driven},
    host::locked,
};

/// Most stamps of a set; WebGPU's limit for a query set.
const STAMPS: u32 = 4096;
/// Bytes of a stamp.
const STAMP: u64 = 8;

/// The resolution of a device's stamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resolution {
    /// Stamps between the dispatches of a pass (`TIMESTAMP_QUERY_INSIDE_PASSES`).
    Dispatch,
    /// Stamps at the ends of passes (`TIMESTAMP_QUERY`). Each dispatch then gets a pass of its own, which may cost some time itself.
    Pass,
    /// No stamps: dispatches are named and counted.
    Count,
}

/// One dispatch, or one stretch encoded by [`Timeline::around`].
///
/// Example: [`Timeline`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// The stage, as in `shaders/<stage>.wgsl`, or the name given to [`Timeline::around`].
    pub stage: &'static str,
    /// Time until the dispatch was done, from when all earlier ones were done. `None` without stamps, or when no stamp was left.
    pub nanoseconds: Option<f64>,
    /// False for a stretch of [`Timeline::around`].
    pub dispatch: bool,
}

/// The spans that a timeline has recorded since it was last read.
///
/// Example: [`Timeline`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timings {
    /// The spans in the order of encoding.
    pub spans: Vec<Span>,
    /// Number of dispatches, including those without stamps.
    pub dispatches: u64,
    /// Time from the first stamp to the last, including work between dispatches (clears, copies).
    pub nanoseconds: Option<f64>,
}

/// Collects the times of commands encoded through a context made with [`Context::timed`](crate::Context::timed): encode, then
/// [`Timeline::resolve`] into the last encoder, submit, [`Timeline::read`]. Clones share their spans. Encode into one encoder at a time.
///
/// ```
/// use hotrow::{Group, GroupConfig, Timeline, adapter};
///
/// # fn main() -> Result<(), hotrow::Error> {
/// let Ok(context) = adapter::open_best() else { return Ok(()) };
/// let timeline = Timeline::new(&context);
/// let mut group = Group::new(&context.timed(&timeline), GroupConfig::new(&[1000], 16).with_cache_rows(64))?;
/// let mut encoder = context.device().create_command_encoder(&Default::default());
/// group.encode_flush(&mut encoder)?;
/// timeline.resolve(&mut encoder);
/// context.queue().submit([encoder.finish()]);
/// let found = timeline.read()?;
/// assert_eq!(found.spans[0].stage, "collect");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Timeline {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// The device without the context's timeline, so that neither keeps the other alive.
    device: wgpu::Device,
    resolution: Resolution,
    stamps: Option<Stamps>,
    heard: Mutex<Heard>,
    listening: AtomicBool,
}

#[derive(Debug)]
struct Stamps {
    queries: wgpu::QuerySet,
    resolved: wgpu::Buffer,
    mapped: wgpu::Buffer,
    nanoseconds_per_tick: f64,
}

#[derive(Debug, Default)]
struct Heard {
    spans: Vec<(&'static str, Option<[u32; 2]>, bool)>,
    dispatches: u64,
    used: u32,
    resolved: u32,
}

impl Heard {
    /// The next `n` stamps, if that many are left.
    fn take(&mut self, n: u32) -> Option<u32> {
        let first = self.used;
        (first + n <= STAMPS).then(|| {
            self.used += n;
            first
        })
    }

    fn push(&mut self, stage: &'static str, stamps: Option<[u32; 2]>, dispatch: bool) {
        self.dispatches += u64::from(dispatch);
        // The limit keeps a timeline that is never read from growing.
        if self.spans.len() < STAMPS as usize {
            self.spans.push((stage, stamps, dispatch));
        }
    }
}

impl Timeline {
    /// Creates a timeline on a device.
    pub(crate) fn on(device: &wgpu::Device, queue: &wgpu::Queue) -> Self {
        let features = device.features();
        let resolution = if !features.contains(wgpu::Features::TIMESTAMP_QUERY) {
            Resolution::Count
        } else if features.contains(wgpu::Features::TIMESTAMP_QUERY_INSIDE_PASSES) {
            Resolution::Dispatch
        } else {
            Resolution::Pass
        };
        let stamps = (resolution != Resolution::Count).then(|| {
            let buffer = |usage| {
                device.create_buffer(&wgpu::BufferDescriptor {
                    label: Some("hotrow.timeline"),
                    size: u64::from(STAMPS) * STAMP,
                    usage,
                    mapped_at_creation: false,
                })
            };
            Stamps {
                queries: device.create_query_set(&wgpu::QuerySetDescriptor {
                    label: Some("hotrow.timeline"),
                    ty: wgpu::QueryType::Timestamp,
                    count: STAMPS,
                }),
                resolved: buffer(wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC),
                mapped: buffer(wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::MAP_READ),
                nanoseconds_per_tick: f64::from(queue.get_timestamp_period()),
            }
        });
        let device = device.clone();
        Self { inner: Arc::new(Inner { device, resolution, stamps, heard: Mutex::default(), listening: true.into() }) }
    }

    /// Whether the device has stamps (`TIMESTAMP_QUERY`). With `TIMESTAMP_QUERY_INSIDE_PASSES` they lie between the dispatches of a pass; else each
    /// dispatch gets a pass of its own, which may cost some time itself. Without stamps, dispatches are named and counted.
    #[must_use]
    pub fn has_stamps(&self) -> bool {
        self.inner.resolution != Resolution::Count
    }

    pub(crate) fn resolution(&self) -> Resolution {
        self.inner.resolution
    }

    /// Sets whether passes encoded from now on are measured; at first they are. Stamps take a little time themselves, so a long stretch is
    /// best measured without stamps inside it.
    pub fn listen(&self, listening: bool) {
        self.inner.listening.store(listening, Relaxed);
    }

    pub(crate) fn listens(&self) -> bool {
        self.inner.listening.load(Relaxed)
    }

    /// Encodes the commands of `work` with a stamp before and one after them: for copies and clears, which are no dispatches.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn around<T>(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        name: &'static str,
        work: impl FnOnce(&mut wgpu::CommandEncoder) -> T,
    ) -> T {
        let taken = self.inner.stamps.as_ref().and_then(|stamps| Some((stamps, self.heard().take(2)?)));
        if let Some((stamps, first)) = taken {
            stamps.mark(encoder, first);
        }
        let done = work(encoder);
        if let Some((stamps, first)) = taken {
            stamps.mark(encoder, first + 1);
        }
        self.heard().push(name, taken.map(|(_, first)| [first, first + 1]), false);
        done
    }

    /// Records that the stamps so far become readable.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn resolve(&self, encoder: &mut wgpu::CommandEncoder) {
        let mut heard = self.heard();
        if let Some(stamps) = &self.inner.stamps
            && heard.used > 0
        {
            encoder.resolve_query_set(&stamps.queries, 0..heard.used, &stamps.resolved, 0);
            encoder.copy_buffer_to_buffer(&stamps.resolved, 0, &stamps.mapped, 0, u64::from(heard.used) * STAMP);
            heard.resolved = heard.used;
        }
    }

    /// Waits for all submissions and returns the spans since the last call. Spans that were not resolved have no times.
    ///
    /// # Errors
    /// [`Error::Device`] if the device is lost.
    #[cfg(not(target_family = "wasm"))]
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn read(&self) -> Result<Timings, Error> {
        wait(&self.inner.device, None)?;
        block_on(&self.inner.device, self.read_async())
    }

    /// As [`read`](Self::read), as a future that waits for the spans that were resolved.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub async fn read_async(&self) -> Result<Timings, Error> {
        let heard = std::mem::take(&mut *self.heard());
        let ticks = match &self.inner.stamps {
            Some(stamps) if heard.resolved > 0 => stamps.read(&self.inner.device, heard.resolved).await?,
            _ => Vec::new(),
        };
        let period = self.inner.stamps.as_ref().map_or(0.0, |stamps| stamps.nanoseconds_per_tick);
        let between = |[from, to]: [u32; 2]| {
            let (from, to) = (ticks.get(from as usize)?, ticks.get(to as usize)?);
            Some(to.saturating_sub(*from) as f64 * period)
        };
        let spans = heard.spans.iter().map(|&(stage, stamps, dispatch)| Span {
            stage,
            nanoseconds: stamps.and_then(between),
            dispatch,
        });
        let all = (ticks.len() > 1).then(|| [0, ticks.len() as u32 - 1]);
        Ok(Timings { spans: spans.collect(), dispatches: heard.dispatches, nanoseconds: all.and_then(between) })
    }

    /// Takes the stamp at the beginning of a pass, from which its first dispatch is measured.
    pub(crate) fn open(&self, pass: &mut wgpu::ComputePass<'_>) {
        if self.inner.resolution == Resolution::Dispatch
            && let Some(stamps) = &self.inner.stamps
            && let Some(first) = self.heard().take(1)
        {
            pass.write_timestamp(&stamps.queries, first);
        }
    }

    /// Takes the stamp after a dispatch of a pass that was opened with [`Timeline::open`].
    pub(crate) fn after(&self, pass: &mut wgpu::ComputePass<'_>, stage: &'static str) {
        let mut heard = self.heard();
        let stamps = self.inner.stamps.as_ref().filter(|_| self.inner.resolution == Resolution::Dispatch);
        // The stamp before this one belongs to the dispatch before, or to the pass's beginning.
        let taken = stamps.and_then(|stamps| {
            let index = heard.take(1)?;
            pass.write_timestamp(&stamps.queries, index);
            Some([index - 1, index])
        });
        heard.push(stage, taken, true);
    }

    /// The stamps of a pass with one dispatch, on a device that can time only passes.
    pub(crate) fn alone(&self, stage: &'static str) -> Option<wgpu::ComputePassTimestampWrites<'_>> {
        let mut heard = self.heard();
        let taken = self.inner.stamps.as_ref().and_then(|stamps| Some((stamps, heard.take(2)?)));
        heard.push(stage, taken.map(|(_, first)| [first, first + 1]), true);
        taken.map(|(stamps, first)| wgpu::ComputePassTimestampWrites {
            query_set: &stamps.queries,
            beginning_of_pass_write_index: Some(first),
            end_of_pass_write_index: Some(first + 1),
        })
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        locked(&self.inner.heard)
    }
}

impl Stamps {
    /// Encodes an empty pass, whose stamp is written when all earlier commands are done.
    fn mark(&self, encoder: &mut wgpu::CommandEncoder, index: u32) {
        encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
            label: Some("hotrow.mark"),
            timestamp_writes: Some(wgpu::ComputePassTimestampWrites {
                query_set: &self.queries,
                beginning_of_pass_write_index: None,
                end_of_pass_write_index: Some(index),
            }),
        });
    }

    async fn read(&self, device: &wgpu::Device, count: u32) -> Result<Vec<u64>, Error> {
        let (sender, receiver) = oneshot_channel();
        self.mapped.map_async(wgpu::MapMode::Read, .., move |result| {
            // The receiver may be gone if the wait below failed.
            let _unheard = sender.send(result);
        });
        match driven(device, receiver.receive()).await? {
            Some(Ok(())) => {}
            Some(Err(error)) => return Err(failed(device, &error)),
            None => return Err(failed(device, &"no answer to a mapping")),
        }
        let ticks = {
            let view = self.mapped.get_mapped_range(..).map_err(|error| failed(device, &error))?;
            let words = view.chunks_exact(STAMP as usize).take(count as usize);
            words.map(|bytes| u64::from_le_bytes(std::array::from_fn(|i| bytes[i]))).collect()
        };
        self.mapped.unmap();
        Ok(ticks)
    }
}
