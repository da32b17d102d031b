//! Pinned rows on the CPU.

use crate::{
    config::Policy,
    cpu::cached::group::{CpuGroup, exchange_all},
    error::Error,
    lookup::Embedding,
    table::{
        counters::Counters,
        layout::{Shard, Step, count},
        params::Mode,
        parts::Part,
        pins,
        rng::Purpose,
    },
};

impl CpuGroup {
    /// `Embedding::pin`, for rows that exist, with no step under way.
    pub(crate) fn pin_rows(&mut self, rows: &[u32], share: u32) -> Result<Vec<u32>, Error> {
        pins::check(&self.tables.layout, rows, share)?;
        self.flush()?;
        let (layout, t) = (&self.tables.layout, self.tables.tables[0]);
        if layout.sets == 0 {
            return Ok(Vec::new());
        }
        let mut plan = pins::plan(layout, self.config.policy, &self.tables.ways, t, rows, share);
        let (width, stride) = (layout.ways, layout.stride());
        if self.config.policy == Policy::Lfu {
            for (slot, row) in plan.loads.clone() {
                let mut freq = [0];
                self.read_words(Part::Frequencies, row.into(), &mut freq)?;
                plan.set_frequency(width, slot, freq[0]);
            }
        }
        let mut words = vec![0; Part::Counters.words(&self.config, &self.tables.layout) as usize];
        self.read_words(Part::Counters, 0, &mut words)?;
        let mut counters = Counters::from_part(&words, stride);
        plan.count_evicted(&self.config, &mut counters);
        plan.count_loaded(&self.config, &mut counters);

        let params = self.params(Mode::Train, Purpose::WriteBack);
        let moves = plan.moves();
        let mut step = Step { t, ..Step::default() };
        step.counts[count::MOVES] = moves.len() as u32;
        exchange_all(&mut self.tables, &params, &step, &moves, &mut [], Shard::UNPACK);
        self.tables.ways = plan.ways;
        self.write_words(Part::Counters, 0, &Counters::to_part(&counters))?;
        Ok(plan.left_out)
    }
}
