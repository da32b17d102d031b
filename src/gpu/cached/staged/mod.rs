//! Staged tables (SPEC 4): their records are in the host's memory or in a file. The device lists the missing rows. The host gathers their
//! records, still packed, and takes back the packed records that leave. No optional feature of a device is needed.
//!
//! In a step, `decide` makes a list of swaps. [`Fetch`] reads the list and gathers the missing records. `carry` copies them into the
//! [`Transfer`], from which exchange unpacks them. Exchange and update pack the leaving records into the transfer, too, and a `WriteBack` takes
//! them to the store. A prefetched batch is gathered before the last step's records are in the store; the records of these that it needs are
//! forwarded within the transfer.

pub(crate) mod download;
pub(crate) mod fetch;
pub(crate) mod host;
pub(crate) mod pool;
pub(crate) mod stored;
pub(crate) mod traffic;
pub(crate) mod transfer;
pub(crate) mod transfers;
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
        abi::{Step, Swap},
        layout::Layout,
    },
};
use download::Download;
use fetch::Listing;
use host::Host;
use pool::Pool;
use stored::Stored;
use transfers::{Leaving, Transfers, keeps};
use write_back::WriteBack;

/// A staged table: its transfers on the device, and its store on the host.
#[derive(Debug)]
pub(crate) struct Staged {
    pub(crate) transfers: Transfers,
    pub(crate) stored: Stored,
    /// The state before the last step's records were copied.
    before: Option<Before>,
}

#[derive(Debug)]
struct Before {
    parity: u32,
    leaving: Option<Leaving>,
    /// Number of the write-backs that were waiting, and of the steps carried out.
    write_backs: usize,
    begun: u32,
}

/// Most bytes of records that a flush writes back at once.
const FLUSH_BYTES: u64 = 16 << 20;

impl Staged {
    pub(crate) fn new(context: &Context, store: SharedStore, hold: Hold, tables: &Tables, policy: Policy) -> Self {
        let transfers = Transfers::new(&tables.layout, policy, &tables.tables);
        Self { transfers, stored: Stored::new(context, store, hold, tables.layout.stride()), before: None }
    }

    pub(crate) fn store(&self) -> &SharedStore {
        &self.stored.host.store
    }

    pub(crate) fn traffic(&self) -> Traffic {
        self.stored.host.traffic.now()
    }

