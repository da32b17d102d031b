//! Transfers between host and device: uploads, downloads that wait, and reports of the caller's encoders that never wait.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use futures_intrusive::channel::shared::oneshot_channel;

#[cfg(not(target_family = "wasm"))]
use crate::gpu::engine::wait::{block_on, wait};
use crate::{
    config::GroupConfig,
    error::Error,
    gpu::engine::{
        context::Context,
        wait::{CALLS_WAIT, driven},
    },
    host::locked,
    memory::Allocation,
    table::{abi::Step, batch},
};

impl Context {
    /// Uploads `words` into a new buffer.
    pub(crate) fn upload(&self, what: &'static str, words: &[u8]) -> Result<wgpu::Buffer, Error> {
        let buffer = self.buffer(what, words.len() as u64, wgpu::BufferUsages::empty())?;
        // A buffer is written in whole words, so an odd number of halves is followed by a zero.
        let (whole, rest) = words.split_at(words.len() & !3);
        self.queue().write_buffer(&buffer, 0, whole);
        if !rest.is_empty() {
            let mut last = [0; 4];
            last[..rest.len()].copy_from_slice(rest);
            self.queue().write_buffer(&buffer, whole.len() as u64, &last);
        }
        Ok(buffer)
    }

    /// Submits `encoder` and awaits the words of `sources`.
    pub(crate) async fn download_async(
        &self,
        mut encoder: wgpu::CommandEncoder,
        sources: &[(&wgpu::Buffer, u64)],
    ) -> Result<Vec<Vec<u32>>, Error> {
        let mut targets = Vec::new();
        for &(source, bytes) in sources {
            let target = self.download_buffer(bytes);
            encoder.copy_buffer_to_buffer(source, 0, &target, 0, bytes);
            targets.push((target, bytes));
        }
        let mut all = Vec::new();
        self.read_async(encoder, &targets, |found| all.push(bytemuck::pod_collect_to_vec(found))).await?;
        Ok(all)
    }

    /// A buffer that [`Context::read_async`] can read.
    pub(crate) fn download_buffer(&self, bytes: u64) -> wgpu::Buffer {
        self.new_buffer(&wgpu::BufferDescriptor {
            label: Some("hotrow.download"),
            size: bytes.max(4),
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        })
    }

    /// Submits `encoder`, which fills `targets`, and calls `each` with the bytes of every target.
    pub(crate) async fn read_async(
        &self,
        encoder: wgpu::CommandEncoder,
        targets: &[(wgpu::Buffer, u64)],
        mut each: impl FnMut(&[u8]),
    ) -> Result<(), Error> {
        self.submit(encoder);
        if targets.is_empty() {
            self.idle().await?;
            // A lost device says that it has done everything.
            return self.check_lost("no work done");
        }
        let mut receivers = Vec::new();
        self.moments().map(self.device());
        for (target, _) in targets {
            let (sender, receiver) = oneshot_channel();
            target.map_async(wgpu::MapMode::Read, .., move |result| {
                // The receiver may be gone if the wait below failed.
                let _unheard = sender.send(result);
            });
            receivers.push(receiver);
        }
        for ((target, bytes), receiver) in targets.iter().zip(receivers) {
            match driven(self.device(), receiver.receive()).await? {
                Some(Ok(())) => {}
                Some(Err(error)) => return Err(self.failed(&error)),
                None => return Err(self.failed(&"no answer to a mapping")),
            }
            each(&target.get_mapped_range(..*bytes).map_err(|error| self.failed(&error))?);
            target.unmap();
        }
        Ok(())
    }

    /// Downloads the bytes `bytes` of a buffer as words.
    pub(crate) async fn download_part_async(
        &self,
        source: &wgpu::Buffer,
        bytes: std::ops::Range<u64>,
    ) -> Result<Vec<u32>, Error> {
        let size = bytes.end - bytes.start;
        let target = self.download_buffer(size);
        let mut encoder = self.new_encoder();
        encoder.copy_buffer_to_buffer(source, bytes.start, &target, 0, size);
        let mut words = Vec::new();
        self.read_async(encoder, &[(target, size)], |found| words = bytemuck::pod_collect_to_vec(found)).await?;
        Ok(words)
    }

    /// Submits `encoder` and waits until the device has done it.
    pub(crate) async fn finish_async(&self, encoder: wgpu::CommandEncoder) -> Result<(), Error> {
        self.read_async(encoder, &[], |_| {}).await
    }

