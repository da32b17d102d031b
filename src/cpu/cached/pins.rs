//! Pinned rows on the CPU.

use crate::{
    cpu::cached::{group::CpuGroup, settle::load_row, tables::Tables},
    error::Error,
    lookup::Embedding,
    table::{counters::Counters, layout::Layout, parts::Part, pins},
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
        let mut plan = pins::plan(layout, self.config.policy.facts(), &self.tables.ways, t, rows, share);
        let (width, stride) = (layout.ways, layout.stride());
        if self.config.policy.facts().counts {
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

        let Tables { layout: Layout { row: layout, .. }, cache, records, .. } = &mut self.tables;
        let (words, slot_words) = (layout.record_words as usize, layout.slot_words() as usize);
        for &(slot, row) in &plan.loads {
            let slot = &mut cache[slot as usize * slot_words..][..slot_words];
            load_row(layout, &records[row as usize * words..][..words], slot);
        }
        self.tables.ways = plan.ways;
        self.write_words(Part::Counters, 0, &Counters::to_part(&counters))?;
        Ok(plan.left_out)
    }
}
