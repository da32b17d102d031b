//! Unified memory as a baseline of benchmarks: whole pages move, least recently used out first, for the same accesses and the same device
//! bytes as a cache (SPEC 4).
//!
//! [`UvmTable`] decides which pages move, and where. [`UvmModel`] predicts the time of that; [`UvmBus`] moves the pages on a device and is timed.

use hotrow::Error;
use hotrow::internals::Device as _;
use hotrow::wgpu::{self, BufferUsages};
use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::clock::{Clock, timed};

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
    pub fn seconds(&self, moved: UvmTraffic) -> f64 {
        let bytes = moved.pages_in.max(moved.pages_out) * self.page_bytes;
        let faults = moved.pages_in.div_ceil(FAULTS_AT_ONCE);
        bytes as f64 / self.bus_bytes_per_second + faults as f64 * self.fault_seconds
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UvmMove {
    /// Its number, which is its place in host memory.
    pub page: u64,
    /// The number of its place on the device.
    pub frame: u64,
    /// Whether it goes back, changed; else it comes by a fault.
    pub back: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UvmTraffic {
    /// Pages brought to the device, each by a fault.
    pub pages_in: u64,
    /// Changed pages written back.
    pub pages_out: u64,
}

impl UvmTraffic {
    pub fn of(moves: &[UvmMove]) -> Self {
        let pages_out = moves.iter().filter(|one| one.back).count() as u64;
        Self { pages_in: moves.len() as u64 - pages_out, pages_out }
    }
}

/// The pages of a table that the device holds: least recently used out first, and never more bytes than given.
///
/// A pass goes over a batch once, to read (forward) or to write (backward). All pages of a batch count as used at the same time, so each
/// comes at most once in a pass; those for which there is no room beside the others of the batch pass through a frame beyond the given bytes.
/// Real unified memory may fault a page in twice when a batch needs more pages than the device holds. No row lies across pages unless it is
/// longer than one.
#[derive(Clone, Debug)]
pub struct UvmTable {
    page_bytes: u64,
    row_bytes: u64,
    /// The most pieces that the device holds: a page with its rows, or a row of several pages.
    room: usize,
    /// The pieces that are there, and by their last use.
    held: HashMap<u64, Held>,
    by_use: BTreeMap<u64, u64>,
    uses: u64,
}

/// A piece that the device holds.
#[derive(Clone, Copy, Debug)]
struct Held {
    used: u64,
    changed: bool,
    place: u64,
}

impl UvmTable {
    /// A table of rows of `row_bytes` each, in pages of `page_bytes`, of which the device holds `device_bytes`.
    pub fn new(page_bytes: u64, row_bytes: u64, device_bytes: u64) -> Result<Self, Error> {
        let pages = row_bytes.div_ceil(page_bytes);
        let room = (device_bytes / (pages * page_bytes)) as usize;
        if room == 0 {
            let wanted = format!("{pages} pages of {page_bytes} bytes at least, for a row of {row_bytes} bytes");
            return Err(Error::Config { field: "device_bytes", wanted, found: device_bytes.to_string() });
        }
        Ok(Self { page_bytes, row_bytes, room, held: HashMap::new(), by_use: BTreeMap::new(), uses: 0 })
    }

    const fn pages(&self) -> u64 {
        self.row_bytes.div_ceil(self.page_bytes)
    }

    fn rows(&self) -> u64 {
        (self.page_bytes / self.row_bytes).max(1)
    }

    /// Runs a pass over these linear rows. `write`: their pages must be written back later. Returns the moves in their order: a page goes
    /// before another takes its frame.
    pub fn pass(&mut self, rows: &[u32], write: bool) -> Vec<UvmMove> {
        let (each, pages, room) = (self.rows(), self.pages(), self.room as u64);
        let pieces: BTreeSet<u64> = rows.iter().map(|&row| u64::from(row) / each).collect();
        let (here, missing): (Vec<u64>, Vec<u64>) = pieces.into_iter().partition(|piece| self.held.contains_key(piece));
        let begin = self.uses;
        let mut moves = Vec::new();
        let mut moving = |piece: u64, place: u64, back: bool| {
            moves.extend((0..pages).map(|at| UvmMove { page: piece * pages + at, frame: place * pages + at, back }));
        };
        for piece in here.into_iter().chain(missing) {
            let known = self.held.remove(&piece);
            let place = if let Some(known) = known {
                self.by_use.remove(&known.used);
                known.place
            } else if self.held.len() < self.room {
                self.held.len() as u64
            } else {
                let oldest = self.by_use.first_key_value().map(|(&used, &piece)| (used, piece));
                // The rest of a batch that fills the device passes through.
                let Some((used, old)) = oldest.filter(|(used, _)| *used < begin) else {
                    moving(piece, room, false);
                    if write {
                        moving(piece, room, true);
                    }
                    continue;
                };
                self.by_use.remove(&used);
                let left = self.held.remove(&old);
                left.filter(|left| left.changed).into_iter().for_each(|left| moving(old, left.place, true));
                left.map_or(0, |left| left.place)
            };
            if known.is_none() {
                moving(piece, place, false);
            }
            let changed = write || known.is_some_and(|known| known.changed);
            self.held.insert(piece, Held { used: self.uses, changed, place });
            self.by_use.insert(self.uses, piece);
            self.uses += 1;
        }
        moves
    }
}

/// The most bytes of a buffer of host memory, if a page is not larger.
const HOME: u64 = 256 << 20;

/// Moves pages between the host's memory and a device's, as far as wgpu allows: each page by a copy of its own, from its place to its place. There
/// are no page faults, and the host decides in advance what moves, so its time is a bound in favour of unified memory.
#[derive(Debug)]
pub struct UvmBus<'l> {
    clock: &'l Clock,
    page_bytes: u64,
    /// All pages, in host memory.
    homes: Vec<wgpu::Buffer>,
    frames: wgpu::Buffer,
}

impl<'l> UvmBus<'l> {
    /// Host memory with all pages of a table of `rows` rows, and frames for those that the device holds.
    pub fn new(clock: &'l Clock, table: &UvmTable, rows: u32) -> anyhow::Result<Self> {
        anyhow::ensure!(
            clock.timed.caps().mappable,
            "wanted a device that maps host memory, found one that does not; pages are predicted only"
        );
        let page_bytes = table.page_bytes;
        let all = u64::from(rows).div_ceil(table.rows()) * table.pages() * page_bytes;
        let each = (HOME / page_bytes).max(1) * page_bytes;
        let home = |start: u64| clock.filled(each.min(all - start), BufferUsages::MAP_READ);
        let homes = (0..all.div_ceil(each)).map(|at| home(at * each)).collect::<anyhow::Result<_>>()?;
        let bytes = (table.room as u64 + 1) * table.pages() * page_bytes;
        let frames = clock.timed.guarded(|| Ok(clock.room(bytes, BufferUsages::empty())))?;
        Ok(Self { clock, page_bytes, homes, frames })
    }

    /// Moves pages in their order, and waits. Returns the seconds of the device, by the wall clock if it has no timestamps.
    pub fn carry(&self, moves: &[UvmMove]) -> anyhow::Result<f64> {
        let Self { clock, page_bytes, homes, frames } = self;
        let (mut encoder, timeline) = (clock.encoder(), &clock.timeline);
        let each = (HOME / page_bytes).max(1);
        timeline.around(&mut encoder, "uvm", |encoder| {
            for &UvmMove { page, frame, back } in moves {
                let home = (&homes[(page / each) as usize], page % each * page_bytes);
                let frame = (frames, frame * page_bytes);
                let (from, to) = if back { (frame, home) } else { (home, frame) };
                encoder.copy_buffer_to_buffer(from.0, from.1, to.0, to.1, *page_bytes);
            }
        });
        timeline.resolve(&mut encoder);
        let (finished, wall) = timed(|| clock.timed.finish(encoder));
        finished?;
        let spans = timeline.read()?.spans;
        let stamped = || spans.iter().filter_map(|span| span.nanoseconds).sum::<f64>() * 1e-9;
        Ok(if timeline.has_stamps() { stamped() } else { wall })
    }

    /// The first word of each page in host memory, and of each frame.
    pub fn first_words(&self) -> anyhow::Result<[Vec<u32>; 2]> {
        let first = |buffers: &[wgpu::Buffer]| -> anyhow::Result<Vec<u32>> {
            let parts: Vec<_> =
                buffers.iter().map(|buffer| (buffer, buffer.size() / self.page_bytes * self.page_bytes)).collect();
            let words = self.clock.timed.download(self.clock.encoder(), &parts)?.concat();
            Ok(words.chunks_exact(self.page_bytes as usize / 4).map(|page| page[0]).collect())
        };
        Ok([first(&self.homes)?, first(std::slice::from_ref(&self.frames))?])
    }

    /// Changes a page that the device holds: its first word.
    pub fn change(&self, frame: u64, word: u32) {
        self.clock.timed.queue().write_buffer(&self.frames, frame * self.page_bytes, &word.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages in and out.
    fn passes(row_bytes: u64, frames: u64, passes: &[(&[u32], bool)]) -> Vec<(u64, u64)> {
        let mut table = UvmTable::new(4096, row_bytes, frames * 4096).unwrap();
        let pass = |&(rows, write): &(&[u32], bool)| table.pass(rows, write);
        let counted = passes.iter().map(pass).map(|moves| UvmTraffic::of(&moves));
        counted.map(|moved| (moved.pages_in, moved.pages_out)).collect()
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