    /// Waits until the device has done all submissions.
    pub(crate) async fn idle(&self) -> Result<(), Error> {
        let (sender, receiver) = oneshot_channel();
        self.queue().on_submitted_work_done(move || {
            let _unheard = sender.send(());
        });
        driven(self.device(), receiver.receive()).await.map(drop)
    }
}

/// The same as calls that wait.
#[cfg(not(target_family = "wasm"))]
impl Context {
    /// Runs `future` to its end.
    pub(crate) fn block_on<T>(&self, future: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        self.moments().wait();
        block_on(self.device(), future)
    }

    pub(crate) fn download(
        &self,
        encoder: wgpu::CommandEncoder,
        sources: &[(&wgpu::Buffer, u64)],
    ) -> Result<Vec<Vec<u32>>, Error> {
        self.block_on(self.download_async(encoder, sources))
    }

    pub(crate) fn download_part(&self, source: &wgpu::Buffer, bytes: std::ops::Range<u64>) -> Result<Vec<u32>, Error> {
        self.block_on(self.download_part_async(source, bytes))
    }

    pub(crate) fn finish(&self, encoder: wgpu::CommandEncoder) -> Result<(), Error> {
        self.block_on(self.finish_async(encoder))
    }

    /// Waits for a submission, or for all of them. A thread of the crate's own may call it, so it counts no moment.
    pub(crate) fn wait(&self, submission_index: Option<wgpu::SubmissionIndex>) -> Result<(), Error> {
        wait(self.device(), submission_index)
    }
}

/// Bytes of the buffer in which a call reports the outcome of its step.
pub(crate) const REPORT_BYTES: u64 = size_of::<Step>() as u64;

/// What a report tells, beside that the device has executed the call's commands.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tells {
    /// Nothing.
    Done,
    /// The outcome of a forward with so many indices.
    Forward(u32),
    /// Whether the forward that the call continues has run before it, and none after that one.
    Continues(&'static str),
}

impl Tells {
    /// The error of a step, which [`Self::is_error`] has found.
    fn error(self, config: &GroupConfig, step: &Step) -> Option<Error> {
        let call = match self {
            Self::Forward(indices) if step.number == step.wanted => return batch::fault(config, step, indices),
            Self::Done | Self::Forward(_) => "forward_prefetched",
            Self::Continues(call) => call,
        };
        let wanted =
            "the encoder of its forward, or of its prefetch, submitted before its own, and no other one between them";
        Some(Error::Order { call, wanted, found: "another step on the device; no row has moved" })
    }

    fn is_error(self, step: &Step) -> bool {
        let refused = step.error != 0 && matches!(self, Self::Forward(_));
        !matches!(self, Self::Done) && (refused || step.number != step.wanted || step.carried != step.continued)
    }
}

/// Reports of calls whose commands are in the caller's encoders. They arrive whenever the device is polled; a report that has not arrived, and whose
/// encoder was not dropped, is of commands that may still run.
#[derive(Clone, Debug)]
pub(crate) struct Reports {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug)]
struct Shared {
    free: Vec<wgpu::Buffer>,
    made: usize,
    encoded: u64,
    /// Reports that have not been read, in the order in which they were encoded.
    under_way: Vec<Report>,
    faults: Vec<(Step, Tells)>,
}

#[derive(Debug)]
struct Report {
    number: u64,
    target: wgpu::Buffer,
    tells: Tells,
    dropped: Arc<AtomicBool>,
}

impl Shared {
    /// Reads every report that has arrived. In a browser it reads only the report of the number `reported`.
    fn read(&mut self, reported: Option<u64>) {
        let mut at = 0;
        while let Some(Report { number, target, tells, .. }) = self.under_way.get(at) {
            let asked = CALLS_WAIT || Some(*number) == reported;
            let range = asked.then(|| target.get_mapped_range(..).ok()).flatten();
            let Some(step) = range.map(|range| *bytemuck::from_bytes::<Step>(&range)) else {
                at += 1;
                continue;
            };
            if tells.is_error(&step) {
                self.faults.push((step, *tells));
            }
            let target = self.under_way.remove(at).target;
            target.unmap();
            self.free.push(target);
        }
    }
}

/// Part of a callback: sets the flag if the callback is dropped without being called, as wgpu does with the callback of a dropped encoder.
#[derive(Default)]
struct Ended {
    called: bool,
    dropped: Arc<AtomicBool>,
}

