//! Staged tables (SPEC 4): their records are in the host's memory or in a file. The device lists the missing rows. The host gathers their
//! records, still packed, and takes back the packed records that leave. No optional feature of a device is needed.
//!
//! In a step, `decide` makes a list of swaps. [`Fetch`] reads the list and gathers the missing records. `carry` copies them into the
//! [`Transfer`], from which exchange unpacks them. Exchange and update pack the leaving records into the transfer, too, and a [`WriteBack`] takes
//! them to the store. A prefetched batch is gathered before the last step's records are in the store; the records of these that it needs are
//! forwarded within the transfer.

pub(crate) mod download;
pub(crate) mod fetch;
pub(crate) mod host;
pub(crate) mod pool;
pub(crate) mod traffic;
pub(crate) mod transfer;
pub(crate) mod write_back;

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

pub(crate) use fetch::{Arrivals, Fetch};
pub(crate) use traffic::Traffic;
pub(crate) use transfer::Transfer;

use crate::{
    config::{GroupConfig, Policy},
    error::Error,
    gpu::{
        engine::context::Context,
        stages::cached::{exchange::Records, space::Space, tables::Tables},
    },
    memory::{Allocation, Calls, buffer_bytes},
    store::{Hold, SharedStore},
    table::{
        abi::{Piece, Step, Swap},
        layout::Layout,
    },
};
use download::Download;
use fetch::Listing;
use host::Host;
use pool::Pool;
use write_back::WriteBack;

/// Rows that the last step evicted, and whose records have still to be copied back to the host.
#[derive(Debug)]
struct Leaving {
    list: Arc<[Swap]>,
    /// Most records that can leave in this step.
    most: u32,
}

/// The host's side of a staged table.
#[derive(Debug)]
pub(crate) struct Staged {
    host: Host,
    /// Keeps other groups from working on the store.
    _hold: Hold,
    /// The transfer of training steps.
    transfer: Option<Transfer>,
    /// The transfer that `transfer` has replaced, until the prefetch that needed a larger one is carried out.
    outgrown: Option<Transfer>,
    /// The transfer of flushes, frozen steps, and rows read or written.
    side_transfer: Option<Transfer>,
    /// The half of the transfer that holds the leaving records of the last step.
    parity: u32,
    leaving: Option<Leaving>,
    /// Leaving records of steps that have ended, oldest first.
    write_backs: Vec<WriteBack>,
    /// Whether the store knows, since the last flush, that the cache may be newer.
    unflushed: bool,
    slots: u32,
    stride: u64,
    /// Whether a batch may evict rows that it uses itself (LFU).
    keeps: bool,
}

/// Most bytes of records that a flush writes back at once.
const FLUSH_BYTES: u64 = 16 << 20;

impl Staged {
    pub(crate) fn new(store: SharedStore, hold: Hold, layout: &Layout, policy: Policy) -> Self {
        Self {
            host: Host::new(store),
            _hold: hold,
            transfer: None,
            outgrown: None,
            side_transfer: None,
            parity: 0,
            leaving: None,
            write_backs: Vec::new(),
            unflushed: false,
            slots: layout.slots(),
            stride: layout.stride(),
            keeps: keeps(policy, layout),
        }
    }

    /// Adapts to a cache of another size. Every leaving record must be in the store.
    pub(crate) fn resized(&mut self, layout: &Layout, policy: Policy) {
        (self.slots, self.keeps) = (layout.slots(), keeps(policy, layout));
        (self.transfer, self.outgrown, self.side_transfer) = (None, None, None);
    }

    pub(crate) fn store(&self) -> &SharedStore {
        &self.host.store
    }

    pub(crate) fn traffic(&self) -> Traffic {
        self.host.traffic.now()
    }

