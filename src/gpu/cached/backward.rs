//! The stages of backward in their order (SPEC 3). No other file has this order. Backward reads lists that forward leaves in step scratch:
//! `keys`, `places` and `access` of each index, the bypassed rows, and the step's counts.

use crate::{
    gpu::{
        engine::{
            call::{Call, Groups, Named},
            context::Context,
        },
        stages::{
            ARRANGE, COMBINE, MERGE,
            cached::{exchange::Records, space::Space, tables::Tables, update},
            sort::{
                dedup,
                radix::counted_mask,
                space::{DedupTo, SortJob},
            },
        },
    },
    table::{
        abi::{COMBINE_TILES, MERGE_CHUNK, Params, count},
        layout::Layout,
    },
};

/// The inputs of a backward beside the step's own lists.
pub(crate) struct Gradients<'a> {
    /// The gradients of the outputs.
    pub(crate) outputs: wgpu::BindingResource<'a>,
    /// The state of the loss's scaler.
    pub(crate) scaler: &'a wgpu::Buffer,
    /// The uniform of the learning rate.
    pub(crate) rate: &'a wgpu::Buffer,
}

/// Whether backward sorts the accesses by place. Each row has one place and each place one row, so either can be the sort key. The one that
/// takes fewer passes is sorted.
pub(crate) const fn sorts_by_place(layout: &Layout, indices: u32) -> bool {
    layout.place_bits(indices).div_ceil(8) < layout.row_bits().div_ceil(8)
}

pub(crate) fn encode_backward(
    context: &Context,
    encoder: &mut wgpu::CommandEncoder,
    tables: &Tables,
    space: &Space,
    params: Params,
    gradients: &Gradients<'_>,
    records: &Records,
) {
    let layout = &tables.layout;
    let indices = params.indices;
    let uniform = context.uniform(&Params { partials: space.partials, ..params });
    let call = &mut Call::begin(context, encoder, "hotrow.backward");
    let (keys, key_bits, counted) = if sorts_by_place(layout, indices) {
        (&space.places, layout.place_bits(indices), None)
    } else {
        let counted = counted_mask(indices, layout.row_bits()) != 0;
        (&space.keys, layout.row_bits(), counted.then_some(&space.row_digits))
    };
    let keys = keys.as_entire_binding();
    let job = SortJob { keys, values: None, capacity: indices, count: count::INDICES, key_bits, counted };
    let to = DedupTo {
        segment: &space.segment,
        starts: &space.starts,
        segments: count::UNIQUE,
        valid: count::VALID,
        base: None,
    };
    let sorted = dedup::encode(call, &space.step, &job, &space.sorted, &space.sort, &to);
    let from: &[&dyn Named] = &[
        &("params", &uniform),
        &("order", sorted.values),
        &("scaler", gradients.scaler),
        &("rate", gradients.rate),
        &("grad_outputs", &gradients.outputs),
        tables,
        space,
    ];
    call.run(&ARRANGE, from, &Groups::of(indices, 256));
    // A batch of one chunk has no row with more than one chunk.
    if indices > MERGE_CHUNK {
        let tiles = indices.div_ceil(MERGE_CHUNK);
        call.run_rows(&MERGE, from, (tables, &params), &Groups::capped(2 * tiles, layout.at_once()));
        call.run_rows(&COMBINE, from, (tables, &params), &Groups::capped(tiles, COMBINE_TILES));
    }
    update::encode(call, from, (tables, &params), layout.most_distinct(indices), records);
}
