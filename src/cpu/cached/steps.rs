//! The steps of a group on the direct path (`cpu/direct`), and when a batch has to take the mirrors instead.

use std::sync::Mutex;

use crate::{
    cpu::{
        cached::{
            group::CpuGroup,
            path::{CpuPath, SPACE},
        },
        direct::{
            batch::{self, Batch},
            pool::{Source, Written, list_all, pool},
            settle::settle,
            share::{self, key},
            space::Space,
            update::{Moves, move_all, move_distinct},
            weight_gradient::weight_gradient,
        },
        stages::cached::{
            merge::Gradients,
            tables::{Tables, Tally},
        },
    },
    error::Error,
    host::alloc::zeroed,
    record::of_params as record,
    scaler::GradSlice,
    table::{
        layout::{Layout, Params, Rate, ScalerState},
        params::Mode,
        rng::Purpose,
        step_state::Pending,
    },
};

impl CpuGroup {
    /// Runs a forward on the direct path. Returns false, and does nothing, if the batch has to take the mirrors: it has no index, or an
    /// index that makes the step fail.
    pub(crate) fn pooled(
        &mut self,
        params: &Params,
        batch: (&[u32], &[u32], &[f32]),
        outputs: &mut [f32],
    ) -> Result<bool, Error> {
        if self.path == CpuPath::Mirrors || batch.0.is_empty() {
            return Ok(false);
        }
        inside(batch.0.len(), || self.pool_batch(params, batch, outputs))
    }

    fn pool_batch(
        &mut self,
        params: &Params,
        (indices, offsets, weights): (&[u32], &[u32], &[f32]),
        outputs: &mut [f32],
    ) -> Result<bool, Error> {
        let train = params.mode == Mode::Train as u32;
        if train {
            self.count_distinct();
        }
        let Tables { layout, tables, features, ways, cache, records, freqs } = &mut self.tables;
        let plain = batch::all_inside(params, features, offsets, indices);
        let n = indices.len();
        // Everything is allocated before anything is counted.
        let space = if train { Some(grown(&mut self.direct, layout, params.indices)?) } else { None };
        if !plain {
            if self.linear.len() < n {
                self.linear = Vec::new(); // freed before the larger list is allocated
                self.linear = zeroed("keys", n)?;
            }
            if !batch::linear_rows(params, features, offsets, indices, tables, &mut self.linear[..n]) {
                return Ok(false);
            }
        }
        let rows = if plain { indices } else { &self.linear[..n] };
        let batch = Batch { params, offsets, weights, features, rows, plain };
        let Some(space) = space else {
            let source = Source { layout: &layout.row, records, ways, cache, slots: &[] };
            pool(&batch, &source, Written { outputs, sort: &mut [], factors: &mut [] });
            return Ok(true);
        };
        tables[0] = tables[0].wrapping_add(1);
        batch.count_accesses(tables);
        let numbered = batch.factors() || space.distinct.is_some();
        (space.t, space.accesses, space.numbered, space.settled) = (tables[0], n, batch.factors(), false);
        let mut slots = &[][..];
        let mut sort = space.sorter.input(n);
        let mut factors = &mut space.factors[..if numbered { n } else { 0 }];
        if let Some(distinct) = &mut space.distinct {
            list_all(&batch, sort, factors);
            space.sorter.sort(n, layout.row_bits());
            let (accesses, numbers) = (space.sorter.sorted_mut(), if space.numbered { &[] } else { &*factors });
            settle(params, layout, tables, ways, cache, records, freqs, accesses, numbers, distinct, batch.parts());
            space.settled = true;
            (sort, factors, slots) = (&mut [], &mut [], &distinct.slots[..n]);
        }
        let source = Source { layout: &layout.row, records, ways, cache, slots };
        pool(&batch, &source, Written { outputs, sort, factors });
        self.state.forward(Pending::new(params, SPACE));
        Ok(true)
    }

    /// Writes the gradients of the per-index weights of the last forward, which was on the direct path.
    pub(crate) fn weight_gradient_of(
        &self,
        params: &Params,
        (indices, offsets): (&[u32], &[u32]),
        grad_outputs: &[f32],
        grad_weights: &mut [f32],
    ) -> Result<(), Error> {
        let Tables { layout, features, ways, cache, records, .. } = &self.tables;
        let plain = batch::all_inside(params, features, offsets, indices);
        let mut linear = zeroed("keys", if plain { 0 } else { indices.len() })?;
        // A frozen batch counts nothing.
        if !plain && !batch::linear_rows(params, features, offsets, indices, &mut [], &mut linear) {
            let (wanted, found) = ("the indices of the last forward", "an index outside its table");
            return Err(Error::Order { call: "weight_gradient", wanted, found });
        }
        let rows = if plain { indices } else { &linear };
        let batch = Batch { params, offsets, weights: &[], features, rows, plain };
        let distinct = self.direct.as_ref().and_then(|space| space.distinct.as_ref());
        let slots = distinct.map_or(&[][..], |distinct| &distinct.slots[..indices.len()]);
        let source = Source { layout: &layout.row, records, ways, cache, slots };
        inside(indices.len(), || weight_gradient(&batch, &source, grad_outputs, grad_weights));
        Ok(())
    }

