//! Forward, stage by stage (SPEC 3): the one place that knows their order.

use super::{
    Context, admit, begin,
    call::Call,
    claim, dedup,
    dedup::DedupTo,
    exchange, gather, linearize, locate, probe,
    sort::SortJob,
    space::{Bound, Space},
    tables::Tables,
    touch,
};
use crate::{
    layout::{Params, count},
    params::Mode,
};

/// The stages of forward, in order (SPEC 3).
pub(crate) fn record_step(
    context: &Context,
    encoder: &mut wgpu::CommandEncoder,
    tables: &Tables,
    space: &Space,
    params: &Params,
    batch: &Bound<'_>,
    outputs: Option<(&wgpu::BindingResource<'_>, u32)>,
) {
    let layout = &tables.layout;
    let uniform = context.uniform(params);
    encoder.clear_buffer(&space.step, 0, None);
    let call = &mut Call::begin(context, encoder, "hotrow.forward");
    linearize::record(call, params, &uniform, batch, tables, space);
    begin::record(call, &uniform, batch, tables, space);
    if params.indices > 0 {
        let indices = params.indices;
        // The most distinct rows there can be; how many there are only the device knows.
        let distinct = layout.most_distinct(indices);
        let train = params.mode == Mode::Train as u32;
        probe::record(call, &uniform, tables, space, indices);
        if train && layout.sets > 0 {
            touch::record(call, &uniform, tables, space, indices);
        }
        let missed = SortJob {
            keys: space.miss_keys.as_entire_binding(),
            values: Some(space.miss_index.as_entire_binding()),
            capacity: indices,
            count: count::MISSED,
            key_bits: layout.miss_key_bits(),
        };
        let to =
            DedupTo { segment: &space.segment, starts: &space.starts, segments: count::MOVES, valid: count::VALID };
        let missed = dedup::record(call, &space.step, &missed, &space.sorted, &space.sort, &to);
        claim::record(call, &uniform, tables, space, &missed, distinct);
        let mut phases = exchange::Phases::Unpack;
        if train && layout.sets > 0 {
            admit::record(call, &uniform, tables, space, distinct);
            phases = exchange::Phases::Both;
        }
        exchange::record(call, &uniform, tables, &moves(space, distinct), phases);
        locate::record(call, &uniform, tables, space, &missed, indices);
    }
    if let Some(outputs) = outputs {
        gather::record(call, params, &uniform, batch, tables, space, outputs);
    }
}

/// The Moves of a step, at most `capacity`.
pub(crate) fn moves(space: &Space, capacity: u32) -> exchange::List<'_> {
    exchange::List { step: &space.step, moves: &space.moves, capacity, scratch: &space.scratch }
}
