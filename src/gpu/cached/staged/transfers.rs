//! The device's side of a staged table: the transfers, and the records in them that have still to leave.

use std::sync::Arc;

use crate::{
    config::Policy,
    error::Error,
    gpu::{
        cached::staged::{
            fetch::Arrivals,
            host::Host,
            transfer::{Purpose, Transfer},
            write_back::WriteBack,
        },
        engine::context::Context,
        stages::cached::exchange::Records,
    },
    table::{
        abi::{Piece, Swap},
        layout::Layout,
    },
};

/// Rows that the last step evicted, and whose records have still to be copied back to the host.
#[derive(Clone, Debug)]
pub(crate) struct Leaving {
    list: Arc<[Swap]>,
    /// Most records that can leave in this step.
    most: u32,
}

/// The transfers of a staged table.
#[derive(Debug)]
pub(crate) struct Transfers {
    /// The transfer of training steps.
    steps: Option<Transfer>,
    /// The transfer that `steps` has replaced, until the prefetch that needed a larger one is carried out.
    outgrown: Option<Transfer>,
    /// The transfer of flushes, frozen steps, and rows read or written.
    side: Option<Transfer>,
    /// The half of `steps` that holds the leaving records of the last step.
    parity: u32,
    leaving: Option<Leaving>,
    /// Has the counts of leaving records.
    counts: wgpu::Buffer,
    layout: Layout,
    /// Whether a batch may evict rows that it uses itself (LFU).
    keeps: bool,
}

impl Transfers {
    /// None yet, for a cache of this size. `counts`: the buffer that stages bind as `tables`.
    pub(crate) fn new(layout: &Layout, policy: Policy, counts: &wgpu::Buffer) -> Self {
        Self {
            steps: None,
            outgrown: None,
            side: None,
            parity: 0,
            leaving: None,
            counts: counts.clone(),
            layout: layout.clone(),
            keeps: keeps(policy, layout),
        }
    }

    /// The bytes of each.
    pub(crate) fn sizes(&self) -> impl Iterator<Item = u64> {
        [&self.steps, &self.outgrown, &self.side].into_iter().flatten().map(|transfer| transfer.buffer.size())
    }

    /// Adapts to a cache of another size. Every leaving record must be in the store.
    pub(crate) fn resized(&mut self, layout: &Layout, policy: Policy) {
        *self = Self::new(layout, policy, &self.counts);
    }

    pub(crate) const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// A larger transfer, if the transfer of training steps has no room for `most` swaps.
    pub(crate) fn larger(&self, context: &Context, most: u32) -> Result<Option<Transfer>, Error> {
        if most == 0 || self.steps.as_ref().is_some_and(|transfer| transfer.capacity >= most) {
            return Ok(None);
        }
        let keeps = if self.keeps { most.min(self.layout.slots()) } else { 0 };
        Transfer::new(context, &self.layout, most, Purpose::Steps { keeps }).map(Some)
    }

    /// Takes a larger transfer into use.
    pub(crate) fn replace(&mut self, context: &Context, encoder: &mut wgpu::CommandEncoder, larger: Transfer) {
        if let (Some(smaller), true) = (&self.steps, self.leaving.is_some()) {
            larger.take_over(encoder, smaller, self.parity);
        }
        context.forget_bindings();
        self.outgrown = self.steps.replace(larger);
    }

    /// Undoes [`Self::replace`], whose encoder was dropped.
    pub(crate) fn take_back(&mut self) {
        if let Some(transfer) = self.outgrown.take() {
            self.steps = Some(transfer);
        }
    }

    /// The half that holds the leaving records of the last step, and these.
    pub(crate) fn now(&self) -> (u32, Option<Leaving>) {
        (self.parity, self.leaving.clone())
    }

    /// Goes back to a state that [`Self::now`] has returned. No command of a later one may have run.
    pub(crate) fn go_back(&mut self, parity: u32, leaving: Option<Leaving>) {
        (self.parity, self.leaving) = (parity, leaving);
    }

    /// The swaps of the last step, if records that left in it may still be on the device.
    pub(crate) fn before(&self) -> Option<Arc<[Swap]>> {
        self.leaving.as_ref().map(|leaving| leaving.list.clone())
    }

    /// Bytes of the download of the last step's leaving records. `None` if no record can leave.
    pub(crate) fn leaving_bytes(&self) -> Option<u64> {
        let leaving = self.leaving.as_ref().filter(|leaving| leaving.most > 0)?;
        Some(WriteBack::bytes(leaving.most.into(), self.layout.stride()))
    }

    /// Encodes the download of the last step's leaving records into `buffer`. `step`: the words of the step that a backward ends.
    pub(crate) fn encode_write_back(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        host: &Host,
        buffer: Option<wgpu::Buffer>,
        step: Option<&wgpu::Buffer>,
    ) -> Option<WriteBack> {
        let (leaving, transfer, buffer) = (self.leaving.as_ref()?, self.steps.as_ref()?, buffer?);
        let (from, stride) = ((transfer, self.parity), self.layout.stride());
        Some(WriteBack::encode(encoder, host, buffer, (&self.counts, step), from, leaving.most, stride))
    }

