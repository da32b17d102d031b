//! A group of tables on the CPU: the story of `gpu/group.rs`, told with plain functions.

use super::{
    admit, arrange, assign, begin, claim, collect, combine,
    dedup::{DedupTo, dedup},
    exchange, gather, linearize, locate,
    memory::{joined, reserved, zeroed},
    merge, probe, reset,
    sort::SortJob,
    space::{FlushSpace, Space},
    tables::Tables,
    touch, update,
};
use crate::{
    Counters, Embedding, Error, GroupConfig, Layout, Policy, Snapshot,
    batch::{self, Pending},
    layout::{Move, Params, Shard, Step, count},
    params::Mode,
    rng::Purpose,
};

/// Most bytes of a shard where the configuration does not say.
const SHARD_BYTES: u64 = 2 << 30;

/// The CPU backend: the oracle of the tests, and what runs without a GPU, on all cores.
///
/// Same batches in, same tags, stamps, frequencies, dirty flags and counters out as [`crate::Group`]. The placement is ignored:
/// everything is in host memory.
#[derive(Debug)]
pub struct Group {
    config: GroupConfig,
    tables: Tables,
    train: Option<Space>,
    frozen: Option<Space>,
    flush: Option<FlushSpace>,
    /// A forward whose backward has not come.
    pending: Option<Pending>,
}

/// A batch in the caller's slices; `weights` is empty without any.
struct Batch<'a> {
    indices: &'a [u32],
    offsets: &'a [u32],
    weights: &'a [f32],
}