impl Ended {
    /// Takes the whole value, of which a closure would else take a copy of the field alone.
    fn end(&mut self) {
        self.called = true;
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        self.dropped.fetch_or(!self.called, Relaxed);
    }
}

/// A flag that is set if `encoder` is dropped.
pub(crate) fn watched(encoder: &wgpu::CommandEncoder) -> Arc<AtomicBool> {
    let mut ended = Ended::default();
    let dropped = ended.dropped.clone();
    encoder.on_submitted_work_done(move || ended.end());
    dropped
}

/// Forgets a report that never comes: its encoder was dropped, or the device is lost.
struct Forgotten {
    shared: Arc<Mutex<Shared>>,
    number: u64,
    ended: Ended,
}

impl Drop for Forgotten {
    fn drop(&mut self) {
        drop(std::mem::take(&mut self.ended)); // first: a report that is gone and not dropped has arrived
        locked(&self.shared).under_way.retain(|report| report.number != self.number);
    }
}

fn report_buffer(context: &Context) -> wgpu::Buffer {
    context.new_buffer(&wgpu::BufferDescriptor {
        label: Some("hotrow.report"),
        size: REPORT_BYTES,
        usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    })
}

impl Reports {
    /// Begins with a buffer for one call. Calls that are under way at once take more.
    pub(crate) fn new(context: &Context) -> Self {
        let free = vec![report_buffer(context)];
        let shared = Shared { free, made: 1, encoded: 0, under_way: Vec::new(), faults: Vec::new() };
        Self { shared: Arc::new(Mutex::new(shared)) }
    }

    /// Encodes the copy of the words of `step`, or of any buffer if it tells nothing. It is read once the caller's submission is done. Returns a
    /// flag that is set if `encoder` is dropped.
    pub(crate) fn encode(
        &self,
        context: &Context,
        encoder: &mut wgpu::CommandEncoder,
        step: &wgpu::Buffer,
        tells: Tells,
    ) -> Arc<AtomicBool> {
        let free = locked(&self.shared).free.pop();
        let target = free.unwrap_or_else(|| {
            locked(&self.shared).made += 1;
            report_buffer(context)
        });
        let ended = Ended::default();
        let dropped = ended.dropped.clone();
        let number = {
            let mut shared = locked(&self.shared);
            shared.encoded += 1;
            let number = shared.encoded;
            shared.under_way.push(Report { number, target: target.clone(), tells, dropped: dropped.clone() });
            number
        };
        let mut forgotten = Forgotten { shared: self.shared.clone(), number, ended };
        encoder.map_buffer_on_submit(&target, wgpu::MapMode::Read, .., move |result| {
            forgotten.ended.end();
            // Without a mapping the device is lost; the next call returns that error.
            if result.is_ok() {
                locked(&forgotten.shared).read(Some(forgotten.number));
            }
        });
        encoder.copy_buffer_to_buffer(step, 0, &target, 0, REPORT_BYTES);
        dropped
    }

    /// Whether the call with this flag was dropped, or may still run.
    pub(crate) fn waits_for(&self, dropped: &Arc<AtomicBool>) -> bool {
        locked(&self.shared).under_way.iter().any(|report| Arc::ptr_eq(&report.dropped, dropped))
            || dropped.load(Relaxed)
    }

    /// Whether commands are in an encoder that was neither submitted nor dropped, or are not known to be done. After a wait for the device and a
    /// [`check`](Self::check) they are not submitted.
    pub(crate) fn recorded(&self) -> bool {
        !locked(&self.shared).under_way.is_empty()
    }

    /// Returns the error of the earliest skipped step, once its report has arrived. Each error is returned once.
    pub(crate) fn check(&self, context: &Context, config: &GroupConfig) -> Result<(), Error> {
        let polled = context.device().poll(wgpu::PollType::Poll);
        polled.map_err(|error| context.failed(&error))?;
        let mut shared = locked(&self.shared);
        // Another thread's poll may have taken the callback of a mapping, and not called it yet.
        shared.read(None);
        let faults = &mut shared.faults;
        let first = (!faults.is_empty()).then(|| faults.remove(0));
        first.and_then(|(step, tells)| tells.error(config, &step)).map_or(Ok(()), Err)
    }

    /// Every report buffer, including those in use.
    pub(crate) fn allocations(&self) -> Vec<Allocation> {
        vec![("report", REPORT_BYTES); locked(&self.shared).made]
    }
}
