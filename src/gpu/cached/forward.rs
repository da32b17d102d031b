//! The stages of forward in their order (SPEC 3); no other file knows it.

use crate::{
    gpu::{
        engine::{call::Call, context::Context},
        stages::{
            cached::{
                admit, begin, claim,
                exchange::{self, Records},
                gather, linearize, locate, probe,
                space::{Bound, Space},
                tables::Tables,
                touch, wanted,
            },
            sort::{
                dedup,
                space::{DedupTo, SortJob},
            },
        },
    },
    table::{
        layout::{Params, count},
        params::Mode,
    },
};

/// The buffers that carrying out a step reads and writes.
pub(crate) struct StepTargets<'a> {
    /// The outputs and their number of rows; `None` if the call wants no outputs.
    pub(crate) outputs: Option<(&'a wgpu::BindingResource<'a>, u32)>,
    pub(crate) records: Records<'a>,
}

/// Records a whole step forward in one pass.
pub(crate) fn record_step(
    context: &Context,
    encoder: &mut wgpu::CommandEncoder,
    tables: &Tables,
    space: &Space,
    params: &Params,
    batch: &Bound<'_>,
    outputs: Option<(&wgpu::BindingResource<'_>, u32)>,
) {
    encoder.clear_buffer(&space.step, 0, None);
    let call = &mut Call::begin(context, encoder, "hotrow.forward");
    decide(call, params, batch, tables, space);
    carry(call, params, batch, tables, space, StepTargets { outputs, records: Records::Table });
}

/// Records the deciding stages alone, for a prefetched batch.
pub(crate) fn record_decisions(
    context: &Context,
    encoder: &mut wgpu::CommandEncoder,
    tables: &Tables,
    space: &Space,
    params: &Params,
    batch: &Bound<'_>,
) {
    encoder.clear_buffer(&space.step, 0, None);
    decide(&mut Call::begin(context, encoder, "hotrow.prefetch"), params, batch, tables, space);
}

/// Records the stages that carry out a decided step.
pub(crate) fn record_carry(
    context: &Context,
    encoder: &mut wgpu::CommandEncoder,
    tables: &Tables,
    space: &Space,
    params: &Params,
    batch: &Bound<'_>,
    targets: StepTargets<'_>,
) {
    carry(&mut Call::begin(context, encoder, "hotrow.forward"), params, batch, tables, space, targets);
}

/// Decides the step (SPEC 3, steps 1 to 4): stages that read and write metadata only, in order. No row moves.
fn decide(call: &mut Call<'_>, params: &Params, batch: &Bound<'_>, tables: &Tables, space: &Space) {
    let layout = &tables.layout;
    let uniform = &call.context.uniform(params);
    let Space { step, keys, access, .. } = space;
    match batch.wanted {
        None => {
            linearize::record(
                call,
                params,
                uniform,
                batch,
                tables.numbering(),
                linearize::Lists { step, keys, access },
            );
        }
        Some(list) => wanted::record(call, params, uniform, list, space),
    }
    begin::record(call, uniform, batch, tables.numbering(), step);
    let indices = params.indices;
    if indices == 0 {
        return;
    }
    // An upper bound on the distinct rows; only the device knows their number.
    let distinct = layout.most_distinct(indices);
    probe::record(call, uniform, tables, space, indices);
    if params.mode == Mode::Train as u32 && params.sets > 0 {
        touch::record(call, uniform, tables, space, indices);
    }
    let missed = SortJob {
        keys: space.miss_keys.as_entire_binding(),
        values: Some(space.miss_index.as_entire_binding()),
        capacity: indices,
        count: count::MISSED,
        key_bits: layout.miss_key_bits(),
    };
    let to = DedupTo { segment: &space.segment, starts: &space.starts, segments: count::MOVES, valid: count::VALID };
    let missed = dedup::record(call, &space.step, &missed, &space.sorted, &space.sort, &to);
    claim::record(call, uniform, tables, space, &missed, distinct);
    if params.admits() {
        admit::record(call, uniform, tables, space, distinct);
    }
    locate::record(call, uniform, tables, space, &missed, indices);
}

/// Carries the decisions out (SPEC 3, steps 5 and 6): moves rows, and pools bags.
fn carry(
    call: &mut Call<'_>,
    params: &Params,
    batch: &Bound<'_>,
    tables: &Tables,
    space: &Space,
    StepTargets { outputs, records }: StepTargets<'_>,
) {
    let uniform = &call.context.uniform(params);
    if params.indices > 0 {
        let phases = if params.admits() { exchange::Phases::Both } else { exchange::Phases::Unpack };
        let list = moves(space, tables.layout.most_distinct(params.indices), records);
        exchange::record(call, uniform, tables, &list, phases);
    }
    if let Some(outputs) = outputs {
        gather::record(call, params, uniform, batch, tables, space, outputs);
    }
}

/// The Moves of a step, at most `capacity` of them.
pub(crate) fn moves<'s>(space: &'s Space, capacity: u32, records: Records<'s>) -> exchange::List<'s> {
    exchange::List { step: &space.step, moves: &space.moves, capacity, scratch: &space.scratch, records }
}
