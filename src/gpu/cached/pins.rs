//! Pinned rows on a device: the host plans them, and exchange loads them.

use crate::{
    error::Error,
    gpu::{
        cached::group::Group,
        engine::call::Call,
        stages::cached::{exchange, space::FlushSpace},
    },
    host::alloc::zeroed,
    table::{
        abi::{Params, Step, Swap, count},
        counters::Counters,
        params::Mode,
        parts::Part,
        pins,
        rng::Purpose,
    },
};

/// Number of frequencies read at once: 4 MiB.
const FREQS: u64 = 1 << 20;

impl Group {
    /// Reads all words of a part.
    pub(crate) fn part(&mut self, part: Part) -> Result<Vec<u32>, Error> {
        let mut words = zeroed("pins", part.words(&self.kind.config, &self.kind.tables.layout) as usize)?;
        self.block_on(async |this| this.read_words(part, 0, &mut words).await)?;
        Ok(words)
    }

    /// `Embedding::pin`, for rows that exist, with no step under way.
    pub(crate) fn pin_rows(&mut self, rows: &[u32], share: u32) -> Result<Vec<u32>, Error> {
        pins::check(&self.kind.tables.layout, rows, share)?;
        self.block_on(async |this| this.flushed().await)?;
        if self.kind.tables.layout.sets == 0 {
            return Ok(Vec::new());
        }
        let (ways, t) = (self.part(Part::Ways)?, self.part(Part::Clock)?[0]);
        let mut plan = pins::plan(&self.kind.tables.layout, self.kind.config.policy.facts(), &ways, t, rows, share);
        if plan.ways == ways {
            return Ok(plan.left_out);
        }
        let stride = self.kind.tables.layout.stride();
        if self.kind.config.policy.facts().counts {
            self.frequencies(&mut plan)?;
        }
        let mut counters = Counters::from_part(&self.part(Part::Counters)?, stride);
        // The evictions are counted first: they stand even if the loading fails.
        plan.count_evicted(&self.kind.config, &mut counters);
        self.put_words(Part::Counters, 0, &Counters::to_part(&counters))?;
        self.put_words(Part::Ways, 0, &plan.meanwhile(&self.kind.tables.layout))?;

        self.load(&plan.swaps())?;
        plan.count_loaded(&self.kind.config, &mut counters);
        self.put_words(Part::Ways, 0, &plan.ways)?;
        self.put_words(Part::Counters, 0, &Counters::to_part(&counters))?;
        Ok(plan.left_out)
    }

    /// Sets the frequencies of the rows to load. Reads them in pieces, because the frequencies of all rows may exceed the host's memory.
    fn frequencies(&mut self, plan: &mut pins::Plan) -> Result<(), Error> {
        let mut loads = plan.loads.clone();
        loads.sort_unstable_by_key(|&(_, row)| row);
        let all = Part::Frequencies.words(&self.kind.config, &self.kind.tables.layout);
        for some in loads.chunk_by(|a, b| u64::from(a.1) / FREQS == u64::from(b.1) / FREQS) {
            let first = u64::from(some[0].1) / FREQS * FREQS;
            let mut freqs = zeroed("frequencies", FREQS.min(all - first) as usize)?;
            self.block_on(async |this| this.read_words(Part::Frequencies, first, &mut freqs).await)?;
            for &(slot, row) in some {
                plan.set_frequency(self.kind.tables.layout.ways, slot, freqs[(u64::from(row) - first) as usize]);
            }
        }
        Ok(())
    }

    /// Loads rows from the table into empty slots. A staged table's rows come part by part, as in a flush.
    fn load(&mut self, swaps: &[Swap]) -> Result<(), Error> {
        let (context, tables) = (&self.context, &self.kind.tables);
        // The flush before this call has allocated the list.
        let Some(FlushSpace { step, swaps: list, no_scratch }) = &self.kind.flush else { return Ok(()) };
        let params = Params::new(&self.kind.config, &tables.layout, Mode::Train, Purpose::WriteBack);
        let most = self.kind.storage.swaps_at_once(&tables.layout, swaps.len() as u32);
        for some in swaps.chunks(most as usize) {
            let mut head = Step::default();
            head.counts[count::SWAPS] = some.len() as u32;
            context.queue().write_buffer(step, 0, bytemuck::bytes_of(&head));
            context.queue().write_buffer(list, 0, bytemuck::cast_slice(some));
            let mut encoder = context.new_encoder();
            let records = self.kind.storage.load(&mut encoder, some, most)?;
            let list = exchange::List { step, swaps: list, capacity: some.len() as u32, scratch: no_scratch, records };
            let mut call = Call::begin(context, &mut encoder, "hotrow.pin");
            exchange::encode(&mut call, &params, tables, &list, exchange::Phases::Unpack);
            drop(call);
            context.finish(encoder)?;
        }
        Ok(())
    }
}
