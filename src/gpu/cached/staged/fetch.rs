//! The host's part in a step: it reads the list of missing rows, brings the records that have left to the store, and gathers the missing
//! records, still packed, on all cores.

use std::{
    cell::RefCell,
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    sync::Arc,
    task::Waker,
    time::Duration,
};

use rayon::prelude::*;

use crate::{
    error::Error,
    gpu::cached::staged::{download::Download, host::Host, write_back::WriteBack},
    table::{
        abi::{Step, Swap, count},
        hash::fmix32,
    },
};

/// Bytes that a thread reads from the store at once, before it copies them to the upload: small enough for the thread's CPU cache.
const PIECE: u64 = 64 << 10;

/// The list of swaps of a decided step, on its way to the host.
#[derive(Debug)]
pub(crate) struct Listing {
    pub(crate) download: Download,
    /// Number of swaps that are downloaded at once. If there are more, a second download gets the rest.
    pub(crate) copied: u32,
    pub(crate) rest: Option<Box<Download>>,
    /// The list itself, on the device.
    pub(crate) swaps: wgpu::Buffer,
}

/// All that a thread needs for the host's part in a step. It may run again after an error.
#[derive(Debug)]
pub(crate) struct Fetch {
    pub(crate) host: Host,
    pub(crate) listing: Option<Listing>,
    pub(crate) list: Arc<[Swap]>,
    /// Records that must be in the store before rows are gathered.
    pub(crate) write_backs: Vec<WriteBack>,
    /// Swaps of the last step, if records that left in it may still be on the device.
    pub(crate) before: Option<Arc<[Swap]>>,
    pub(crate) slots: u32,
    pub(crate) stride: u64,
    /// The submission that fills the list; `None` waits for all submissions.
    pub(crate) after: Option<wgpu::SubmissionIndex>,
    /// The downloads are known to be here ([`Self::ready`]), so there is no submission to wait for.
    pub(crate) here: bool,
    /// The time that the host's part took in its last run.
    pub(crate) took: Duration,
}

/// The missing records, ready to be copied to the device.
#[derive(Debug)]
pub(crate) struct Arrivals {
    pub(crate) list: Arc<[Swap]>,
    /// `None` if nothing is missing.
    pub(crate) upload: Option<Upload>,
}

/// A buffer of records, then forwards and notes about kept victims if there are any. `records`: bytes of the records; the ranges are in
/// bytes.
#[derive(Debug)]
pub(crate) struct Upload {
    pub(crate) buffer: wgpu::Buffer,
    pub(crate) records: u64,
    pub(crate) forwards: Option<std::ops::Range<u64>>,
    pub(crate) kept: Option<std::ops::Range<u64>>,
}

impl Fetch {
    /// Bytes of an upload for `swaps` swaps, `kept` of which keep their victim, with all possible notes.
    pub(crate) const fn bytes(swaps: u64, kept: u64, stride: u64) -> u64 {
        (swaps + kept) * stride + 2 * 4 * swaps + 24
    }

    /// The same fetch for a call beside the training steps. All records that have left must be in the store.
    pub(crate) fn maintenance(mut self) -> Self {
        self.before = None;
        self
    }

    /// Whether the prefetch's encoder was dropped, so that the prefetch has had no effect. Its write-backs still belong in the store.
    pub(crate) fn dropped(&self) -> bool {
        self.listing.as_ref().is_some_and(|listing| listing.download.dropped())
    }

    /// True if every download has come, or never will.
    pub(crate) fn ready(&self) -> bool {
        self.downloads().all(Download::known) && self.write_backs.iter().all(WriteBack::known)
    }

    /// Has `waker` woken when another download has come.
    pub(crate) fn wake(&self, waker: &Waker) {
        self.downloads().for_each(|download| download.wake(waker));
        self.write_backs.iter().for_each(|write_back| write_back.wake(waker));
    }

    fn downloads(&self) -> impl Iterator<Item = &Download> {
        self.listing.iter().flat_map(|listing| std::iter::once(&listing.download).chain(listing.rest.as_deref()))
    }

