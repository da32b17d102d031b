//! A group on a device as a virtual shard (SPEC 11). Its calls wait, as the calls of [`Embedding`] do.

use crate::{
    error::Error,
    gpu::{
        cached::{
            forward::Forward,
            group::{Group, grown},
        },
        engine::call::Call,
        stages::cached::{send, space::Bound},
        upload::Uploaded,
    },
    host::alloc::zeroed,
    lookup::{
        Embedding, Lookup,
        shard::{Shard, check_apply, check_fetch},
    },
    record::wire::{Wire, WireForm},
    scaler::GradSlice,
    table::{
        abi::{Params, ScalerState},
        batch::{self, Bags},
        params::Mode,
        parts::Part,
        rng::Purpose,
        row::RowLayout,
        step_state::Pending,
    },
};

impl Shard for Group {
    /// The batch has one bag for each table.
    fn fetch(&mut self, rows: &[u32], counts: &[u32]) -> Result<(), Error> {
        let accesses = check_fetch(self, rows, counts)?;
        if accesses == 0 {
            self.state.may_forward()?;
            let mut t = [0];
            self.read_part(Part::Clock, 0, &mut t)?;
            self.write_part(Part::Clock, 0, &[t[0].wrapping_add(1)])?;
            let forward_only = self.kind.config.forward_only;
            let none = Pending { indices: 0, bags: 0, weighted: false, space: 0, forward_only, number: 0 };
            self.state.forward(none);
            return Ok(());
        }
        let (mut indices, mut offsets) = (Vec::with_capacity(accesses as usize), vec![0]);
        let (mut base, mut rest) = (0, rows.iter().zip(counts).peekable());
        for &rows in &self.kind.config.tables {
            while let Some((&row, &count)) = rest.next_if(|&(&row, _)| row - base < rows) {
                indices.extend(std::iter::repeat_n(row - base, count as usize));
            }
            base += rows;
            offsets.push(indices.len() as u32);
        }
        self.forward(Bags::new(&indices, &offsets), Mode::Train).map(drop)
    }

    fn send_rows(
        &mut self,
        rows: &[u32],
        form: WireForm,
        step: u32,
        message: &mut Vec<u32>,
    ) -> Result<Vec<bool>, Error> {
        self.not_prefetched("send_rows")?;
        batch::check_rows(&self.kind.tables.layout, rows, "send_rows")?;
        let layout = self.kind.tables.layout.row;
        let words = entry_words(&layout);
        let (seed, stripe) = (self.kind.config.seed, self.kind.config.stripe);
        let wire = Wire::new(layout.dim, layout.precision, form, (seed, step), stripe);
        let mut list = wire.begin(rows.len(), message);
        let mut stored = Vec::with_capacity(rows.len());
        // The list of each piece fits into a buffer.
        let most = (self.most_bytes() as usize / 4 / words).max(1);
        for piece in rows.chunks(most) {
            let entries = self.waiting(self.refused_to_read("send_rows"), |this| {
                this.block_on(async |this| this.rows_to_send(piece).await)
            })?;
            for (&row, entry) in piece.iter().zip(entries.chunks_exact(words)) {
                stored.push(entry[0] == 1);
                if entry[0] == 1 {
                    wire.push_record(&mut list, &layout, row, &entry[1..][..layout.record_words as usize], message);
                } else {
                    wire.push(&mut list, row, bytemuck::cast_slice(&entry[1..][..layout.dim as usize]), message);
                }
            }
        }
        Ok(stored)
    }

    /// Puts the accesses in the place of those that linearize and gather have listed.
    fn apply(
        &mut self,
        accesses: &[[u32; 2]],
        factors: bool,
        gradients: &[f32],
        scaler: &ScalerState,
    ) -> Result<(), Error> {
        let pending = self.state.wants_forward("apply")?;
        let dim = self.kind.tables.layout.row.dim;
        check_apply(pending.indices, dim, accesses, gradients.len())?;
        if let Some(space) = self.kind.train[pending.space].as_ref().filter(|_| pending.indices > 0) {
            self.context.queue().write_buffer(&space.access, 0, bytemuck::cast_slice(accesses));
        }
        let bags = (gradients.len() / dim as usize) as u32;
        self.state.forward(Pending { bags, weighted: factors, ..pending });
        self.backward_scaled(GradSlice::F32(gradients), scaler)
    }

    fn most_bytes(&self) -> u64 {
        self.context.caps().choose_piece_bytes()
    }
}

/// Words of an entry in the list of the stage send.
const fn entry_words(row: &RowLayout) -> usize {
    1 + if row.record_words > row.dim { row.record_words } else { row.dim } as usize
}

impl Group {
    /// The list of the stage send. The records of a staged table come from its store.
    async fn rows_to_send(&mut self, rows: &[u32]) -> Result<Vec<u32>, Error> {
        let context = self.context.clone();
        let n = rows.len() as u32;
        let params = Params::new(&self.kind.config, &self.kind.tables.layout, Mode::Frozen, Purpose::Write).rows(n);
        let (batch, dummy) = (Uploaded::rows(&context, rows)?, self.dummy.clone());
        let bound = Bound::of(&context, &dummy, &batch.batch(), &params)?;
        let tables = &self.kind.tables;
        self.kind.storage.settle(self.state.pending().is_some()).await?;
        let space = grown(&mut self.kind.frozen, &context, &tables.layout, n, false)?;
        let words = entry_words(&tables.layout.row);
        let bytes = rows.len() as u64 * words as u64 * 4;
        let sent = context.buffer("rows to send", bytes, wgpu::BufferUsages::empty())?;
        let mut encoder = context.new_encoder();
        Forward { tables, space, params: &params, batch: &bound }.encode_decisions(&context, &mut encoder);
        let mut call = Call::begin(&context, &mut encoder, "hotrow.send");
        send::encode(&mut call, &params, tables, space, &dummy, &sent, n);
        drop(call);
        let mut entries = context.download_async(encoder, &[(&sent, bytes)]).await?.swap_remove(0);
        if let Some(store) = self.store() {
            let stored = entries.chunks_exact(words).zip(rows).filter(|(entry, _)| entry[0] == 1);
            let rows: Vec<u32> = stored.map(|(_, &row)| row).collect();
            let record_words = tables.layout.row.record_words as usize;
            let mut records = zeroed("records", rows.len() * record_words)?;
            store.read().read(&rows, bytemuck::cast_slice_mut(&mut records))?;
            let to = entries.chunks_exact_mut(words).filter(|entry| entry[0] == 1);
            for (entry, record) in to.zip(records.chunks_exact(record_words)) {
                entry[1..=record_words].copy_from_slice(record);
            }
        }
        Ok(entries)
    }
}
