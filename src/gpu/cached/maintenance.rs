//! The calls on a staged table beside its training steps: frozen steps, reading rows, writing rows, flush. Each call first waits until the
//! store has all records that have left.

use crate::{
    error::Error,
    gpu::{
        cached::{
            forward::{Forward, Outputs},
            group::{Group, encode_collect, grown},
            staged::flush_swaps,
            storage::Storage,
        },
        engine::{bind::Batch, call::Call},
        stages::cached::{
            exchange,
            space::{Bound, FlushSpace},
        },
    },
    table::{
        abi::{Params, Step, count},
        params::Mode,
        rng::Purpose,
    },
};

impl Group {
    /// Encodes a frozen step of any table with the frozen step scratch, which must have room for it. For a staged table, the deciding
    /// stages have run and the missing records are gathered when this returns. Returns the number of swaps: exact for a staged table, else
    /// an upper bound.
    pub(crate) async fn encode_look_up(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        params: &Params,
        bound: &Bound<'_>,
        outputs: Outputs<'_>,
    ) -> Result<u32, Error> {
        let (context, tables) = (&self.context, &self.kind.tables);
        let most = tables.layout.most_distinct(params.indices);
        let Some(space) = &self.kind.frozen else { return Ok(0) };
        let step = Forward { tables, space, params, batch: bound };
        let Storage::Staged(staged) = &mut self.kind.storage else {
            step.encode(context, encoder, outputs);
            return Ok(most);
        };
        staged.settle(self.state.pending().is_some()).await?;
        let room = staged.reserve_look_up(most)?;
        let mut first = context.new_encoder();
        step.encode_decisions(context, &mut first);
        let fetch = staged.ask(&mut first, space, room);
        context.submit(first);
        let arrivals = fetch.maintenance().run_async().await?;
        let records = staged.arrive_side(encoder, &arrivals, most)?;
        step.encode_carry(context, encoder, outputs, records);
        Ok(arrivals.list.len() as u32)
    }

    /// Encodes a frozen forward of a staged table.
    pub(crate) async fn encode_frozen_staged(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        batch: &Batch<'_>,
        outputs: wgpu::BufferSlice<'_>,
    ) -> Result<(), Error> {
        self.not_prefetched("frozen forward")?;
        let params = self.batch_params(batch, Mode::Frozen)?;
        let dummy = self.dummy.clone();
        let bound = Bound::of(&self.context, &dummy, batch, &params)?;
        let rows = self.bound_outputs(batch, &params, outputs)?.1;
        grown(&mut self.kind.frozen, &self.context, &self.kind.tables.layout, params.indices, false)?;
        let binding = if rows == 0 { dummy.as_entire_binding() } else { self.context.bind("outputs", outputs, 0)? };
        self.encode_look_up(encoder, &params, &bound, Some((&binding, rows))).await.map(drop)
    }

    /// Writes every dirty row of a staged table to its store, part by part.
    pub(crate) async fn flush_staged(&mut self) -> Result<(), Error> {
        let (context, tables) = (&self.context, &self.kind.tables);
        let Storage::Staged(staged) = &mut self.kind.storage else { return Ok(()) };
        staged.settle(self.state.pending().is_some()).await?;
        if tables.layout.sets > 0 {
            let space = match &mut self.kind.flush {
                Some(space) => space,
                none => none.insert(FlushSpace::new(context, &tables.layout)?),
            };
            let mut encoder = context.new_encoder();
            encoder.clear_buffer(&space.step, 0, None);
            let params = Params::new(&self.kind.config, &tables.layout, Mode::Train, Purpose::WriteBack);
            encode_collect(&mut Call::begin(context, &mut encoder, "hotrow.flush"), &params, tables, space);
            let words = context.download_async(encoder, &[(&space.step, size_of::<Step>() as u64)]).await?;
            let step: Step = bytemuck::pod_read_unaligned(bytemuck::cast_slice(&words[0]));
            let most = flush_swaps(&tables.layout);
            // The transfer is allocated even if no row is dirty, as the memory plan states.
            staged.transfers.side(context, most)?;
            for first in (0..step.counts[count::SWAPS]).step_by(most as usize) {
                let swaps = most.min(step.counts[count::SWAPS] - first);
                let mut encoder = context.new_encoder();
                let records = staged.transfers.pack_side(context, &mut encoder, (first, swaps), most)?;
                let FlushSpace { step, swaps: list, no_scratch } = &*space;
                let list = exchange::List { step, swaps: list, capacity: swaps, scratch: no_scratch, records };
                let mut call = Call::begin(context, &mut encoder, "hotrow.flush");
                exchange::encode(&mut call, &params, tables, &list, exchange::Phases::Pack);
                drop(call);
                staged.write_back_side(encoder, swaps).await?;
            }
        }
        let clock = context.download_part_async(&tables.tables, 0..4).await?;
        staged.stored.flushed(clock[0])
    }
}