    /// Submits downloads of what the first ones lack: the rest of a list that is longer than its download, and records whose encoder was
    /// dropped. Returns whether it did; the first ones must have come.
    pub(crate) fn asked_more(&mut self) -> Result<bool, Error> {
        let mut asked = false;
        if let Some(listing) = self.listing.as_mut().filter(|listing| listing.rest.is_none()) {
            let length = |bytes: &[u8]| bytemuck::pod_read_unaligned::<Step>(bytes).counts[count::SWAPS];
            let length = listing.download.read("fetch", size_of::<Step>() as u64, length)?;
            if length > listing.copied {
                let size = size_of::<Swap>() as u64;
                let (from, rest) = (u64::from(listing.copied) * size, u64::from(length - listing.copied) * size);
                let buffer = self.host.context.download_buffer(rest);
                let mut encoder = self.host.context.new_encoder();
                encoder.copy_buffer_to_buffer(&listing.swaps, from, &buffer, 0, rest);
                listing.rest = Some(Box::new(Download::encode(&encoder, buffer)));
                self.host.context.submit(encoder);
                asked = true;
            }
        }
        for write_back in &mut self.write_backs {
            asked |= write_back.asked_again(&self.host)?;
        }
        Ok(asked)
    }

    /// True if no row is missing and none has left. Every download must have come.
    pub(crate) fn is_empty(&self) -> bool {
        let none = |bytes: &[u8]| bytemuck::pod_read_unaligned::<Step>(bytes).counts[count::SWAPS] == 0;
        let missing = match &self.listing {
            Some(listing) => listing.download.read("fetch", size_of::<Step>() as u64, none) != Ok(true),
            None => !self.list.is_empty(),
        };
        !missing && self.write_backs.iter().all(|write_back| write_back.read(|rows, _| rows.is_empty()) == Ok(true))
    }

    /// As [`Self::run`], as a future.
    pub(crate) async fn run_async(&mut self) -> Result<Arrivals, Error> {
        let context = self.host.context.clone();
        loop {
            context.idle().await?;
            for download in self.downloads() {
                download.arrived().await;
            }
            for write_back in &mut self.write_backs {
                write_back.renewed(&self.host).await?;
            }
            if !self.asked_more()? {
                break;
            }
        }
        self.here = true;
        self.run()
    }

    /// Waits for the list, unless it is [`here`](Self::here), and does the host's part.
    pub(crate) fn run(&mut self) -> Result<Arrivals, Error> {
        if !self.here {
            self.host.context.moments().wait();
        }
        let found = self.run_meanwhile();
        self.host.traffic.waited(self.took);
        found
    }

    /// As [`Self::run`], but does not count its time as waiting. The call that later waits for it counts that with [`Self::waited`].
    pub(crate) fn run_meanwhile(&mut self) -> Result<Arrivals, Error> {
        let context = self.host.context.clone();
        self.took = Duration::ZERO;
        let left = self.left(); // while the device is still at work
        context.guarded(|| {
            #[cfg(not(target_family = "wasm"))]
            if !self.here {
                context.wait(self.after.clone())?;
                if self.asked_more()? {
                    context.wait(None)?;
                }
            }
            self.read_list()?;
            let host = self.host.clone();
            let (found, took) = host.traffic.timed(|| {
                while let Some(write_back) = self.write_backs.first() {
                    write_back.write(&host)?;
                    self.write_backs.remove(0).end(&host);
                }
                self.gather(&left)
            });
            self.took = took;
            found
        })
    }

    /// Counts the time that a call waited for this fetch, at most the time that the host's part took. The rest was spent on the device.
    pub(crate) fn waited(&self, time: Duration) {
        self.host.traffic.waited(time.min(self.took));
    }

    fn read_list(&mut self) -> Result<(), Error> {
        let Some(listing) = &self.listing else { return Ok(()) };
        let (head, size) = (size_of::<Step>(), size_of::<Swap>());
        let bytes = (head + listing.copied as usize * size) as u64;
        let (length, mut list) = listing.download.read("fetch", bytes, |bytes| {
            let step: Step = bytemuck::pod_read_unaligned(&bytes[..head]);
            let length = step.counts[count::SWAPS];
            let list: Vec<Swap> =
                bytemuck::pod_collect_to_vec(&bytes[head..][..length.min(listing.copied) as usize * size]);
            (length, list)
        })?;
        self.host.traffic.listed(bytes);
        if let Some(rest) = &listing.rest {
            let bytes = u64::from(length - listing.copied) * size as u64;
            list.extend(rest.read("fetch", bytes, bytemuck::pod_collect_to_vec::<u8, Swap>)?);
            self.host.traffic.listed(bytes);
        }
        self.host.count_swaps(length);
        self.list = list.into();
        if let Some(listing) = self.listing.take() {
            listing.download.end(&self.host.downloads);
        }
        Ok(())
    }