    /// The buffers of the transfers and of the pools.
    pub(crate) fn allocations(&self) -> Vec<Allocation> {
        let host = &self.stored.host;
        let rings = [&host.downloads, &host.uploads].map(|pool| ("ring", pool.bytes()));
        let transfers = self.transfers.sizes().map(|bytes| ("transfer", bytes));
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

    /// Reserves the download of the last step's leaving records, before anything is encoded. `None` if no record can leave.
    pub(crate) fn reserve_close(&self) -> Result<Option<wgpu::Buffer>, Error> {
        self.transfers.leaving_bytes().map(|bytes| self.stored.host.download(bytes)).transpose()
    }

    /// Ends the last step: encodes the download of its leaving records into `encoder`. `step`: its words, if a backward ends it.
    pub(crate) fn close(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        reserved: Option<wgpu::Buffer>,
        step: Option<&wgpu::Buffer>,
    ) {
        let write_back = self.transfers.encode_write_back(encoder, &self.stored.host, reserved, step);
        self.stored.write_backs.extend(write_back);
        self.transfers.end_step();
    }

    /// Reserves the buffers of a training step of up to `most` swaps, before any of it is encoded. `more`: the backward of the last step
    /// may still come. `reads`: the step has no backward, so it makes no row newer than the store, and nobody may wait for it, so its
    /// whole list of swaps is downloaded at once.
    pub(crate) fn reserve(&mut self, most: u32, more: bool, reads: bool) -> Result<Room, Error> {
        let host = &self.stored.host;
        let transfer = self.transfers.larger(&host.context, most)?;
        let copied = if reads { most } else { host.guess(most) };
        let listing = host.download(list_bytes(copied))?;
        let write_back = if more { None } else { self.reserve_close()? };
        let noted = if reads { Ok(()) } else { self.stored.unflushed() };
        if let Err(error) = noted {
            [Some(listing), write_back]
                .into_iter()
                .flatten()
                .for_each(|buffer| self.stored.host.downloads.give(buffer));
            return Err(error);
        }
        Ok(Room { transfer, listing, copied, write_back, more })
    }

    /// Reserves the buffers of a frozen step of up to `most` swaps.
    pub(crate) fn reserve_look_up(&self, most: u32) -> Result<Room, Error> {
        let copied = self.stored.host.guess(most);
        let listing = self.stored.host.download(list_bytes(copied))?;
        Ok(Room { transfer: None, listing, copied, write_back: None, more: true })
    }

    /// Ends the last step, unless its backward may still come, and takes the larger transfer of `room` into use. Cannot fail.
    pub(crate) fn move_in(&mut self, encoder: &mut wgpu::CommandEncoder, room: &mut Room) {
        if !room.more {
            self.close(encoder, room.write_back.take(), None);
        }
        if let Some(larger) = room.transfer.take() {
            self.transfers.replace(&self.stored.host.context, encoder, larger);
        }
    }

    /// Encodes the download of a decided step's list of swaps, and returns the host's work that follows.
    pub(crate) fn ask(&mut self, encoder: &mut wgpu::CommandEncoder, space: &Space, room: Room) -> Fetch {
        let (head, all, copied) = (list_bytes(0), list_bytes(room.copied), room.copied);
        encoder.copy_buffer_to_buffer(&space.step, 0, &room.listing, 0, head);
        if copied > 0 {
            encoder.copy_buffer_to_buffer(&space.swaps, 0, &room.listing, head, all - head);
        }
        let (download, swaps) = (Download::encode(encoder, room.listing), space.swaps.clone());
        Fetch {
            listing: Some(Listing { download, copied, rest: None, swaps }),
            write_backs: std::mem::take(&mut self.stored.write_backs),
            before: self.transfers.before(),
            ..self.fetch(self.stored.host.clone(), &[])
        }
    }

    /// The gathering of the rows of `list`, when nothing has to come or to leave before it.
    fn fetch(&self, host: Host, list: &[Swap]) -> Fetch {
        Fetch {
            host,
            listing: None,
            list: list.into(),
            write_backs: Vec::new(),
            before: None,
            slots: self.transfers.layout().slots(),
            stride: self.transfers.layout().stride(),
            after: None,
            here: false,
            took: Duration::ZERO,
        }
    }

    /// Undoes a prefetch whose encoder was dropped.
    pub(crate) fn take_back(&mut self, fetch: Fetch) {
        self.stored.write_backs.splice(0..0, fetch.write_backs);
        self.transfers.take_back();
    }

    /// Encodes the copy of a training step's missing records into the transfer. Returns the records for exchange. `updates`: bypassed rows
    /// may change, and so leave.
    pub(crate) fn arrive(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        arrivals: &Arrivals,
        updates: bool,
    ) -> Result<Records, Error> {
        let reserved = self.reserve_close()?;
        let (parity, leaving) = self.transfers.now();
        let (write_backs, begun) = (self.stored.write_backs.len(), self.stored.host.begun());
        self.before = Some(Before { parity, leaving, write_backs, begun });
        self.stored.encode_dropped(encoder)?;
        self.close(encoder, reserved, None);
        Ok(self.transfers.arrive(encoder, &self.stored.host, arrivals, updates))
    }

    /// Undoes [`Self::arrive`], whose encoder was dropped, and returns the gathering of the same rows.
    pub(crate) fn undo_arrive(&mut self, list: &Arc<[Swap]>) -> Fetch {
        let host = self.stored.host.clone();
        if let Some(Before { parity, leaving, write_backs, begun }) = self.before.take() {
            let later = self.stored.write_backs.drain(write_backs.min(self.stored.write_backs.len())..);
            later.for_each(|write_back| write_back.give_up(&host));
            self.transfers.go_back(parity, leaving);
            host.begun.store(begun, Ordering::Relaxed);
        }
        let write_backs = std::mem::take(&mut self.stored.write_backs);
        Fetch { write_backs, before: self.transfers.before(), ..self.fetch(host, list) }
    }

    /// Brings every record that has left to the store. `more`: the last step's backward may still come, and more records may leave then.
    pub(crate) async fn settle(&mut self, more: bool) -> Result<(), Error> {
        self.download_left(more).await?;
        self.stored.write_all().await
    }

    /// Downloads every record that has left. `more`: as for [`Self::settle`].
    async fn download_left(&mut self, more: bool) -> Result<(), Error> {
        let context = self.stored.host.context.clone();
        context.idle().await?;
        let reserved = self.reserve_close()?;
        let mut encoder = context.new_encoder();
        if let Some(write_back) = self.transfers.encode_write_back(&mut encoder, &self.stored.host, reserved, None) {
            self.transfers.forget_left(&mut encoder);
            // Before the wait: whoever drops the future must not lose the records.
            self.stored.write_backs.push(write_back);
            context.finish_async(encoder).await?;
        }
        if !more {
            self.transfers.end_step();
        }
        Ok(())
    }

    /// Reads words of the records from `first_word` on: from the store, and over them the records that the store has refused.
    pub(crate) async fn read_newest(&mut self, more: bool, first_word: u64, out: &mut [u32]) -> Result<(), Error> {
        match self.settle(more).await {
            // The store has refused records: they wait.
            Ok(()) | Err(Error::Store { .. }) => self.stored.read_newest(first_word, out).await,
            Err(error) => Err(error),
        }
    }

    /// Replaces words of the store's records from `first_word` on. `more`: as for [`Self::settle`].
    pub(crate) async fn write_words(&mut self, more: bool, first_word: u64, from: &[u32]) -> Result<(), Error> {
        self.settle(more).await?;
        self.stored.write_words(first_word, from)
    }

    /// Gathers the rows of `list`, which the host has made, and encodes their copy into the side transfer with room for `most` swaps. No
    /// transfer may be under way. Returns the records for exchange.
    pub(crate) fn bring_to_side(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        list: &[Swap],
        most: u32,
    ) -> Result<Records, Error> {
        // A pool of its own, so that the ring of the training steps keeps its size.
        let host = Host { uploads: Pool::uploads(), ..self.stored.host.clone() };
        let arrivals = self.fetch(host.clone(), list).run()?;
        self.transfers.arrive_side(encoder, &host, &arrivals, most)
    }

    /// Encodes the copy of a frozen step's missing records into the side transfer with room for `most` swaps. Returns the records for
    /// exchange.
    pub(crate) fn arrive_side(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        arrivals: &Arrivals,
        most: u32,
    ) -> Result<Records, Error> {
        self.transfers.arrive_side(encoder, &self.stored.host, arrivals, most)
    }

    /// Submits `encoder`, which packs up to `swaps` swaps into the side transfer, and brings their records to the store.
    pub(crate) async fn write_back_side(&mut self, mut encoder: wgpu::CommandEncoder, swaps: u32) -> Result<(), Error> {
        let packed = self.transfers.encode_write_back_side(&mut encoder, &self.stored.host, swaps)?;
        // Records that the store refuses, or whose future is dropped, go on waiting, because their slots are already marked clean.
        self.stored.write_backs.extend(packed);
        self.stored.host.context.finish_async(encoder).await?;
        if swaps > 0 { self.stored.write_all().await } else { Ok(()) }
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

/// Number of swaps that a flush carries out at once.
pub(crate) fn flush_swaps(layout: &Layout) -> u32 {
    (FLUSH_BYTES / layout.stride()).clamp(1, u64::from(layout.slots().max(1))) as u32
}

/// Bytes of the download of a step's outcome and `swaps` swaps.
const fn list_bytes(swaps: u32) -> u64 {
    size_of::<Step>() as u64 + swaps as u64 * size_of::<Swap>() as u64
}
