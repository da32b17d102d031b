//! The place of a group's records. The calls of a group go through it, whatever the place is.

use crate::{
    config::Policy,
    error::Error,
    gpu::{
        cached::{
            prefetched::Coming,
            staged::{Fetch, Room, Staged, flush_swaps},
        },
        engine::context::Context,
        stages::cached::{exchange::Records, space::Space},
    },
    memory::Allocation,
    table::{abi::Swap, layout::Layout},
};

/// The place of a group's records.
#[derive(Debug)]
pub(crate) enum Storage {
    /// Buffers that stages bind: on the device, or mapped.
    Resident,
    /// The host's memory or a file.
    Staged(Box<Staged>),
}

impl Storage {
    pub(crate) const fn staged(&self) -> Option<&Staged> {
        match self {
            Self::Resident => None,
            Self::Staged(staged) => Some(staged),
        }
    }

    pub(crate) const fn is_staged(&self) -> bool {
        matches!(self, Self::Staged(_))
    }

    /// The buffers through which records come and leave.
    pub(crate) fn allocations(&self) -> Vec<Allocation> {
        self.staged().map_or_else(Vec::new, Staged::allocations)
    }

    /// Adapts to a cache of another size. Every leaving record must be in the table.
    pub(crate) fn resized(&mut self, layout: &Layout, policy: Policy) {
        if let Self::Staged(staged) = self {
            staged.transfers.resized(layout, policy);
        }
    }

    /// Tells the store that the cache will be newer.
    pub(crate) fn unflushed(&mut self) -> Result<(), Error> {
        match self {
            Self::Resident => Ok(()),
            Self::Staged(staged) => staged.stored.unflushed(),
        }
    }

    /// Brings every record that has left to the table. `more`: the last step's backward may still come, and more records may leave then.
    pub(crate) async fn settle(&mut self, more: bool) -> Result<(), Error> {
        match self {
            Self::Resident => Ok(()),
            Self::Staged(staged) => staged.settle(more).await,
        }
    }

    /// Reserves the buffers of a training step: see [`Staged::reserve`].
    pub(crate) fn reserve(&mut self, most: u32, more: bool, reads: bool) -> Result<Option<Room>, Error> {
        match self {
            Self::Resident => Ok(None),
            Self::Staged(staged) => staged.reserve(most, more, reads).map(Some),
        }
    }

    /// Ends the last step, unless its backward may still come, and takes `room` into use. Cannot fail.
    pub(crate) fn move_in(&mut self, encoder: &mut wgpu::CommandEncoder, room: Option<&mut Room>) {
        if let (Self::Staged(staged), Some(room)) = (self, room) {
            staged.move_in(encoder, room);
        }
    }

    /// Encodes the question for a decided step's missing records.
    pub(crate) fn ask(&mut self, encoder: &mut wgpu::CommandEncoder, space: &Space, room: Option<Room>) -> Coming {
        match (self, room) {
            (Self::Staged(staged), Some(room)) => Coming::Asked(staged.ask(encoder, space, room)),
            _ => Coming::Nothing,
        }
    }

    /// Undoes a prefetch whose encoder was dropped.
    pub(crate) fn take_back(&mut self, fetch: Fetch) {
        if let Self::Staged(staged) = self {
            staged.take_back(fetch);
        }
    }

    /// The records from which a step's missing rows are unpacked, after their copy has been encoded. `updates`: bypassed rows may change, and
    /// so leave.
    pub(crate) fn arrive(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        coming: &Coming,
        updates: bool,
    ) -> Result<Records, Error> {
        match (self, coming) {
            (Self::Resident, _) => Ok(Records::Table),
            (Self::Staged(staged), Coming::Here(arrivals)) => staged.arrive(encoder, arrivals, updates),
            (Self::Staged(_), _) => {
                let (call, wanted) = ("encode_forward_prefetched", "a fetch after the prefetch has been submitted");
                Err(Error::Order { call, wanted, found: "a prefetch whose records have not been fetched" })
            }
        }
    }

    /// Undoes [`Self::arrive`], whose encoder was dropped. The records of a staged table are gathered again.
    pub(crate) fn undo_arrive(&mut self, coming: Coming) -> Coming {
        match (self, coming) {
            (Self::Staged(staged), Coming::Here(arrivals)) => Coming::Asked(staged.undo_arrive(&arrivals.list)),
            (_, coming) => coming,
        }
    }

    /// The records into which a backward packs bypassed rows.
    pub(crate) fn packing(&self, context: &Context) -> Records {
        self.staged().map_or(Records::Table, |staged| staged.transfers.packing(context))
    }

    /// Reserves the download of the last step's leaving records, before anything is encoded.
    pub(crate) fn reserve_close(&self) -> Result<Option<wgpu::Buffer>, Error> {
        self.staged().map_or(Ok(None), Staged::reserve_close)
    }

    /// Ends the last step with its backward: encodes the download of its leaving records. `step`: its words.
    pub(crate) fn close(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        reserved: Option<wgpu::Buffer>,
        step: Option<&wgpu::Buffer>,
    ) {
        if let Self::Staged(staged) = self {
            staged.close(encoder, reserved, step);
        }
    }

    /// Most of `swaps` swaps that a call beside the training steps carries out at once.
    pub(crate) fn swaps_at_once(&self, layout: &Layout, swaps: u32) -> u32 {
        if self.is_staged() { flush_swaps(layout) } else { swaps.max(1) }
    }

    /// The records from which the rows of `list`, which the host has made, are unpacked. At most `most` are unpacked at once.
    pub(crate) fn load(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        list: &[Swap],
        most: u32,
    ) -> Result<Records, Error> {
        match self {
            Self::Resident => Ok(Records::Table),
            Self::Staged(staged) => staged.bring_to_side(encoder, list, most),
        }
    }

    /// The records into which `swaps` swaps are packed.
    pub(crate) fn pack(
        &mut self,
        context: &Context,
        encoder: &mut wgpu::CommandEncoder,
        swaps: u32,
    ) -> Result<Records, Error> {
        match self {
            Self::Resident => Ok(Records::Table),
            Self::Staged(staged) => staged.transfers.pack_side(context, encoder, (0, swaps), swaps),
        }
    }

    /// Submits `encoder`, which packs up to `swaps` swaps, and waits until their records are in the table.
    pub(crate) async fn write_back(
        &mut self,
        context: &Context,
        encoder: wgpu::CommandEncoder,
        swaps: u32,
    ) -> Result<(), Error> {
        match self {
            Self::Resident => context.finish_async(encoder).await,
            Self::Staged(staged) => staged.write_back_side(encoder, swaps).await,
        }
    }
}
