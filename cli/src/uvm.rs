//! Unified memory as a baseline of benchmarks: whole pages move, least recently used out first, for the same accesses and the same device
//! bytes as a cache (SPEC 4).
//!
//! [`UvmTable`] decides which pages move and counts them. [`UvmModel`] predicts the time of that; [`UvmBus`] moves as many bytes on a device
//! and is timed.

use hotrow::internals::Device as _;
use hotrow::wgpu::{self, BufferUsages};
use hotrow::{Context, Error, Resolution, Timeline};
use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::lab::timed;

/// The pages and the bus.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UvmModel {
    /// Bytes of a page, a power of two. Drivers move 4 KiB to 2 MiB.
    pub page_bytes: u64,
    /// Bytes a second over the bus in one direction.
    pub bus_bytes_per_second: f64,
    /// Seconds to handle a fault, without the transfer. With 0 the prediction is an upper bound for unified memory.
    pub fault_seconds: f64,
}

/// Faults that are handled together and share their time, as NVIDIA's driver fetches them (`uvm_perf_fault_batch_count`).
const FAULTS_AT_ONCE: u64 = 256;

impl Default for UvmModel {
    /// 64 KiB pages over PCIe 4 x16 (about 25 GB/s); 20 us a fault, the lower end of the 20 to 50 us of Zheng 2016
    /// ("Towards High Performance Paged Memory for GPUs").
    fn default() -> Self {
        Self { page_bytes: 64 << 10, bus_bytes_per_second: 25e9, fault_seconds: 20e-6 }
    }
}

impl UvmModel {
    /// Seconds to move `moved`. Both directions run at once; faults are handled in groups.
    #[must_use]
    pub fn seconds(&self, moved: UvmTraffic) -> f64 {
        let bytes = moved.pages_in.max(moved.pages_out) * self.page_bytes;
        let faults = moved.pages_in.div_ceil(FAULTS_AT_ONCE);
        bytes as f64 / self.bus_bytes_per_second + faults as f64 * self.fault_seconds
    }
}

/// Pages that moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UvmTraffic {
    /// Pages brought to the device, each by a fault.
    pub pages_in: u64,
    /// Changed pages written back.
    pub pages_out: u64,
}

/// The pages of a table that the device holds: least recently used out first, and never more bytes than given.
///
/// A pass goes over a batch once, to read (forward) or to write (backward). All pages of a batch count as used at the same time, so each
/// comes at most once in a pass; those for which there is no room beside the others of the batch pass through. Real unified memory may fault
/// a page in twice when a batch needs more pages than the device holds. No row lies across pages unless it is longer than one.
#[derive(Clone, Debug)]
pub struct UvmTable {
    page_bytes: u64,
    row_bytes: u64,
    /// The most rows of pages, or long rows, that the device holds.
    room: usize,
    /// The last use of each piece that is there, and whether it has changed; the pieces by their last use.
    held: HashMap<u64, (u64, bool)>,
    by_use: BTreeMap<u64, u64>,
    uses: u64,
}

impl UvmTable {
    /// A table of rows of `row_bytes` each, in pages of `page_bytes`, of which the device holds `device_bytes`.
    ///
    /// # Errors
    /// [`Error::Config`] if not all pages of a row fit.
    pub fn new(page_bytes: u64, row_bytes: u64, device_bytes: u64) -> Result<Self, Error> {
        let pages = row_bytes.div_ceil(page_bytes);
        let room = (device_bytes / (pages * page_bytes)) as usize;
        if room == 0 {
            let wanted = format!("{pages} pages of {page_bytes} bytes at least, for a row of {row_bytes} bytes");
            return Err(Error::Config { field: "device_bytes", wanted, found: device_bytes.to_string() });
        }
        Ok(Self { page_bytes, row_bytes, room, held: HashMap::new(), by_use: BTreeMap::new(), uses: 0 })
    }

