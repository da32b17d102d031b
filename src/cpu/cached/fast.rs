//! The steps of a group on the direct path (`cpu/direct`), and when a batch has to take the mirrors instead.

use std::sync::Mutex;

use crate::{
    cpu::{
        cached::group::CpuGroup,
        direct::{
            batch::{self, Batch},
            pool::{Source, Written, pool},
            share,
            sort::row_of,
            space::Space,
            update::{Moves, move_records},
        },
        stages::cached::{merge::Gradients, tables::Tally},
    },
    error::Error,
    host::alloc::zeroed,
    record::of_params as record,
    scaler::GradSlice,
    table::{
        layout::{FREQ_MAX, Params, Rate, ScalerState},
        params::Mode,
        rng::Purpose,
        step_state::Pending,
    },
};

/// How a [`CpuGroup`] computes. Both ways give the same outputs, state and counters, bit for bit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CpuPath {
    /// Reads and moves rows where they lie: fast.
    #[default]
    Direct,
    /// A plain function for each shader, over the same lists as on a GPU: the reference, several times slower.
    Mirrors,
}

/// Stands for the direct path's scratch where a [`Pending`] names a space.
pub(crate) const SPACE: usize = 2;

impl CpuGroup {
    /// Runs a forward on the direct path. Returns false, and does nothing, if the batch has to take the mirrors: it has no index, or an
    /// index that makes the step fail.
    pub(crate) fn pooled(
        &mut self,
        params: &Params,
        (indices, offsets, weights): (&[u32], &[u32], &[f32]),
        outputs: &mut [f32],
    ) -> Result<bool, Error> {
        if self.path == CpuPath::Mirrors || self.tables.layout.sets > 0 || indices.is_empty() {
            return Ok(false);
        }
        let train = params.mode == Mode::Train as u32;
        if train {
            self.settle();
        }
        let tables = &mut self.tables;
        let plain = batch::all_inside(params, &tables.features, offsets, indices);
        let n = indices.len();
        let mut linear = Vec::new();
        if !plain {
            linear = zeroed("keys", n)?;
            if !batch::linear_rows(params, &tables.features, offsets, indices, &mut tables.tables, &mut linear) {
                return Ok(false);
            }
        }
        let rows = if plain { indices } else { &linear };
        let (mut sort, mut factors) = (&mut [][..], &mut [][..]);
        if train {
            let space = grown(&mut self.fast, params.indices)?;
            sort = space.sorter.input(n);
            factors = &mut space.factors[..n];
        }
        let batch = Batch { params, offsets, weights, features: &tables.features, rows, plain };
        if train {
            tables.tables[0] = tables.tables[0].wrapping_add(1);
            batch.count_accesses(&mut tables.tables);
        }
        if !batch.factors() {
            factors = &mut [];
        }
        let source = Source { layout: &tables.layout.row, records: &tables.records };
        pool(&batch, &source, Written { outputs, sort, factors });
        let has_factors = batch.factors();
        if train && let Some(space) = &mut self.fast {
            (space.t, space.accesses, space.has_factors, space.settled) = (tables.tables[0], n, has_factors, false);
            self.state.forward(Pending::new(params, SPACE));
        }
        Ok(true)
    }

    /// Counts the distinct rows of the last forward, if nobody has.
    pub(crate) fn settle(&mut self) {
        let Some(space) = self.fast.as_mut().filter(|space| !space.settled) else { return };
        space.settled = true;
        let tables = &mut self.tables;
        let params = Params::new(&self.config, &tables.layout, Mode::Train, Purpose::Update);
        space.sorter.sort(space.accesses, tables.layout.row_bits());
        let mut tally = Tally::default();
        for run in space.sorter.sorted().chunk_by(|&a, &b| row_of(a) == row_of(b)) {
            let row = row_of(run[0]);
            if !tally.covers(row) {
                tally.enter(&params, &mut tables.tables, row);
            }
            tally.add_missed();
            for (shard, freqs) in tables.freqs.iter_mut().filter(|(shard, freqs)| !freqs.is_empty() && shard.holds(row))
            {
                let freq = &mut freqs[(row - shard.first_row) as usize];
                *freq = freq.wrapping_add(run.len() as u32).min(FREQ_MAX);
            }
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
        let lfu = self.tables.freqs.iter().any(|(_, freqs)| !freqs.is_empty());
        if lfu || scaler.overflow != 0 {
            self.settle();
        }
        let (Some(space), tables) = (&mut self.fast, &mut self.tables) else { return };
        if scaler.overflow != 0 {
            return;
        }
        let counts = !space.settled;
        if counts {
            space.sorter.sort(space.accesses, tables.layout.row_bits());
            space.settled = true;
        }
        let accesses = bytemuck::cast_slice(space.sorter.sorted());
        let factors = if space.has_factors { &space.factors[..] } else { &[] };
        let moves = Moves {
            params,
            layout: &tables.layout.row,
            rule: &record::rule(params, rate),
            noise: &record::noise(params, space.t),
            counts,
            gradients: Gradients { params, accesses, factors, grad_outputs, inverse: scaler.inverse },
        };
        let parts = share::parts(accesses.len());
        let counters = Mutex::new(&mut tables.tables[..]);
        move_records(&moves, &counters, 0..accesses.len(), &mut tables.records, 0, parts);
    }
}

/// Provides scratch for `indices` indices. The smaller scratch is freed before the larger one is allocated.
fn grown(space: &mut Option<Space>, indices: u32) -> Result<&mut Space, Error> {
    match space.take_if(|space| space.capacity >= indices) {
        Some(enough) => Ok(space.insert(enough)),
        None => {
            *space = None;
            Ok(space.insert(Space::new(indices)?))
        }
    }
}