    /// Counts the records that leave from here on from zero, so that no record comes to the store twice.
    pub(crate) fn forget_left(&self, encoder: &mut wgpu::CommandEncoder) {
        if let (Some(transfer), Some(leaving)) = (&self.steps, &self.leaving) {
            transfer.forget(encoder, &self.counts, self.parity, leaving.list.len() as u32);
        }
    }

    /// Ends the last step: no more records leave in it.
    pub(crate) fn end_step(&mut self) {
        self.leaving = None;
    }

    /// Encodes the copy of a training step's missing records, and returns the records that exchange binds. `updates`: bypassed rows may
    /// change, and so leave. The last step must have ended.
    pub(crate) fn arrive(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        host: &Host,
        arrivals: &Arrivals,
        updates: bool,
    ) -> Records {
        self.outgrown = None;
        let list = arrivals.list.clone();
        let Some(transfer) = self.steps.as_ref().filter(|_| !list.is_empty()) else { return Records::Nothing };
        host.count_step();
        self.parity = 1 - self.parity;
        receive(host, encoder, &self.counts, transfer, self.parity, arrivals);
        let leaves = |one: &&Swap| (updates && one.place >= self.layout.slots()) || one.flags & Swap::WRITE != 0;
        let most = list.iter().filter(leaves).count() as u32;
        self.leaving = Some(Leaving { list, most });
        transfer.records(&host.context, &transfer.piece(Piece::PACK | Piece::UNPACK, self.parity, 0, transfer.capacity))
    }

    /// The records into which a backward packs bypassed rows.
    pub(crate) fn packing(&self, context: &Context) -> Records {
        self.steps.as_ref().map_or(Records::Nothing, |transfer| {
            transfer.records(context, &transfer.piece(Piece::PACK, self.parity, 0, transfer.capacity))
        })
    }

    /// The transfer of calls beside training steps, with room for `swaps` swaps.
    pub(crate) fn side(&mut self, context: &Context, swaps: u32) -> Result<&Transfer, Error> {
        match self.side.take_if(|transfer| transfer.capacity >= swaps) {
            Some(enough) => Ok(self.side.insert(enough)),
            None => {
                self.side = None;
                context.forget_bindings();
                Ok(self.side.insert(Transfer::new(context, &self.layout, swaps, Purpose::Side)?))
            }
        }
    }

    /// Encodes the copy of missing records into the side transfer with room for `most` swaps.
    pub(crate) fn arrive_side(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        host: &Host,
        arrivals: &Arrivals,
        most: u32,
    ) -> Result<Records, Error> {
        if most == 0 {
            return Ok(Records::Nothing);
        }
        let (context, counts) = (&host.context, self.counts.clone());
        let transfer = self.side(context, most)?;
        if arrivals.list.is_empty() {
            return Ok(Records::Nothing);
        }
        receive(host, encoder, &counts, transfer, 0, arrivals);
        Ok(transfer.records(context, &transfer.piece(Piece::UNPACK, 0, 0, transfer.capacity)))
    }

    /// Prepares the side transfer, with room for `room` swaps, for packing up to `swaps` swaps from number `first` on.
    pub(crate) fn pack_side(
        &mut self,
        context: &Context,
        encoder: &mut wgpu::CommandEncoder,
        (first, swaps): (u32, u32),
        room: u32,
    ) -> Result<Records, Error> {
        let counts = self.counts.clone();
        let transfer = self.side(context, room)?;
        transfer.clear(encoder, &counts, 0, swaps);
        Ok(transfer.records(context, &transfer.piece(Piece::PACK, 0, first, swaps)))
    }

    /// Encodes the download of up to `swaps` records that were packed into the side transfer. `None` if there are none.
    pub(crate) fn encode_write_back_side(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        host: &Host,
        swaps: u32,
    ) -> Result<Option<WriteBack>, Error> {
        let Some(transfer) = self.side.as_ref().filter(|_| swaps > 0) else { return Ok(None) };
        let stride = self.layout.stride();
        let buffer = host.download(WriteBack::bytes(swaps.into(), stride))?;
        Ok(Some(WriteBack::encode(encoder, host, buffer, (&self.counts, None), (transfer, 0), swaps, stride)))
    }
}

/// Whether a batch may evict rows that it uses itself: with a cache, and a policy that lets them leave.
pub(crate) fn keeps(policy: Policy, layout: &Layout) -> bool {
    policy.facts().own_leave && layout.sets > 0
}

fn receive(
    host: &Host,
    encoder: &mut wgpu::CommandEncoder,
    counts: &wgpu::Buffer,
    transfer: &Transfer,
    parity: u32,
    arrivals: &Arrivals,
) {
    transfer.clear(encoder, counts, parity, arrivals.list.len() as u32);
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
