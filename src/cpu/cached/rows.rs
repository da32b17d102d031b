//! Reads and writes single rows, and writes dirty rows back.

use rayon::prelude::*;
use std::sync::Mutex;

use crate::{
    cpu::{
        cached::{
            batch::Batch,
            counts::enter,
            group::CpuGroup,
            lookup::find,
            pool::{Source, Written, pool},
            settle::{Call, pack_rows},
            steps::inside,
            tables::Tables,
        },
        share::{self, Rows, each_run, key, keyed, number},
        stages::counters::{Tally, counter::SKIPPED_ROWS},
    },
    error::Error,
    host::{alloc::reserved, locked},
    record::{codec::Noise, rows},
    table::{
        abi::{DIRTY, Field, NONE, way_at},
        params::Mode,
        rng::Purpose,
    },
};

impl CpuGroup {
    /// Reads linear rows that exist: an output row for each.
    pub(crate) fn pool_rows(&self, list: &[u32], outputs: &mut [f32]) {
        let params = &self.params(Mode::Frozen, Purpose::Write).rows(list.len() as u32);
        let Tables { layout, features, ways, cache, records, .. } = &self.tables;
        let offsets = &[0, list.len() as u32];
        let batch = Batch { params, offsets, weights: &[], features, rows: list, plain: false };
        let source = Source { layout: &layout.row, sets: layout.sets_of_rows(), records, ways, cache, slots: &[] };
        inside(list.len(), || pool(&batch, &source, Written { outputs, ..Written::default() }));
    }

    /// Replaces the weights of ascending rows with `values`; a row whose values are not finite is counted as skipped.
    pub(crate) fn assign(&mut self, list: &[u32], values: &[f32]) -> Result<(), Error> {
        let params = &self.params(Mode::Frozen, Purpose::Write);
        let mut bypassed = reserved("swaps", list.len())?;
        let optimizer = self.config.optimizer;
        let Tables { layout, tables, ways, cache, records, .. } = &mut self.tables;
        let (sets, layout) = (layout.sets_of_rows(), &layout.row);
        let (dim, slot_words) = (layout.dim as usize, layout.slot_words() as usize);
        let values = |at: u32| &values[at as usize * dim..][..dim];
        let (t, mut tally) = (tables[0], Tally::default());
        for (at, &row) in (0..).zip(list) {
            let slot = if params.sets > 0 { find(&sets, ways, row).1 } else { NONE };
            if values(at).iter().any(|value| !value.is_finite()) {
                tally.count(params, tables, row, SKIPPED_ROWS);
            } else if slot == NONE {
                bypassed.push(keyed(row, at));
            } else {
                let (weights, rest) = cache[slot as usize * slot_words..][..slot_words].split_at_mut(dim);
                weights.copy_from_slice(values(at));
                optimizer.begin(weights, rest);
                ways[way_at(params.ways(), slot, Field::Flags)] |= DIRTY;
            }
        }
        tally.end(tables);
        let (noise, tables) = (Noise::new(&self.config, Purpose::Write, t), &Mutex::new(&mut tables[..]));
        let records = Rows::all(records, layout.record_words as usize);
        let work = &|range: std::ops::Range<usize>, mut records: Rows<'_, u32>| {
            let (mut floats, mut tally) = (vec![0.0; layout.row_words as usize], Tally::default());
            let (weights, state) = floats.split_at_mut(dim);
            for &entry in &bypassed[range] {
                let (row, record) = (key(entry), records.row(key(entry)));
                rows::unpack(layout, record, weights, state);
                weights.copy_from_slice(values(number(entry)));
                optimizer.begin(weights, state);
                if !rows::pack(layout, &noise, row, weights, state, record) {
                    enter(params, tables, &mut tally, row);
                    tally.add(SKIPPED_ROWS);
                }
            }
            tally.end(&mut locked(tables));
        };
        let n = bypassed.len();
        inside(n, || each_run(share::parts(n), &bypassed, 0..n, records, work));
        Ok(())
    }

    /// Writes every dirty row to its record, and marks its slot clean.
    pub(crate) fn write_back(&mut self) -> Result<(), Error> {
        let params = &self.params(Mode::Train, Purpose::WriteBack);
        let Tables { layout, tables, ways, cache, records, .. } = &mut self.tables;
        let width = layout.ways;
        let dirty = |slot: &u32| ways[way_at(width, *slot, Field::Flags)] & DIRTY != 0;
        let mut list = reserved("swaps", (0..layout.slots()).filter(dirty).count())?;
        list.extend((0..layout.slots()).filter(dirty).map(|slot| keyed(ways[way_at(width, slot, Field::Tag)], slot)));
        list.par_sort_unstable();
        let call = Call::new(&self.config, params, layout, tables, share::parts(list.len()));
        inside(list.len(), || pack_rows(&call, &list, cache, records));
        for &entry in &list {
            ways[way_at(width, number(entry), Field::Flags)] &= !DIRTY;
        }
        Ok(())
    }
}
