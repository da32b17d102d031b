//! A group of tables on the CPU: the story of `gpu/group.rs`, told with plain functions.

use super::{
    admit, assign, begin, collect, combine,
    dedup::{DedupTo, dedup},
    fetch, gather, linearize, locate,
    memory::{joined, reserved, zeroed},
    merge, probe, reset, resolve,
    sort::SortJob,
    space::{FlushSpace, Ranges, Space},
    tables::Tables,
    touch, update, write_back,
};
use crate::{
    Counters, Embedding, Error, GroupConfig, Layout, Snapshot, batch,
    layout::{Params, Step, count},
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
    /// Indices and bags of a forward whose backward has not come.
    pending: Option<(u32, u32)>,
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
            self.pending = fault.is_none().then_some((n, bags));
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
        let rows = SortJob { keys: &space.keys, values: None, count: count::INDICES, key_bits: layout.row_bits() };
        let to = &mut DedupTo {
            segment: &mut space.segment,
            starts: &mut space.starts,
            segments: count::UNIQUE,
            valid: count::VALID,
        };
        let (keys, _) = dedup(step, &rows, &mut space.by_row, &mut space.sort, to);
        probe(
            params,
            step,
            keys,
            &space.starts,
            &mut space.unique,
            &mut space.rows,
            &mut space.set_keys,
            &mut tables.ways,
            &mut tables.tables,
        );
        space.row_ranges.cut(layout, step, &space.rows, count::UNIQUE, true);
        if params.mode == Mode::Train as u32 {
            // Ranges do not depend on how many rows a workgroup takes: touch needs none of its own here.
            for (shard, freqs) in tables.shards.iter().zip(&mut tables.freqs) {
                touch(shard, &space.row_ranges.range, &mut space.unique, &mut tables.ways, freqs);
            }
            if layout.sets > 0 {
                admission(tables, space, params);
            }
        }
        resolve(params, &space.step, &mut space.unique, &space.set_keys, &tables.ways, &mut space.fetch_to);
        for (shard, records) in tables.shards.iter().zip(&tables.records) {
            fetch(
                params,
                shard,
                &space.row_ranges.range,
                &space.rows,
                &space.fetch_to,
                records,
                &mut tables.cache,
                &mut space.scratch,
                &mut tables.tables,
            );
        }
        let (keys, order) = space.by_row.sorted(tables.layout.row_bits());
        locate(params, &space.step, keys, order, &space.segment, &space.unique, &mut space.places);
    }
    if let Some(outputs) = outputs {
        gather(params, offsets, &space.places, weights, &tables.cache, &space.scratch, &mut space.access, outputs);
    }
}

/// Missing rows set by set; admission; write-back of the dirty victims, before their slots are filled anew.
fn admission(tables: &mut Tables, space: &mut Space, params: &Params) {
    let layout = &tables.layout;
    let step = &mut space.step;
    let missing = SortJob { keys: &space.set_keys, values: None, count: count::UNIQUE, key_bits: layout.set_bits() };
    let to = &mut DedupTo {
        segment: &mut space.set_segment,
        starts: &mut space.set_starts,
        segments: count::SETS,
        valid: count::MISSES,
    };
    let (_, order) = dedup(step, &missing, &mut space.by_set, &mut space.sort, to);
    admit(
        params,
        step,
        &mut space.unique,
        order,
        &space.set_starts,
        &mut tables.ways,
        &mut space.victim_rows,
        &mut space.victim_slots,
        &mut tables.tables,
    );
    let (mut rows, mut sources) = (&space.victim_rows[..], &space.victim_slots[..]);
    if layout.shards > 1 {
        let victims = SortJob { keys: rows, values: Some(sources), count: count::MISSES, key_bits: layout.row_bits() };
        (rows, sources) = space.by_victim.sort(step, &victims, &mut space.sort);
    }
    space.victim_ranges.cut(layout, step, rows, count::MISSES, layout.shards > 1);
    write_rows_back(tables, params, rows, sources, &space.scratch, &space.victim_ranges);
}