    /// The buffers of the transfers and of the pools.
    pub(crate) fn allocations(&self) -> Vec<Allocation> {
        let transfers = [&self.transfer, &self.outgrown, &self.side_transfer]
            .into_iter()
            .flatten()
            .map(|transfer| ("transfer", transfer.buffer.size()));
        let rings = [&self.host.downloads, &self.host.uploads].map(|pool| ("ring", pool.bytes()));
        transfers.chain(rings.into_iter().filter(|(_, bytes)| *bytes > 0)).collect()
    }

    /// The buffers that `calls` need at most, in the form of [`Self::allocations`].
    pub(crate) fn plan(config: &GroupConfig, layout: &Layout, calls: &Calls) -> Vec<Allocation> {
        let most = |indices: Option<u32>| indices.map(|indices| layout.most_distinct(indices)).filter(|&most| most > 0);
        let kept = |swaps: u32| if keeps(config.policy, layout) { swaps.min(layout.slots()) } else { 0 };
        let piece = (calls.flush && layout.sets > 0).then(|| flush_swaps(layout));
        let side_transfer = most(calls.frozen).max(piece);
        let mut all = Vec::new();
        let mut transfer = |swaps: Option<u32>, purpose: transfer::Purpose| {
            let bytes = swaps.map(|swaps| Transfer::bytes(layout, swaps, purpose));
            all.extend(bytes.map(|bytes| ("transfer", buffer_bytes(bytes))));
        };
        let train = most(calls.train);
        transfer(train, transfer::Purpose::Steps { keeps: train.map_or(0, kept) });
        transfer(side_transfer, transfer::Purpose::Side);
        // Two batches can be under way. Each has its list, its arriving and its leaving records. The largest buffer of each kind may serve
        // a flush or a frozen step, too.
        let write_back = |swaps: Option<u32>| swaps.map_or(0, |swaps| WriteBack::bytes(swaps.into(), layout.stride()));
        // The list of a batch without rows still has its head.
        let list = |indices: Option<u32>| indices.map_or(0, |indices| list_bytes(layout.most_distinct(indices)));
        let upload =
            |swaps: Option<u32>, kept: u32| swaps.map_or(0, |n| Fetch::bytes(n.into(), kept.into(), layout.stride()));
        let down = write_back(train).max(list(calls.train));
        let once = down.max(write_back(side_transfer)).max(list(calls.frozen));
        let up = upload(train, train.map_or(0, kept));
        let up_once = up.max(upload(most(calls.frozen), 0));
        let ring = 3 * down.next_multiple_of(64) + pool::size(once) + up.next_multiple_of(64) + pool::size(up_once);
        if once > 0 {
            all.push(("ring", ring));
        }
        all
    }

    /// Most victims that a step of `swaps` swaps can keep.
    fn most_kept(&self, swaps: u32) -> u32 {
        if self.keeps { swaps.min(self.slots) } else { 0 }
    }

    /// Tells the store that the cache will be newer, unless it knows since the last flush.
    pub(crate) fn unflushed(&mut self) -> Result<(), Error> {
        if !self.unflushed {
            self.host.store.write().unflushed()?;
            self.unflushed = true;
        }
        Ok(())
    }

    /// Tells the store that it has the newest value of every row, as of step `t`.
    pub(crate) fn flushed(&mut self, t: u32) -> Result<(), Error> {
        self.host.store.write().flushed(t)?;
        self.unflushed = false;
        Ok(())
    }

