//! Forward and backward of a group.

use std::sync::Mutex;

use crate::{
    cpu::{
        cached::{
            batch::{self, Batch},
            freqs::begin,
            group::CpuGroup,
            pool::{Source, Written, list_all, pool},
            settle::{Call, State, settle},
            space::Space,
            tables::Tables,
            update::{Moves, count_missed, move_all, move_distinct, move_own, own_rows},
            weight_gradient::weight_gradient,
        },
        share::{self, key},
        stages::{cached::gradients::Gradients, counters::Tally},
    },
    error::Error,
    host::alloc::zeroed,
    record::{codec::Noise, rows::RowStep},
    scaler::GradSlice,
    table::{
        abi::{Params, ScalerState},
        batch::Bags,
        layout::Layout,
        params::Mode,
        rng::Purpose,
        step_state::Pending,
    },
};

impl CpuGroup {
    /// Runs a forward whose shape is checked.
    pub(crate) fn pooled(&mut self, params: &Params, bags: Bags<'_>, outputs: &mut [f32]) -> Result<(), Error> {
        inside(bags.indices.len(), || self.pool_batch(params, bags, outputs))
    }

    fn pool_batch(&mut self, params: &Params, bags: Bags<'_>, outputs: &mut [f32]) -> Result<(), Error> {
        let (Bags { indices, offsets, .. }, weights) = (bags, bags.weights.unwrap_or_default());
        let train = params.mode == Mode::Train as u32;
        if train {
            self.count_distinct();
            self.state.end_forward(); // its step scratch is overwritten
        }
        let Tables { layout, tables, features, ways, cache, records, freqs } = &mut self.tables;
        let plain = batch::all_inside(params, features, offsets, indices);
        let n = indices.len();
        // Everything is allocated before anything is counted.
        let space = if train { Some(grown(&mut self.space, layout, params.indices)?) } else { None };
        let mut takes_place = n > 0;
        if !plain {
            if self.linear.len() < n {
                self.linear = Vec::new(); // freed before the larger list is allocated
                self.linear = zeroed("keys", n)?;
            }
            let indices = (&features[..], offsets, indices);
            takes_place = batch::linear_rows(&self.config, params, indices, tables, &mut self.linear[..n])?;
        }
        if !takes_place {
            outputs.fill(0.0);
            if let Some(space) = space {
                space.clear();
                self.state.forward(Pending::new(params, 0, &self.config));
            }
            return Ok(());
        }
        let rows = if plain { indices } else { &self.linear[..n] };
        let batch = Batch { params, offsets, weights, features, rows, plain };
        let Some(space) = space else {
            let source = Source { layout: &layout.row, sets: layout.sets_of_rows(), records, ways, cache, slots: &[] };
            pool(&batch, &source, Written { outputs, ..Written::default() });
            return Ok(());
        };
        begin(params, layout, true, tables, ways, freqs);
        batch.count_accesses(layout, tables);
        (space.t, space.accesses, space.numbered, space.settled) = (tables[0], n, batch.factors(), false);
        let mut slots = &[][..];
        let mut sort = space.sorter.input(n);
        let mut factors = &mut space.factors[..if space.numbered { n } else { 0 }];
        if let Some(distinct) = &mut space.distinct {
            list_all(&batch, sort, factors, &mut distinct.slots[..n]);
            space.sorter.sort(n, layout.row_bits());
            let call = Call::new(&self.config, params, layout, tables, batch.parts());
            let state = State { ways, cache, records, freqs };
            settle(&call, state, space.sorter.sorted_mut(), space.numbered, distinct);
            space.settled = true;
            (sort, factors, slots) = (&mut [], &mut [], &distinct.slots[..n]);
        }
        let source = Source { layout: &layout.row, sets: layout.sets_of_rows(), records, ways, cache, slots };
        pool(&batch, &source, Written { outputs, sort, factors, ..Written::default() });
        self.state.forward(Pending::new(params, 0, &self.config));
        Ok(())
    }

    /// Writes the gradients of the per-index weights of the last forward.
    pub(crate) fn weight_gradient_of(
        &self,
        params: &Params,
        Bags { indices, offsets, .. }: Bags<'_>,
        grad_outputs: &[f32],
        grad_weights: &mut [f32],
    ) -> Result<(), Error> {
        let Some(space) = self.space.as_ref().filter(|space| space.accesses > 0) else { return Ok(()) };
        let Tables { layout, features, ways, cache, records, .. } = &self.tables;
        let plain = batch::all_inside(params, features, offsets, indices);
        let mut linear = zeroed("keys", if plain { 0 } else { indices.len() })?;
        if !plain {
            // A frozen batch counts nothing.
            batch::linear_rows(&self.config, params, (features, offsets, indices), &mut [], &mut linear).map_err(
                |_| {
                    let (wanted, found) = ("the indices of the last forward", "an index outside its table");
                    Error::Order { call: "weight_gradient", wanted, found }
                },
            )?;
        }
        let rows = if plain { indices } else { &linear };
        let batch = Batch { params, offsets, weights: &[], features, rows, plain };
        let slots = space.distinct.as_ref().map_or(&[][..], |distinct| &distinct.slots[..indices.len()]);
        let source = Source { layout: &layout.row, sets: layout.sets_of_rows(), records, ways, cache, slots };
        inside(indices.len(), || weight_gradient(&batch, &source, grad_outputs, grad_weights));
        Ok(())
    }