    fn gather(&self, left: &Left) -> Result<Arrivals, Error> {
        let list = &self.list;
        if list.is_empty() {
            return Ok(Arrivals { list: list.clone(), upload: None });
        }
        let keeps = |one: &&Swap| one.flags & Swap::KEEP != 0;
        let mut rows: Vec<u32> = list.iter().map(|one| one.row).collect();
        rows.extend(list.iter().filter(keeps).map(|one| one.victim));
        let forwards = self.forwards(left);
        let kept = (rows.len() > list.len()).then(|| {
            let mut next = list.len() as u32 - 1;
            let mut note = |one: &Swap| {
                next += u32::from(keeps(&one));
                if keeps(&one) { next } else { 0 }
            };
            list.iter().map(&mut note).collect::<Vec<u32>>()
        });
        // Every part begins on 8 bytes, as mapping wants it.
        let records = rows.len() as u64 * self.stride;
        let notes = [&forwards, &kept].into_iter().flatten().map(|words| words.len() as u64 * 4).sum::<u64>();
        let mut end = records.next_multiple_of(8);
        let mut part = |words: &Option<Vec<u32>>| {
            let words = words.as_ref()?;
            let range = end..end + words.len() as u64 * 4;
            end = range.end.next_multiple_of(8);
            Some(range)
        };
        let (forwards_at, kept_at) = (part(&forwards), part(&kept));
        let buffer = self.host.uploads.take(&self.host.context, end)?;
        let gathered = self.gather_into(&buffer, &rows).and_then(|()| {
            for (words, range) in [(&forwards, &forwards_at), (&kept, &kept_at)] {
                if let (Some(words), Some(range)) = (words, range) {
                    write(&buffer, range.clone(), bytemuck::cast_slice(words))?;
                }
            }
            Ok(())
        });
        if let Err(error) = gathered {
            self.host.uploads.give(buffer); // still mapped
            return Err(error);
        }
        buffer.unmap();
        self.host.traffic.gathered(
            rows.len() as u64,
            records + notes,
            forwards.map_or(0, |f| f.iter().filter(|&&f| f > 0).count()),
        );
        Ok(Arrivals {
            list: list.clone(),
            upload: Some(Upload { buffer, records, forwards: forwards_at, kept: kept_at }),
        })
    }

    fn gather_into(&self, buffer: &wgpu::Buffer, rows: &[u32]) -> Result<(), Error> {
        thread_local! {
            static PART: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
        }
        let store = self.host.store.read();
        // An even number of rows, so that each piece begins on 8 bytes.
        let rows_at_once = ((PIECE / self.stride).max(1) as usize).next_multiple_of(2);
        rows.par_chunks(rows_at_once).enumerate().try_for_each(|(i, rows)| {
            // The buffer is taken out while in use, because a store that reads in parallel may run another piece on this thread.
            let mut part = PART.take();
            part.resize(rows.len() * self.stride as usize, 0);
            let first = (i * rows_at_once) as u64 * self.stride;
            let done =
                store.read(rows, &mut part).and_then(|()| write(buffer, first..first + part.len() as u64, &part));
            PART.set(part);
            done
        })
    }

    /// The rows that leave in the last step and may still be on the device.
    fn left(&self) -> Left {
        let before = self.before.as_ref().map_or(0, |list| list.len());
        let mut left = Left::with_capacity_and_hasher(before, BuildHasherDefault::default());
        for (j, one) in (1..).zip(self.before.iter().flat_map(|list| list.iter())) {
            // A bypassed row leaves by backward, a victim by admission.
            if one.place >= self.slots {
                left.insert(one.row, j);
            } else if one.flags & Swap::WRITE != 0 {
                left.insert(one.victim, j);
            }
        }
        left
    }

    /// For each swap, 1 + the swap of the last step with which its row left, or 0 if its row did not leave. `None` if all are 0.
    fn forwards(&self, left: &Left) -> Option<Vec<u32>> {
        if left.is_empty() {
            return None;
        }
        let forwards: Vec<u32> = self.list.par_iter().map(|one| left.get(&one.row).copied().unwrap_or(0)).collect();
        forwards.iter().any(|&forward| forward > 0).then_some(forwards)
    }
}

fn write(buffer: &wgpu::Buffer, range: std::ops::Range<u64>, bytes: &[u8]) -> Result<(), Error> {
    let mut view = buffer
        .get_mapped_range_mut(range)
        .map_err(|error| Error::Device { reason: format!("device lost ({error})") })?;
    view.copy_from_slice(bytes);
    Ok(())
}

/// Maps each row that left to 1 + its swap.
type Left = HashMap<u32, u32, BuildHasherDefault<RowHasher>>;

/// Hashes rows as sets do.
#[derive(Default)]
struct RowHasher(u64);

impl Hasher for RowHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(u32::from(byte) ^ self.0 as u32);
        }
    }

    fn write_u32(&mut self, row: u32) {
        // The map looks at the upper bits too.
        let low = u64::from(fmix32(row));
        self.0 = low << 32 | low;
    }
}
