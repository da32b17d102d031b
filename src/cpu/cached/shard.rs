//! A group on the CPU as a virtual shard (SPEC 11).

use crate::{
    cpu::{
        cached::{
            freqs::{begin, pass},
            group::{CpuGroup, FETCHED},
            lookup::find,
            settle::{Call, State, settle},
            steps::{grown, inside},
            tables::Tables,
        },
        share::{self, keyed},
        stages::counters::{Tally, counter},
    },
    error::Error,
    lookup::shard::{Shard, check_apply, check_fetch},
    record::wire::{Wire, WireForm},
    scaler::GradSlice,
    table::{
        abi::{DIRTY, Field, NONE, ScalerState, way_at},
        batch,
        params::Mode,
        rng::Purpose,
        step_state::Pending,
    },
};

impl Shard for CpuGroup {
    fn fetch(&mut self, rows: &[u32], counts: &[u32]) -> Result<(), Error> {
        self.state.may_look_up(Mode::Train)?;
        let accesses = check_fetch(self, rows, counts)?;
        self.count_distinct();
        self.state.end_forward();
        let params = &self.params(Mode::Train, Purpose::WriteBack).batch(accesses, 0, false);
        let Tables { layout, tables, ways, cache, records, freqs, .. } = &mut self.tables;
        let n = accesses as usize;
        let space = grown(&mut self.space, layout, accesses)?;
        begin(params, layout, n > 0, tables, ways, freqs);
        let mut tally = Tally::default();
        for (&row, &count) in rows.iter().zip(counts) {
            if !tally.covers(row) {
                tally.enter(params, tables, row);
            }
            tally.add_many(counter::ACCESSES, count);
            pass(params, layout, row, count, tables);
        }
        tally.end(tables);
        (space.t, space.accesses, space.numbered, space.settled) = (tables[0], n, true, n == 0);
        let expanded = rows.iter().zip(counts).flat_map(|(&row, &count)| std::iter::repeat_n(row, count as usize));
        for ((access, row), number) in space.sorter.input(n).iter_mut().zip(expanded).zip(0..) {
            *access = keyed(row, number);
        }
        if let Some(distinct) = &mut space.distinct
            && n > 0
        {
            space.sorter.sort(n, layout.row_bits());
            let accesses = space.sorter.sorted_mut();
            inside(n, || {
                let call = Call::new(&self.config, params, layout, tables, share::parts(n));
                settle(&call, State { ways, cache, records, freqs }, accesses, true, distinct);
            });
            space.settled = true;
        }
        self.state.forward(Pending::new(params, FETCHED, &self.config));
        Ok(())
    }

    fn send_rows(
        &mut self,
        rows: &[u32],
        form: WireForm,
        step: u32,
        message: &mut Vec<u32>,
    ) -> Result<Vec<bool>, Error> {
        self.state.not_prefetched("send_rows")?;
        let Tables { layout, ways, cache, records, .. } = &self.tables;
        batch::check_rows(layout, rows, "send_rows")?;
        let params = self.params(Mode::Frozen, Purpose::WriteBack);
        let sets = layout.sets_of_rows();
        let (row_layout, words) = (&layout.row, layout.row.record_words as usize);
        let (seed, stripe) = (self.config.seed, self.config.stripe);
        let wire = Wire::new(row_layout.dim, row_layout.precision, form, (seed, step), stripe);
        let mut list = wire.begin(rows.len(), message);
        let mut stored = Vec::with_capacity(rows.len());
        for &row in rows {
            let slot = if params.sets > 0 { find(&sets, ways, row).1 } else { NONE };
            stored.push(slot == NONE || ways[way_at(params.ways(), slot, Field::Flags)] & DIRTY == 0);
            if stored.last() == Some(&false) {
                let weights = &cache[slot as usize * row_layout.slot_words() as usize..][..row_layout.dim as usize];
                wire.push(&mut list, row, weights, message);
            } else {
                wire.push_record(&mut list, row_layout, row, &records[row as usize * words..][..words], message);
            }
        }
        Ok(stored)
    }

    fn apply(
        &mut self,
        accesses: &[[u32; 2]],
        factors: bool,
        gradients: &[f32],
        scaler: &ScalerState,
    ) -> Result<(), Error> {
        let Pending { indices, space, .. } = self.state.wants_forward("apply")?;
        if space != FETCHED {
            let (wanted, found) = ("a fetch before each apply", "another forward");
            return Err(Error::Order { call: "apply", wanted, found });
        }
        check_apply(indices, self.tables.layout.row.dim, accesses, gradients.len())?;
        scaler.decided()?;
        let params = self.params(Mode::Train, Purpose::Update).batch(indices, 0, factors);
        if let Some(space) = &mut self.space
            && indices > 0
        {
            space.factors[..indices as usize].copy_from_slice(accesses);
            self.update_rows(&params, GradSlice::F32(gradients), &scaler.verdict())?;
        }
        self.state.end_forward();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config::GroupConfig, lookup::Lookup as _, table::batch::Bags};

    #[test]
    fn a_fetch_ends_with_apply_and_a_forward_with_backward() {
        let mut group = CpuGroup::new(GroupConfig::new(&[10], 2).with_cache_rows(0)).unwrap();
        let order = |found| matches!(found, Err(Error::Order { .. }));
        let apply = |group: &mut CpuGroup| group.apply(&[[0, 0]], false, &[1.0; 2], &ScalerState::unscaled_decision());
        group.forward(Bags::new(&[1, 2], &[0, 1, 2]), Mode::Train).unwrap();
        assert!(order(apply(&mut group)));
        assert_eq!(group.backward(&[1.0; 4]), Ok(()));
        group.fetch(&[1], &[1]).unwrap();
        assert!(order(group.backward(&[])));
        assert_eq!(apply(&mut group), Ok(()));
    }
}