/// Rows to records, shard by shard.
fn write_rows_back(
    tables: &mut Tables,
    params: &Params,
    rows: &[u32],
    sources: &[u32],
    scratch: &[f32],
    ranges: &Ranges,
) {
    for (shard, records) in tables.shards.iter().zip(&mut tables.records) {
        write_back(params, shard, &ranges.range, rows, sources, records, &tables.cache, scratch, &mut tables.tables);
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
        let (indices, bags) = self.pending.ok_or_else(batch::no_forward)?;
        batch::check_grads(&self.config, (indices, bags), grad_outputs.len())?;
        let params = self.params(Mode::Train, Purpose::Update).batch(indices, bags, false);
        let (tables, Some(space)) = (&mut self.tables, &mut self.train) else { return Err(batch::no_forward()) };
        if indices > 0 {
            let (_, order) = space.by_row.sorted(tables.layout.row_bits());
            merge(
                &params,
                &space.step,
                order,
                &space.segment,
                &space.access,
                grad_outputs,
                &mut space.grads,
                &mut space.partials,
            );
            combine(&params, &space.step, &space.starts, &space.partials, &mut space.grads);
            update(
                &params,
                &space.step,
                &space.unique,
                &space.grads,
                &mut tables.cache,
                &mut space.scratch,
                &mut tables.ways,
                &mut space.sources,
                &mut tables.tables,
            );
            write_rows_back(tables, &params, &space.rows, &space.sources, &space.scratch, &space.row_ranges);
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
        collect(&params, &mut space.step, &mut tables.ways, &mut space.rows, &mut space.sources);
        let (mut rows, mut sources) = (&space.rows[..], &space.sources[..]);
        if layout.shards > 1 {
            let job = SortJob { keys: rows, values: None, count: count::SLOTS, key_bits: layout.row_bits() };
            (rows, sources) = space.by_row.sort(&space.step, &job, &mut space.sort);
        }
        space.ranges.cut(layout, &space.step, rows, count::SLOTS, layout.shards > 1);
        write_rows_back(tables, &params, rows, sources, &[], &space.ranges);
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
            &space.step,
            &space.unique,
            &values,
            &mut tables.cache,
            &mut space.scratch,
            &mut tables.ways,
            &mut space.sources,
            &mut tables.tables,
        );
        write_rows_back(tables, &params, &space.rows, &space.sources, &space.scratch, &space.row_ranges);
        Ok(())
    }

    fn counters(&mut self) -> Result<Vec<Counters>, Error> {
        Ok(Counters::from_words(&self.tables.tables, self.tables.layout.stride()))
    }

    fn snapshot(&mut self) -> Result<Snapshot, Error> {
        let tables = &self.tables;
        let mut cache = zeroed("snapshot", tables.cache.len())?;
        cache.copy_from_slice(&tables.cache);
        Ok(Snapshot {
            t: tables.tables[0],
            ways: joined("snapshot", std::slice::from_ref(&tables.ways))?,
            cache,
            records: joined("snapshot", &tables.records)?,
            freqs: joined("snapshot", &tables.freqs)?,
            counters: Counters::from_words(&tables.tables, tables.layout.stride()),
        })
    }

    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), Error> {
        let tables = &mut self.tables;
        snapshot.check(&tables.layout, self.config.tables.len(), !tables.freqs.is_empty())?;
        if tables.tables[0] != snapshot.t || tables.ways != snapshot.ways {
            self.pending = None; // its rows are elsewhere now
        }
        tables.tables[0] = snapshot.t;
        Counters::to_words(&snapshot.counters, &mut tables.tables);
        tables.ways.copy_from_slice(&snapshot.ways);
        tables.cache.copy_from_slice(&snapshot.cache);
        let mut records = snapshot.records.as_slice();
        for shard in &mut tables.records {
            let (mine, rest) = records.split_at(shard.len());
            shard.copy_from_slice(mine);
            records = rest;
        }
        let mut freqs = snapshot.freqs.as_slice();
        for shard in &mut tables.freqs {
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
