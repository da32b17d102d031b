//! Forward, stage by stage (SPEC 3): the one place that knows their order.

use super::{
    Context, admit, begin, bounds,
    call::Call,
    dedup,
    dedup::DedupTo,
    fetch, gather, linearize, locate, probe, resolve,
    sort::SortJob,
    space::{Bound, Space},
    tables::Tables,
    touch, write_back,
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
        // The most distinct rows there can be; how many there are only the device knows.
        let distinct = layout.most_distinct(params.indices);
        let rows = SortJob {
            keys: space.keys.as_entire_binding(),
            values: None,
            capacity: params.indices,
            count: count::INDICES,
            key_bits: layout.row_bits(),
        };
        let to =
            DedupTo { segment: &space.segment, starts: &space.starts, segments: count::UNIQUE, valid: count::VALID };
        let sorted = dedup::record(call, &space.step, &rows, &space.by_row, &space.sort, &to);
        probe::record(call, &uniform, tables, space, &sorted, distinct);
        let list = |per_group| bounds::List { rows: &space.rows, count: count::UNIQUE, sorted: true, per_group };
        bounds::record(call, &space.step, tables, &list(1), &space.row_ranges);
        if params.mode == Mode::Train as u32 {
            if !tables.freqs.is_empty() {
                bounds::record(call, &space.step, tables, &list(touch::PER_GROUP), &space.touch_ranges);
                touch::record(call, tables, space, &space.touch_ranges);
            }
            if layout.sets > 0 {
                record_admission(call, &uniform, tables, space, distinct);
            }
        }
        resolve::record(call, &uniform, tables, space, distinct);
        fetch::record(call, &uniform, tables, space);
        locate::record(call, &uniform, space, &sorted, params.indices);
    }
    if let Some((outputs, rows)) = outputs {
        gather::record(call, &uniform, batch, tables, space, outputs, rows);
    }
}

/// Missing rows set by set; admission; write-back of the dirty victims, before their slots are filled anew.
fn record_admission(call: &mut Call<'_>, uniform: &wgpu::Buffer, tables: &Tables, space: &Space, distinct: u32) {
    let layout = &tables.layout;
    let missing = SortJob {
        keys: space.set_keys.as_entire_binding(),
        values: None,
        capacity: distinct,
        count: count::UNIQUE,
        key_bits: layout.set_bits(),
    };
    let to =
        DedupTo { segment: &space.set_segment, starts: &space.set_starts, segments: count::SETS, valid: count::MISSES };
    let sets = dedup::record(call, &space.step, &missing, &space.by_set, &space.sort, &to);
    admit::record(call, uniform, tables, space, &sets, distinct);
    let (mut rows, mut sources) = (&space.victim_rows, &space.victim_slots);
    if layout.shards > 1 {
        let victims = SortJob {
            keys: rows.as_entire_binding(),
            values: Some(sources.as_entire_binding()),
            capacity: distinct,
            count: count::MISSES,
            key_bits: layout.row_bits(),
        };
        let sorted = space.by_victim.record(call, &space.step, &victims, &space.sort);
        (rows, sources) = (sorted.keys, sorted.values);
    }
    let list = bounds::List { rows, count: count::MISSES, sorted: layout.shards > 1, per_group: 1 };
    bounds::record(call, &space.step, tables, &list, &space.victim_ranges);
    let work = write_back::Work { rows, sources, scratch: &space.scratch, ranges: &space.victim_ranges };
    write_back::record(call, uniform, tables, &work);
}

/// The rows that update or assign left in scratch.
pub(crate) fn bypass_work(space: &Space) -> write_back::Work<'_> {
    write_back::Work { rows: &space.rows, sources: &space.sources, scratch: &space.scratch, ranges: &space.row_ranges }
}