impl Group {
    /// Allocates and fills the tables.
    ///
    /// # Errors
    /// [`Error::Config`], and [`Error::OutOfMemory`] if the host has not the memory.
    pub fn new(config: GroupConfig) -> Result<Self, Error> {
        let layout = Layout::new(&config, SHARD_BYTES)?;
        let tables = Tables::new(&config, layout)?;
        Ok(Self { config, tables, train: None, frozen: None, flush: None, pending: None })
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &GroupConfig {
        &self.config
    }

    /// Gives up the backward of the last forward, so that rows may be written or the cache reset.
    pub fn abandon_backward(&mut self) {
        self.pending = None;
    }

    fn params(&self, mode: Mode, purpose: Purpose) -> Params {
        Params::new(&self.config, &self.tables.layout, mode, purpose)
    }

    fn run(
        &mut self,
        indices: &[u32],
        offsets: &[u32],
        weights: Option<&[f32]>,
        mode: Mode,
    ) -> Result<Vec<f32>, Error> {
        batch::check_shape(
            &self.config,
            indices.len() as u64,
            offsets.len().max(1) as u64 - 1,
            weights.map(|w| w.len() as u64),
        )?;
        batch::check_offsets(indices.len() as u64, offsets)?;
        let (n, bags) = (indices.len() as u32, (offsets.len() - 1) as u32);
        let params = self.params(mode, Purpose::WriteBack).batch(n, bags, weights.is_some());
        let rows = batch::output_rows(&self.config, n, bags) as usize;
        let mut outputs = zeroed("outputs", rows * self.tables.layout.dim as usize)?;
        let space = if mode == Mode::Train {
            self.pending = None; // the scratch that its backward would need is used anew
            &mut self.train
        } else {
            &mut self.frozen
        };
        let space = grown(space, &self.tables.layout, n, mode == Mode::Train)?;
        let batch = Batch { indices, offsets, weights: weights.unwrap_or_default() };
        forward(&mut self.tables, space, &params, &batch, Some(&mut outputs));
        let step = space.step;
        let fault = fault(&self.config, &step, n);
        if mode == Mode::Train {
            self.pending = fault.is_none().then_some(Pending { indices: n, bags, weighted: weights.is_some() });
        }
        fault.map_or(Ok(outputs), Err)
    }

    /// Looks linear rows up, one output row each, in the frozen space.
    fn look_up(&mut self, rows: &[u32], outputs: Option<&mut [f32]>) -> Result<Params, Error> {
        batch::check_shape(&self.config, rows.len() as u64, 0, None)?;
        let n = rows.len() as u32;
        let params = self.params(Mode::Rows, Purpose::Write).rows(n);
        let mut offsets = reserved("offsets", rows.len() + 1)?;
        offsets.extend(0..=n);
        let space = grown(&mut self.frozen, &self.tables.layout, n, false)?;
        let batch = Batch { indices: rows, offsets: &offsets, weights: &[] };
        forward(&mut self.tables, space, &params, &batch, outputs);
        Ok(params)
    }
}

fn fault(config: &GroupConfig, step: &Step, indices: u32) -> Option<Error> {
    let (position, value, table) = (step.error_position, step.error_value, step.error_table);
    match step.error {
        0 => None,
        2 => Some(Error::BadOffsets { indices, position, value }),
        _ => Some(Error::IndexOutOfRange { table, rows: config.tables[table as usize], position, value }),
    }
}

/// The stages of forward, in order (SPEC 3).
fn forward(tables: &mut Tables, space: &mut Space, params: &Params, batch: &Batch<'_>, outputs: Option<&mut [f32]>) {
    let Batch { indices, offsets, weights } = *batch;
    space.step = Step::default();
    let step = &mut space.step;
    let (layout, features) = (&tables.layout, &tables.features);
    linearize(params, indices, offsets, features, &mut tables.tables, step, &mut space.keys, &mut space.access);
    begin(params, indices, offsets, features, &mut tables.tables, step);
    if step.error != 0 {
        return;
    }
    if params.indices > 0 {
        let train = params.mode == Mode::Train as u32;
        probe(
            params,
            step,
            &space.keys,
            &tables.ways,
            &mut space.places,
            &mut space.miss_keys,
            &mut space.miss_index,
            &mut tables.tables,
        );
        if train && layout.sets > 0 {
            for (shard, freqs) in &mut tables.freqs {
                let (ways, counters) = (&mut tables.ways, &mut tables.tables);
                touch(params, shard, step, &space.keys, &space.places, ways, freqs, counters);
            }
        }
        let missed = SortJob {
            keys: &space.miss_keys,
            values: Some(&space.miss_index),
            count: count::MISSED,
            key_bits: layout.miss_key_bits(),
        };
        let to = &mut DedupTo {
            segment: &mut space.segment,
            starts: &mut space.starts,
            segments: count::MOVES,
            valid: count::VALID,
        };
        let (_, order) = dedup(step, &missed, &mut space.sorted, &mut space.sort, to);
        for (shard, freqs) in &mut tables.freqs {
            let (unique, moves) = (&mut space.unique, &mut space.moves);
            let counters = &mut tables.tables;
            claim(params, shard, step, &space.keys, order, &space.starts, unique, moves, freqs, counters);
        }
        let mut phases = Shard::UNPACK;
        if train && layout.sets > 0 {
            admit(params, step, &mut space.unique, &mut space.moves, &mut tables.ways, &mut tables.tables);
            phases |= Shard::PACK;
        }
        let (ways, places) = (&tables.ways, &mut space.places);
        locate(params, step, &space.keys, order, &space.segment, &space.unique, ways, places);
        exchange_all(tables, params, step, &space.moves, &mut space.scratch, phases);
    }
    if let Some(outputs) = outputs {
        gather(params, offsets, &space.places, weights, &tables.cache, &space.scratch, &mut space.access, outputs);
    }
}

/// The Moves of a list, over every shard: with several each packs before any unpacks.
fn exchange_all(tables: &mut Tables, params: &Params, step: &Step, moves: &[Move], scratch: &mut [f32], phases: u32) {
    let Tables { layout, records, cache, tables, .. } = tables;
    let rounds = if layout.shards == 1 { [phases, 0] } else { [phases & Shard::PACK, phases & Shard::UNPACK] };
    for phases in rounds.into_iter().filter(|&phases| phases != 0) {
        for (shard, records) in (0..).zip(&mut *records) {
            exchange(params, &layout.shard(shard, phases), step, moves, records, cache, scratch, tables);
        }
    }
}

/// The stages of backward, in order (SPEC 3).
fn backward(tables: &mut Tables, space: &mut Space, params: Params, grad_outputs: &[f32]) {
    let params = &Params { partials: space.partials, ..params };
    let layout = &tables.layout;
    // Rows and places are one to one: what takes fewer passes to sort.
    let (by_row, by_place) = (layout.row_bits(), layout.place_bits(params.indices));
    let (keys, key_bits) =
        if by_place.div_ceil(8) < by_row.div_ceil(8) { (&space.places, by_place) } else { (&space.keys, by_row) };
    let job = SortJob { keys, values: None, count: count::INDICES, key_bits };
    let to = &mut DedupTo {
        segment: &mut space.segment,
        starts: &mut space.starts,
        segments: count::UNIQUE,
        valid: count::VALID,
    };
    let (_, order) = dedup(&mut space.step, &job, &mut space.sorted, &mut space.sort, to);
    let Space { segment, accesses, targets, scratch, .. } = space;
    arrange(&space.step, order, segment, &space.keys, &space.places, &space.access, accesses, targets);
    merge(params, targets, segment, accesses, grad_outputs, scratch);
    combine(params, targets, segment, scratch);
    let Tables { records, cache, ways, tables: counters, .. } = tables;
    for (shard, records) in (0..).zip(records) {
        let shard = layout.shard(shard, Shard::PACK);
        update(params, &shard, targets, accesses, grad_outputs, records, cache, scratch, ways, counters);
    }
}

fn grown<'s>(space: &'s mut Option<Space>, layout: &Layout, indices: u32, train: bool) -> Result<&'s mut Space, Error> {
    // A smaller one is freed before the larger one is allocated.
    match space.take_if(|space| space.capacity >= indices) {
        Some(enough) => Ok(space.insert(enough)),
        None => {
            *space = None;
            Ok(space.insert(Space::new(layout, indices, train)?))
        }
    }
}

impl Embedding for Group {
    fn layout(&self) -> &Layout {
        &self.tables.layout
    }

    fn forward(&mut self, indices: &[u32], offsets: &[u32], weights: Option<&[f32]>) -> Result<Vec<f32>, Error> {
        self.run(indices, offsets, weights, Mode::Train)
    }