    /// Counts the distinct rows of the last forward, if nobody has.
    pub(crate) fn count_distinct(&mut self) {
        let Some(space) = self.space.as_mut().filter(|space| !space.settled) else { return };
        space.settled = true;
        let tables = &mut self.tables;
        let params = Params::new(&self.config, &tables.layout, Mode::Train, Purpose::Update);
        space.sorter.sort(space.accesses, tables.layout.row_bits());
        let mut tally = Tally::default();
        for run in space.sorter.sorted().chunk_by(|&a, &b| key(a) == key(b)) {
            let row = key(run[0]);
            if !tally.covers(row) {
                tally.enter(&params, &mut tables.tables, row);
            }
            tally.add_missed();
            tables.freqs.add(row, run.len() as u32, params.freq_max);
        }
        tally.end(&mut tables.tables);
    }

    /// Runs the backward of the last forward.
    pub(crate) fn update_rows(
        &mut self,
        params: &Params,
        grad_outputs: GradSlice<'_>,
        scaler: &ScalerState,
    ) -> Result<(), Error> {
        // An own rule runs on the calling thread.
        match self.config.own().is_some() {
            true => self.move_rows_of_batch(params, grad_outputs, scaler),
            false => inside(params.indices as usize, || self.move_rows_of_batch(params, grad_outputs, scaler)),
        }
    }

    fn move_rows_of_batch(
        &mut self,
        params: &Params,
        grad_outputs: GradSlice<'_>,
        scaler: &ScalerState,
    ) -> Result<(), Error> {
        // Frequencies are counted by one thread. Under an overflow nothing else is left to do.
        if !self.tables.freqs.is_empty() || scaler.overflow != 0 {
            self.count_distinct();
        }
        let (Some(space), Tables { layout, tables, ways, cache, records, .. }) = (&mut self.space, &mut self.tables)
        else {
            return Ok(());
        };
        if scaler.overflow != 0 {
            return Ok(());
        }
        let counts = !space.settled;
        if counts {
            space.sorter.sort(space.accesses, layout.row_bits());
            space.settled = true;
        }
        let list = space.sorter.sorted();
        let accesses = bytemuck::cast_slice(list);
        let factors = if space.numbered { &space.factors[..] } else { &[] };
        let outputs = grad_outputs.len() / params.dim as usize;
        let moves = Moves {
            params,
            layout: &layout.row,
            rule: &RowStep::new(&self.config, space.t),
            noise: &Noise::new(&self.config, Purpose::Update, space.t),
            gradients: Gradients { params, accesses, factors, grad_outputs, outputs, inverse: scaler.inverse },
            tables: &Mutex::new(&mut tables[..]),
            parts: share::parts(list.len()),
        };
        let slot_words = layout.slot_words() as usize;
        if let Some(own) = self.config.own() {
            let rows = own_rows(list, space.distinct.as_ref());
            if counts {
                rows.iter().for_each(|(row, ..)| count_missed(&moves, *row));
            }
            return move_own(&moves, own, &rows, cache, slot_words, ways, records);
        }
        match &mut space.distinct {
            None => move_all(&moves, list, records, counts),
            Some(distinct) => move_distinct(&moves, distinct, cache, slot_words, ways, records),
        }
        Ok(())
    }
}

/// Runs a call's work on a thread of rayon's pool, so that its parts are handed over without waking a thread each time.
pub(crate) fn inside<R: Send>(accesses: usize, work: impl FnOnce() -> R + Send) -> R {
    if rayon::current_thread_index().is_none() && share::parts(accesses) > 1 {
        rayon::scope(|_| work())
    } else {
        work()
    }
}

/// Provides scratch for `indices` indices. The smaller scratch is freed before the larger one is allocated.
pub(crate) fn grown<'s>(space: &'s mut Option<Space>, layout: &Layout, indices: u32) -> Result<&'s mut Space, Error> {
    match space.take_if(|space| space.capacity >= indices && space.distinct.is_some() == (layout.sets > 0)) {
        Some(enough) => Ok(space.insert(enough)),
        None => {
            *space = None;
            Ok(space.insert(Space::new(layout, indices)?))
        }
    }
}