    /// Runs a pass over these linear rows. `write`: their pages must be written back later.
    pub fn pass(&mut self, rows: &[u32], write: bool) -> UvmTraffic {
        let each = (self.page_bytes / self.row_bytes).max(1);
        let pieces: BTreeSet<u64> = rows.iter().map(|&row| u64::from(row) / each).collect();
        let (here, missing): (Vec<u64>, Vec<u64>) = pieces.into_iter().partition(|piece| self.held.contains_key(piece));
        let begin = self.uses;
        let [mut coming, mut leaving] = [missing.len() as u64, 0];
        for piece in here.into_iter().chain(missing) {
            let known = self.held.remove(&piece);
            if let Some((used, _)) = known {
                self.by_use.remove(&used);
            } else if self.held.len() == self.room {
                let oldest = self.by_use.first_key_value().map(|(&used, &piece)| (used, piece));
                // The rest of a batch that fills the device passes through.
                let Some((used, old)) = oldest.filter(|(used, _)| *used < begin) else {
                    leaving += u64::from(write);
                    continue;
                };
                self.by_use.remove(&used);
                leaving += u64::from(self.held.remove(&old).is_some_and(|(_, changed)| changed));
            }
            self.held.insert(piece, (self.uses, write || known.is_some_and(|(_, changed)| changed)));
            self.by_use.insert(self.uses, piece);
            self.uses += 1;
        }
        let pages = self.row_bytes.div_ceil(self.page_bytes);
        (coming, leaving) = (coming * pages, leaving * pages);
        UvmTraffic { pages_in: coming, pages_out: leaving }
    }
}

/// Bytes of the buffers that pages are moved through.
const STAGING: u64 = 64 << 20;

/// Moves pages between the host's memory and a device's, as far as wgpu allows. There are no page faults, and the host decides in advance
/// what moves. The pages of a pass cross the bus side by side, as fast as a copy goes, so this is a bound in favour of unified memory.
#[derive(Debug)]
pub struct UvmBus {
    context: Context,
    timeline: Timeline,
    /// Host memory that is copied from, device memory, and host memory that is copied to.
    up: wgpu::Buffer,
    pages: wgpu::Buffer,
    down: wgpu::Buffer,
}