    fn forward_frozen(&mut self, indices: &[u32], offsets: &[u32], weights: Option<&[f32]>) -> Result<Vec<f32>, Error> {
        self.run(indices, offsets, weights, Mode::Frozen)
    }

    fn backward(&mut self, grad_outputs: &[f32]) -> Result<(), Error> {
        let pending = self.pending.ok_or_else(batch::no_forward)?;
        batch::check_grads(&self.config, pending, grad_outputs.len())?;
        let Pending { indices, bags, weighted } = pending;
        let params = self.params(Mode::Train, Purpose::Update).batch(indices, bags, weighted);
        let (tables, Some(space)) = (&mut self.tables, &mut self.train) else { return Err(batch::no_forward()) };
        if indices > 0 {
            backward(tables, space, params, grad_outputs);
        }
        self.pending = None;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Error> {
        let params = self.params(Mode::Train, Purpose::WriteBack);
        let tables = &mut self.tables;
        let layout = &tables.layout;
        if layout.sets == 0 {
            return Ok(());
        }
        let space = match &mut self.flush {
            Some(space) => space,
            none => none.insert(FlushSpace::new(layout)?),
        };
        space.step = Step::default();
        collect(&params, &mut space.step, &mut tables.ways, &mut space.moves);
        let FlushSpace { step, moves } = space;
        exchange_all(tables, &params, step, moves, &mut [], Shard::PACK);
        Ok(())
    }

    fn reset(&mut self) -> Result<(), Error> {
        batch::not_pending(self.pending, "reset")?;
        self.flush()?;
        self.reset_discarding()
    }

    fn reset_discarding(&mut self) -> Result<(), Error> {
        batch::not_pending(self.pending, "reset")?;
        reset(&self.params(Mode::Train, Purpose::WriteBack), &mut self.tables.ways);
        Ok(())
    }

    fn read_rows(&mut self, rows: &[u32]) -> Result<Vec<f32>, Error> {
        batch::check_rows(&self.tables.layout, rows)?;
        let mut outputs = zeroed("outputs", rows.len() * self.tables.layout.dim as usize)?;
        if !rows.is_empty() {
            self.look_up(rows, Some(&mut outputs))?;
        }
        Ok(outputs)
    }

    fn write_rows(&mut self, rows: &[u32], values: &[f32]) -> Result<(), Error> {
        batch::not_pending(self.pending, "write_rows")?;
        let (ascending, values) = batch::rows_to_write(&self.tables.layout, rows, values)?;
        if rows.is_empty() {
            return Ok(());
        }
        let params = self.look_up(&ascending, None)?;
        let (tables, Some(space)) = (&mut self.tables, &mut self.frozen) else { return Ok(()) };
        assign(
            &params,
            &space.keys,
            &space.places,
            &values,
            &mut tables.cache,
            &mut space.scratch,
            &mut tables.ways,
            &mut space.moves,
            &mut tables.tables,
        );
        exchange_all(tables, &params, &space.step, &space.moves, &mut space.scratch, Shard::PACK);
        Ok(())
    }

    fn counters(&mut self) -> Result<Vec<Counters>, Error> {
        Ok(Counters::from_words(&self.tables.tables, self.tables.layout.stride()))
    }

    fn snapshot(&mut self) -> Result<Snapshot, Error> {
        let tables = &self.tables;
        let mut cache = zeroed("snapshot", tables.cache.len())?;
        cache.copy_from_slice(&tables.cache);
        let cache = tables.layout.without_padding(cache);
        Ok(Snapshot {
            t: tables.tables[0],
            ways: joined("snapshot", std::slice::from_ref(&tables.ways))?,
            cache,
            records: joined("snapshot", &tables.records)?,
            freqs: joined("snapshot", tables.freqs.iter().map(|(_, freqs)| freqs))?,
            counters: Counters::from_words(&tables.tables, tables.layout.stride()),
        })
    }

    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), Error> {
        let tables = &mut self.tables;
        snapshot.check(&tables.layout, self.config.tables.len(), self.config.policy == Policy::Lfu)?;
        if tables.tables[0] != snapshot.t || tables.ways != snapshot.ways {
            self.pending = None; // its rows are elsewhere now
        }
        tables.tables[0] = snapshot.t;
        Counters::to_words(&snapshot.counters, &mut tables.tables);
        tables.ways.copy_from_slice(&snapshot.ways);
        tables.cache.copy_from_slice(&tables.layout.with_padding(&snapshot.cache));
        let mut records = snapshot.records.as_slice();
        for shard in &mut tables.records {
            let (mine, rest) = records.split_at(shard.len());
            shard.copy_from_slice(mine);
            records = rest;
        }
        let mut freqs = snapshot.freqs.as_slice();
        for (_, shard) in &mut tables.freqs {
            let (mine, rest) = freqs.split_at(shard.len());
            shard.copy_from_slice(mine);
            freqs = rest;
        }
        Ok(())
    }

    fn set_learning_rate(&mut self, lr: f32) -> Result<(), Error> {
        self.config.set_learning_rate(lr)
    }
}
