//! Transfers between host and device: uploads, downloads that wait, and step reports that never wait.

use std::sync::{Arc, Mutex};

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

/// Bytes of the buffer in which a step reports its outcome.
pub(crate) const REPORT_BYTES: u64 = size_of::<Step>() as u64;

/// The errors that steps report. They arrive whenever the device is polled.
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
    faults: Vec<(Step, u32)>,
}

#[derive(Debug)]
struct Report {
    number: u64,
    target: wgpu::Buffer,
    indices: u32,
}

impl Shared {
    /// Reads every report that has arrived. In a browser it reads only the report of the number `reported`.
    fn read(&mut self, reported: Option<u64>) {
        let mut at = 0;
        while let Some(Report { number, target, indices }) = self.under_way.get(at) {
            let asked = CALLS_WAIT || Some(*number) == reported;
            let range = asked.then(|| target.get_mapped_range(..).ok()).flatten();
            let Some(step) = range.map(|range| *bytemuck::from_bytes::<Step>(&range)) else {
                at += 1;
                continue;
            };
            if step.error != 0 {
                self.faults.push((step, *indices));
            }
            let target = self.under_way.remove(at).target;
            target.unmap();
            self.free.push(target);
        }
    }
}

/// Forgets a report that never comes: its encoder was dropped, or the device is lost.
struct Forgotten {
    shared: Arc<Mutex<Shared>>,
    number: u64,
}

impl Drop for Forgotten {
    fn drop(&mut self) {
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
    /// Begins with a buffer for one step. Steps that are under way at once take more.
    pub(crate) fn new(context: &Context) -> Self {
        let free = vec![report_buffer(context)];
        let shared = Shared { free, made: 1, encoded: 0, under_way: Vec::new(), faults: Vec::new() };
        Self { shared: Arc::new(Mutex::new(shared)) }
    }

    /// Encodes the copy of the outcome of a step with `indices` indices. It is read once the caller's submission is done.
    pub(crate) fn encode(
        &self,
        context: &Context,
        encoder: &mut wgpu::CommandEncoder,
        step: &wgpu::Buffer,
        indices: u32,
    ) {
        let free = locked(&self.shared).free.pop();
        let target = free.unwrap_or_else(|| {
            locked(&self.shared).made += 1;
            report_buffer(context)
        });
        let number = {
            let mut shared = locked(&self.shared);
            shared.encoded += 1;
            let number = shared.encoded;
            shared.under_way.push(Report { number, target: target.clone(), indices });
            number
        };
        let forgotten = Forgotten { shared: self.shared.clone(), number };
        encoder.map_buffer_on_submit(&target, wgpu::MapMode::Read, .., move |result| {
            // Without a mapping the device is lost; the next call returns that error.
            if result.is_ok() {
                locked(&forgotten.shared).read(Some(forgotten.number));
            }
        });
        encoder.copy_buffer_to_buffer(step, 0, &target, 0, size_of::<Step>() as u64);
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
        first.and_then(|(step, indices)| batch::fault(config, &step, indices)).map_or(Ok(()), Err)
    }

    /// Every report buffer, including those in use.
    pub(crate) fn allocations(&self) -> Vec<Allocation> {
        vec![("report", REPORT_BYTES); locked(&self.shared).made]
    }
}