impl UvmBus {
    /// Buffers on this device.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn new(context: &Context) -> Result<Self, Error> {
        let host = |usage, mapped_at_creation| {
            let label = Some("uvm");
            let descriptor = wgpu::BufferDescriptor { label, size: STAGING, usage, mapped_at_creation };
            context.device().create_buffer(&descriptor)
        };
        let bus = Self {
            timeline: Timeline::new(context),
            up: host(BufferUsages::MAP_WRITE | BufferUsages::COPY_SRC, true),
            pages: context.guarded(|| context.buffer("uvm.pages", STAGING, BufferUsages::empty()))?,
            down: host(BufferUsages::MAP_READ | BufferUsages::COPY_DST, false),
            context: context.clone(),
        };
        // Zeros can be faster than data.
        let words: Vec<u32> = (0..STAGING as u32 / 4).map(hotrow::hash::fmix32).collect();
        let mut view = bus.up.get_mapped_range_mut(..).map_err(|error| Error::Device { reason: error.to_string() })?;
        view.copy_from_slice(bytemuck::cast_slice(&words));
        drop(view);
        bus.up.unmap();
        Ok(bus)
    }

    /// Moves pages, each direction for itself, and waits. Returns the seconds of the device, by the wall clock if it has no timestamps.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn carry(&self, moved: UvmTraffic, page_bytes: u64) -> Result<f64, Error> {
        let Self { context, timeline, up, pages, down } = self;
        let mut encoder = context.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        timeline.around(&mut encoder, "uvm", |encoder| {
            for (moved, from, to) in [(moved.pages_out, pages, down), (moved.pages_in, up, pages)] {
                let mut rest = moved * page_bytes;
                while rest > 0 {
                    let some = rest.min(STAGING);
                    encoder.copy_buffer_to_buffer(from, 0, to, 0, some.next_multiple_of(4));
                    rest -= some;
                }
            }
        });
        timeline.resolve(&mut encoder);
        let (finished, wall) = timed(|| context.finish(encoder));
        finished?;
        let spans = timeline.read()?.spans;
        Ok(match timeline.resolution() {
            Resolution::Count => wall,
            _ => spans.iter().filter_map(|span| span.nanoseconds).sum::<f64>() * 1e-9,
        })
    }

    /// The first words of the host's memory that pages come from, and of that where they go.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn ends(&self, words: usize) -> Result<[Vec<u32>; 2], Error> {
        let fault = |reason: String| Error::Device { reason };
        self.down.slice(..).map_async(wgpu::MapMode::Read, |_| ());
        let polled = self.context.device().poll(wgpu::PollType::wait_indefinitely());
        polled.map_err(|error| fault(error.to_string()))?;
        let view = self.down.get_mapped_range(..).map_err(|error| fault(error.to_string()))?;
        let down = bytemuck::pod_collect_to_vec(&view[..4 * words]);
        drop(view);
        self.down.unmap();
        Ok([(0..words as u32).map(hotrow::hash::fmix32).collect(), down])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages in and out.
    fn passes(row_bytes: u64, frames: u64, passes: &[(&[u32], bool)]) -> Vec<(u64, u64)> {
        let mut table = UvmTable::new(4096, row_bytes, frames * 4096).unwrap();
        let pass = |&(rows, write): &(&[u32], bool)| table.pass(rows, write);
        passes.iter().map(pass).map(|moved| (moved.pages_in, moved.pages_out)).collect()
    }

    #[test]
    fn whole_pages_move_and_the_longest_unused_leaves() {
        let moved = passes(
            512,
            2,
            // Rows 0 to 7 share page 0; row 8 begins page 1, 16 page 2, 24 page 3.
            &[(&[0, 7, 8], false), (&[1, 9], true), (&[16], false), (&[8], false), (&[24], false), (&[0], false)],
        );
        // The changed page 0 goes back for page 2, which was only read and is dropped; page 1 was used after it and goes last.
        assert_eq!(moved, [(2, 0), (0, 0), (1, 1), (0, 0), (1, 0), (1, 1)]);
        assert_eq!(passes(4097, 8, &[(&[0], false)]), [(2, 0)], "a row longer than a page takes two");
    }

    #[test]
    fn a_batch_larger_than_the_device_passes_through() {
        let rows: Vec<u32> = (0..20).chain([5, 19]).collect();
        let moved = passes(4096, 8, &[(&[0, 1, 2, 3], true), (&rows, true), (&[0, 1, 2, 3], false)]);
        // Each page comes once; twelve find no room; those that were there stay.
        assert_eq!(moved, [(4, 0), (16, 12), (0, 0)]);
    }

    #[test]
    fn bus_and_faults_take_their_time() {
        let model = UvmModel { page_bytes: 4096, bus_bytes_per_second: 4096e3, fault_seconds: 1e-2 };
        let seconds = |pages_in, pages_out| model.seconds(UvmTraffic { pages_in, pages_out });
        assert!((seconds(300, 0) - 320e-3).abs() < 1e-12, "300 ms of bus, two groups of faults");
        assert!((seconds(0, 5) - 5e-3).abs() < 1e-12, "what goes back faults nothing");
        assert!((seconds(3, 5) - 15e-3).abs() < 1e-12, "both directions at once");
    }

    #[test]
    fn a_device_without_room_for_a_row_is_refused() {
        assert!(UvmTable::new(4096, 4097, 8192).is_ok());
        let refused = UvmTable::new(4096, 4097, 8191).unwrap_err();
        assert!(matches!(refused, Error::Config { field: "device_bytes", .. }), "{refused}");
    }
}