    /// Counts the distinct rows of the last forward, if nobody has.
    pub(crate) fn count_distinct(&mut self) {
        let Some(space) = self.direct.as_mut().filter(|space| !space.settled) else { return };
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

    /// Runs the backward of a forward on the direct path.
    pub(crate) fn update_rows(
        &mut self,
        params: &Params,
        rate: &Rate,
        grad_outputs: GradSlice<'_>,
        scaler: &ScalerState,
    ) {
        inside(params.indices as usize, || self.move_rows_of_batch(params, rate, grad_outputs, scaler));
    }

    fn move_rows_of_batch(&mut self, params: &Params, rate: &Rate, grad_outputs: GradSlice<'_>, scaler: &ScalerState) {
        // Frequencies are counted by one thread. Under an overflow nothing else is left to do.
        if !self.tables.freqs.is_empty() || scaler.overflow != 0 {
            self.count_distinct();
        }
        let (Some(space), Tables { layout, tables, ways, cache, records, .. }) = (&mut self.direct, &mut self.tables)
        else {
            return;
        };
        if scaler.overflow != 0 {
            return;
        }
        let counts = !space.settled;
        if counts {
            space.sorter.sort(space.accesses, layout.row_bits());
            space.settled = true;
        }
        let list = space.sorter.sorted();
        let accesses = bytemuck::cast_slice(list);
        let factors = if space.numbered { &space.factors[..] } else { &[] };
        let moves = Moves {
            params,
            layout: &layout.row,
            rule: &record::rule(params, rate, space.t),
            noise: &record::noise(params, space.t),
            gradients: Gradients { params, accesses, factors, grad_outputs, inverse: scaler.inverse },
            tables: &Mutex::new(&mut tables[..]),
            parts: share::parts(list.len()),
        };
        match &mut space.distinct {
            None => move_all(&moves, list, records, counts),
            Some(distinct) => move_distinct(&moves, distinct, cache, record::slot_words(params), ways, records),
        }
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

#[cfg(test)]
mod tests {
    use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

    use super::*;
    use crate::{
        config::{GroupConfig, Pooling, Precision},
        lookup::Lookup,
    };

    /// The outputs of a forward over records of random halves, infinities and NaN among them. Some rows lie in the cache.
    fn pooled(path: CpuPath, cache: u32, dim: u32, pooling: Pooling, weighted: bool, train: bool) -> Vec<u32> {
        let mut config = GroupConfig::new(&[500], dim).with_cache_rows(cache);
        config.pooling = pooling;
        config.precision = Precision::Fp16;
        let mut group = CpuGroup::new(config).unwrap().with_path(path);
        let mut random = StdRng::seed_from_u64(17);
        let indices: Vec<u32> = (0..3000).map(|_| random.random_range(0..500)).collect();
        let offsets: Vec<u32> = (0..=1500).map(|bag| bag * 2).collect();
        let weights: Vec<f32> = (0..3000).map(|_| random.random_range(0..3) as f32).collect();
        let weights = weighted.then_some(&weights[..]);
        group.forward(&indices, &offsets, weights).unwrap();
        group.abandon_backward();
        group.tables.records.iter_mut().for_each(|word| {
            // In half of the words no exponent is the largest.
            *word = if random.random() { random.random() } else { random.random::<u32>() & 0xbbff_bbff };
        });
        let outputs = if train {
            group.forward(&indices, &offsets, weights).unwrap()
        } else {
            group.forward_frozen(&indices, &offsets, weights).unwrap()
        };
        outputs.iter().map(|x| x.to_bits()).collect()
    }

    #[test]
    fn any_halves_are_pooled_as_the_mirrors_pool_them() {
        for (cache, dim) in [(0, 64), (0, 19), (64, 128)] {
            for (pooling, weighted, train) in [
                (Pooling::Sum, false, false),
                (Pooling::Sum, true, true),
                (Pooling::Mean, false, true),
                (Pooling::Mean, true, false),
            ] {
                let wanted = pooled(CpuPath::Mirrors, cache, dim, pooling, weighted, train);
                let found = pooled(CpuPath::Direct, cache, dim, pooling, weighted, train);
                assert!(found == wanted, "{cache} {dim} {pooling:?} {weighted} {train}");
                // Halves that a processor takes for infinity or NaN are finite.
                assert!(wanted.iter().all(|&x| f32::from_bits(x).is_finite()));
                assert!(wanted.iter().any(|&x| f32::from_bits(x).abs() > 65504.0));
            }
        }
    }
}