    /// Reserves the download of the last step's leaving records, before anything is encoded. `None` if no record can leave.
    pub(crate) fn reserve_close(&self, context: &Context) -> Result<Option<wgpu::Buffer>, Error> {
        match &self.leaving {
            Some(leaving) if leaving.most > 0 => {
                let bytes = WriteBack::bytes(leaving.most.into(), self.stride);
                self.host.downloads.take(context, bytes).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Ends the last step: encodes the download of its leaving records into `encoder`.
    pub(crate) fn close(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        tables: &Tables,
        reserved: Option<wgpu::Buffer>,
    ) {
        let write_back = self.write_back(encoder, tables, reserved);
        self.write_backs.extend(write_back);
        self.leaving = None;
    }

    fn write_back(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        tables: &Tables,
        reserved: Option<wgpu::Buffer>,
    ) -> Option<WriteBack> {
        let (leaving, transfer, buffer) = (self.leaving.as_ref()?, self.transfer.as_ref()?, reserved?);
        let from = (transfer, self.parity);
        Some(WriteBack::encode(encoder, &self.host, buffer, &tables.tables, from, leaving.most, self.stride))
    }

    /// Reserves the buffers of a training step of up to `most` swaps, before any of it is encoded. `more`: the backward of the last step
    /// may still come. `reads`: the step has no backward, so it makes no row newer than the store, and nobody may wait for it, so its
    /// whole list of swaps is downloaded at once.
    pub(crate) fn reserve(
        &mut self,
        context: &Context,
        layout: &Layout,
        most: u32,
        more: bool,
        reads: bool,
    ) -> Result<Room, Error> {
        let enough = most == 0 || self.transfer.as_ref().is_some_and(|transfer| transfer.capacity >= most);
        let purpose = transfer::Purpose::Steps { keeps: self.most_kept(most) };
        let transfer = if enough { None } else { Some(Transfer::new(context, layout, most, purpose)?) };
        let copied = if reads { most } else { self.host.guess(most) };
        let listing = self.host.downloads.take(context, list_bytes(copied))?;
        let write_back = if more { None } else { self.reserve_close(context)? };
        let noted = if reads { Ok(()) } else { self.unflushed() };
        if let Err(error) = noted {
            [Some(listing), write_back].into_iter().flatten().for_each(|buffer| self.host.downloads.give(buffer));
            return Err(error);
        }
        Ok(Room { transfer, listing, copied, write_back, more })
    }

    /// Reserves the buffers of a frozen step of up to `most` swaps.
    pub(crate) fn reserve_look_up(&self, context: &Context, most: u32) -> Result<Room, Error> {
        let copied = self.host.guess(most);
        let listing = self.host.downloads.take(context, list_bytes(copied))?;
        Ok(Room { transfer: None, listing, copied, write_back: None, more: true })
    }

    /// Ends the last step, unless its backward may still come, and takes the larger transfer of `room` into use. Cannot fail.
    pub(crate) fn move_in(
        &mut self,
        context: &Context,
        encoder: &mut wgpu::CommandEncoder,
        tables: &Tables,
        room: &mut Room,
    ) {
        if !room.more {
            self.close(encoder, tables, room.write_back.take());
        }
        if let Some(larger) = room.transfer.take() {
            if let (Some(smaller), true) = (&self.transfer, self.leaving.is_some()) {
                larger.take_over(encoder, smaller, self.parity);
            }
            context.forget_bindings();
            self.outgrown = self.transfer.replace(larger);
        }
    }

    /// Encodes the download of a decided step's list of swaps, and returns the host's work that follows.
    pub(crate) fn ask(
        &mut self,
        context: &Context,
        encoder: &mut wgpu::CommandEncoder,
        space: &Space,
        room: Room,
    ) -> Fetch {
        let (head, all, copied) = (list_bytes(0), list_bytes(room.copied), room.copied);
        encoder.copy_buffer_to_buffer(&space.step, 0, &room.listing, 0, head);
        if copied > 0 {
            encoder.copy_buffer_to_buffer(&space.swaps, 0, &room.listing, head, all - head);
        }
        let (download, swaps) = (Download::encode(encoder, room.listing), space.swaps.clone());
        let listing = Listing { download, copied, rest: None, swaps };
        Fetch {
            context: context.clone(),
            host: self.host.clone(),
            listing: Some(listing),
            list: Arc::new([]),
            write_backs: std::mem::take(&mut self.write_backs),
            before: self.leaving.as_ref().map(|leaving| leaving.list.clone()),
            slots: self.slots,
            stride: self.stride,
            after: None,
            here: false,
            took: Duration::ZERO,
        }
    }

    /// Undoes a prefetch whose encoder was dropped.
    pub(crate) fn take_back(&mut self, fetch: Fetch) {
        self.write_backs.splice(0..0, fetch.write_backs);
        if let Some(transfer) = self.outgrown.take() {
            self.transfer = Some(transfer);
        }
    }

    /// Encodes the copy of a training step's missing records into the transfer. Returns the uniform for exchange; `None` if no record is
    /// missing. `updates`: bypassed rows may change, and so leave.
    pub(crate) fn arrive(
        &mut self,
        context: &Context,
        encoder: &mut wgpu::CommandEncoder,
        tables: &Tables,
        arrivals: &Arrivals,
        updates: bool,
    ) -> Result<Option<wgpu::Buffer>, Error> {
        let reserved = self.reserve_close(context)?;
        // A write-back whose encoder was dropped is encoded again, before this step overwrites its records in the transfer.
        for write_back in &mut self.write_backs {
            if write_back.dropped() {
                write_back.encode_again(context, encoder, &self.host)?;
            }
        }
        self.close(encoder, tables, reserved);
        self.outgrown = None;
        let list = arrivals.list.clone();
        let Some(transfer) = self.transfer.as_ref().filter(|_| !list.is_empty()) else { return Ok(None) };
        self.host.begun.fetch_add(1, Ordering::Relaxed);
        self.parity = 1 - self.parity;
        receive(&self.host, encoder, tables, transfer, self.parity, arrivals);
        let leaves = |one: &&Swap| (updates && one.place >= self.slots) || one.flags & Swap::WRITE != 0;
        let most = list.iter().filter(leaves).count() as u32;
        self.leaving = Some(Leaving { list, most });
        let piece = transfer.piece(Piece::PACK | Piece::UNPACK, self.parity, 0, transfer.capacity);
        Ok(Some(context.uniform(&piece)))
    }

    /// The records that exchange and update bind in a training step. `piece` comes from [`Self::arrive`] or [`Self::packing`].
    pub(crate) fn records<'s>(&'s self, piece: &'s wgpu::Buffer) -> Records<'s> {
        match &self.transfer {
            Some(transfer) => Records::Transfer { transfer: &transfer.buffer, piece },
            None => Records::Nothing,
        }
    }

    /// The uniform with which a backward packs bypassed rows.
    pub(crate) fn packing(&self, context: &Context) -> Option<wgpu::Buffer> {
        self.transfer
            .as_ref()
            .map(|transfer| context.uniform(&transfer.piece(Piece::PACK, self.parity, 0, transfer.capacity)))
    }

    /// Brings every record that has left to the store. `more`: the last step's backward may still come, and more records may leave then.
    pub(crate) async fn settle(&mut self, context: &Context, tables: &Tables, more: bool) -> Result<(), Error> {
        self.bring(context, tables, more).await?;
        self.write_all(context).await
    }

    /// Downloads every record that has left. `more`: as for [`Self::settle`].
    async fn bring(&mut self, context: &Context, tables: &Tables, more: bool) -> Result<(), Error> {
        context.idle().await?;
        let reserved = self.reserve_close(context)?;
        let mut encoder = context.new_encoder();
        if let Some(write_back) = self.write_back(&mut encoder, tables, reserved) {
            // The records that leave from here on are counted from zero, so that no record comes to the store twice.
            if let (Some(transfer), Some(leaving)) = (&self.transfer, &self.leaving) {
                transfer.forget(&mut encoder, &tables.tables, self.parity, leaving.list.len() as u32);
            }
            // Before the wait: whoever drops the future must not lose the records.
            self.write_backs.push(write_back);
            context.finish_async(encoder).await?;
        }
        if !more {
            self.leaving = None;
        }
        Ok(())
    }

    /// Writes the downloaded records to the store. Records that the store refuses go on waiting.
    async fn write_all(&mut self, context: &Context) -> Result<(), Error> {
        while let Some(write_back) = self.write_backs.first_mut() {
            write_back.renewed(context, &self.host).await?;
            write_back.write(&self.host)?;
            self.write_backs.remove(0).end(&self.host);
        }
        Ok(())
    }

    /// Reads words of the records from `first_word` on: those of the store, and over them the records that the store has refused.
    pub(crate) async fn read_newest(
        &mut self,
        context: &Context,
        tables: &Tables,
        more: bool,
        first_word: u64,
        out: &mut [u32],
    ) -> Result<(), Error> {
        self.bring(context, tables, more).await?;
        match self.write_all(context).await {
            Ok(()) | Err(Error::Store { .. }) => {}
            Err(error) => return Err(error),
        }
        self.read_words(first_word, out)?;
        let words = self.stride / 4;
        let (first, end) = (first_word, first_word + out.len() as u64);
        for write_back in &mut self.write_backs {
            write_back.renewed(context, &self.host).await?;
            write_back.read(|rows, records| {
                for (&row, record) in rows.iter().zip(records.chunks_exact(self.stride as usize)) {
                    let start = u64::from(row) * words;
                    let (from, to) = (start.max(first), (start + words).min(end));
                    if from < to {
                        let bytes = &record[(from - start) as usize * 4..(to - start) as usize * 4];
                        let place = &mut out[(from - first) as usize..(to - first) as usize];
                        bytemuck::cast_slice_mut(place).copy_from_slice(bytes);
                    }
                }
            })?;
        }
        Ok(())
    }

    /// Reads words of the store's records from `first_word` on.
    fn read_words(&self, first_word: u64, out: &mut [u32]) -> Result<(), Error> {
        let (words, store) = (self.stride / 4, self.host.store.read());
        each_run(words, first_word, out.len(), |row, run, whole| {
            let part: &mut [u32] = &mut out[run];
            if let Some(inner) = whole {
                let mut record = vec![0u32; words as usize];
                store.read_range(row, bytemuck::cast_slice_mut(&mut record))?;
                part.copy_from_slice(&record[inner]);
                return Ok(());
            }
            store.read_range(row, bytemuck::cast_slice_mut(part))
        })
    }

    /// Replaces words of the store's records from `first_word` on. No transfer may be under way.
    pub(crate) fn write_words(&mut self, first_word: u64, from: &[u32]) -> Result<(), Error> {
        self.unflushed()?;
        let (words, mut store) = (self.stride / 4, self.host.store.write());
        each_run(words, first_word, from.len(), |row, run, whole| {
            let part = &from[run];
            if let Some(inner) = whole {
                let mut record = vec![0u32; words as usize];
                store.read_range(row, bytemuck::cast_slice_mut(&mut record))?;
                record[inner].copy_from_slice(part);
                return store.write_range(row, bytemuck::cast_slice(&record));
            }
            store.write_range(row, bytemuck::cast_slice(part))
        })
    }

    /// The transfer of calls beside training steps, with room for `swaps` swaps.
    pub(crate) fn side_transfer(&mut self, context: &Context, layout: &Layout, swaps: u32) -> Result<&Transfer, Error> {
        match self.side_transfer.take_if(|transfer| transfer.capacity >= swaps) {
            Some(enough) => Ok(self.side_transfer.insert(enough)),
            None => {
                self.side_transfer = None;
                context.forget_bindings();
                Ok(self.side_transfer.insert(Transfer::new(context, layout, swaps, transfer::Purpose::Side)?))
            }
        }
    }

    /// Gathers the rows of `list`, which the host has made, and encodes their copy into the side transfer with room for `most` swaps. No
    /// transfer may be under way. Returns the binding for exchange; `None` if no row is to come.
    pub(crate) fn bring_to_side(
        &mut self,
        context: &Context,
        encoder: &mut wgpu::CommandEncoder,
        tables: &Tables,
        list: &[Swap],
        most: u32,
    ) -> Result<Option<SideTransfer>, Error> {
        // A pool of its own, so that the ring of the training steps keeps its size.
        let host = Host { uploads: Pool::uploads(), ..self.host.clone() };
        let mut fetch = Fetch {
            context: context.clone(),
            host: host.clone(),
            listing: None,
            list: list.into(),
            write_backs: Vec::new(),
            before: None,
            slots: self.slots,
            stride: self.stride,
            after: None,
            here: false,
            took: Duration::ZERO,
        };
        let arrivals = fetch.run()?;
        self.receive_side(context, encoder, tables, &arrivals, most, &host)
    }

    /// Encodes the copy of a frozen step's missing records into the side transfer with room for `most` swaps. Returns the binding for
    /// exchange; `None` if no record is missing.
    pub(crate) fn arrive_side_transfer(
        &mut self,
        context: &Context,
        encoder: &mut wgpu::CommandEncoder,
        tables: &Tables,
        arrivals: &Arrivals,
        most: u32,
    ) -> Result<Option<SideTransfer>, Error> {
        let host = self.host.clone();
        self.receive_side(context, encoder, tables, arrivals, most, &host)
    }

    fn receive_side(
        &mut self,
        context: &Context,
        encoder: &mut wgpu::CommandEncoder,
        tables: &Tables,
        arrivals: &Arrivals,
        most: u32,
        host: &Host,
    ) -> Result<Option<SideTransfer>, Error> {
        if most == 0 {
            return Ok(None);
        }
        let transfer = self.side_transfer(context, &tables.layout, most)?;
        if arrivals.list.is_empty() {
            return Ok(None);
        }
        receive(host, encoder, tables, transfer, 0, arrivals);
        let piece = context.uniform(&transfer.piece(Piece::UNPACK, 0, 0, transfer.capacity));
        Ok(Some(SideTransfer { transfer: transfer.buffer.clone(), piece }))
    }

    /// Prepares the side transfer, with room for `room` swaps, for packing up to `swaps` swaps from number `first` on.
    pub(crate) fn pack_side_transfer(
        &mut self,
        context: &Context,
        encoder: &mut wgpu::CommandEncoder,
        tables: &Tables,
        (first, swaps): (u32, u32),
        room: u32,
    ) -> Result<SideTransfer, Error> {
        let transfer = self.side_transfer(context, &tables.layout, room)?;
        transfer.clear(encoder, &tables.tables, 0, swaps);
        let piece = context.uniform(&transfer.piece(Piece::PACK, 0, first, swaps));
        Ok(SideTransfer { transfer: transfer.buffer.clone(), piece })
    }

    /// Submits `encoder`, which packs up to `swaps` swaps into the side transfer, and brings their records to the store.
    pub(crate) async fn write_back_side_transfer(
        &mut self,
        context: &Context,
        mut encoder: wgpu::CommandEncoder,
        tables: &Tables,
        swaps: u32,
    ) -> Result<(), Error> {
        let Some(transfer) = self.side_transfer.as_ref().filter(|_| swaps > 0) else {
            return context.finish_async(encoder).await;
        };
        let buffer = self.host.downloads.take(context, WriteBack::bytes(swaps.into(), self.stride))?;
        let write_back =
            WriteBack::encode(&mut encoder, &self.host, buffer, &tables.tables, (transfer, 0), swaps, self.stride);
        // Records that the store refuses, or whose future is dropped, go on waiting, because their slots are already marked clean.
        self.write_backs.push(write_back);
        context.finish_async(encoder).await?;
        self.write_all(context).await
    }
}

/// The buffers that are reserved for a step before it is encoded.
#[derive(Debug)]
pub(crate) struct Room {
    /// A larger transfer, if the present one is too small.
    transfer: Option<Transfer>,
    listing: wgpu::Buffer,
    copied: u32,
    /// The download of the last step's leaving records.
    write_back: Option<wgpu::Buffer>,
    more: bool,
}

/// Whether a batch may evict rows that it uses itself: under LFU, with a cache.
fn keeps(policy: Policy, layout: &Layout) -> bool {
    policy == Policy::Lfu && layout.sets > 0
}

/// Number of swaps that a flush carries out at once.
pub(crate) fn flush_swaps(layout: &Layout) -> u32 {
    (FLUSH_BYTES / layout.stride()).clamp(1, u64::from(layout.slots().max(1))) as u32
}

/// Bytes of the download of a step's outcome and `swaps` swaps.
const fn list_bytes(swaps: u32) -> u64 {
    size_of::<Step>() as u64 + swaps as u64 * size_of::<Swap>() as u64
}

/// The side transfer and its uniform, as exchange binds them.
#[derive(Debug)]
pub(crate) struct SideTransfer {
    transfer: wgpu::Buffer,
    piece: wgpu::Buffer,
}

impl SideTransfer {
    pub(crate) fn records(&self) -> Records<'_> {
        Records::Transfer { transfer: &self.transfer, piece: &self.piece }
    }
}

fn receive(
    host: &Host,
    encoder: &mut wgpu::CommandEncoder,
    tables: &Tables,
    transfer: &Transfer,
    parity: u32,
    arrivals: &Arrivals,
) {
    transfer.clear(encoder, &tables.tables, parity, arrivals.list.len() as u32);
    let Some(upload) = &arrivals.upload else { return };
    let [forwards, kept, records] = transfer.inbound();
    let mut copy = |from: std::ops::Range<u64>, to: u64| {
        encoder.copy_buffer_to_buffer(&upload.buffer, from.start, &transfer.buffer, to, from.end - from.start);
    };
    copy(0..upload.records, records);
    if let Some(range) = &upload.forwards {
        copy(range.clone(), forwards);
    }
    if let Some(range) = &upload.kept {
        copy(range.clone(), kept);
    }
    host.uploads.give_when_read(encoder, &upload.buffer);
}

/// Cuts `count` words from `first` on into runs of whole records and parts of single records. `work` gets the first row, the run's position
/// among the words, and, for a part, its position in its record.
fn each_run(
    words: u64,
    first: u64,
    count: usize,
    mut work: impl FnMut(u32, std::ops::Range<usize>, Option<std::ops::Range<usize>>) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut done = 0;
    while done < count {
        let at = first + done as u64;
        let (row, inner) = ((at / words) as u32, (at % words) as usize);
        let rest = count - done;
        let (length, part) = if inner == 0 && rest >= words as usize {
            (rest - rest % words as usize, None)
        } else {
            let length = rest.min(words as usize - inner);
            (length, Some(inner..inner + length))
        };
        work(row, done..done + length, part)?;
        done += length;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn runs_cover_a_range_of_words() {
        for words in [1, 3, 4] {
            for first in 0..9 {
                for count in 0..14usize {
                    let mut seen = Vec::new();
                    let runs = crate::gpu::cached::staged::each_run(words, first, count, |row, run, part| {
                        let begin = u64::from(row) * words + part.as_ref().map_or(0, |part| part.start as u64);
                        assert!(part.is_none_or(|part| part.len() == run.len() && part.end as u64 <= words));
                        seen.extend(run.clone().map(|_| 0).zip(begin..).map(|(_, word)| word));
                        assert_eq!(run.start + run.len(), seen.len());
                        Ok(())
                    });
                    assert_eq!(runs, Ok(()));
                    assert_eq!(seen, (first..first + count as u64).collect::<Vec<_>>(), "{words} {first} {count}");
                }
            }
        }
    }
}
