//! Host side of `shaders/cached/send.wgsl`: lists rows for another rank.

use crate::{
    gpu::{
        engine::{
            bind_cache::passing,
            call::{Call, Groups, Named},
        },
        stages::{
            SEND,
            cached::{
                space::Space,
                tables::{RecordBuffers, Tables},
            },
        },
    },
    table::abi::{Params, Piece},
};

/// `space` has the rows and their places. A staged table has no records on the device: `none` is bound in their place.
pub(crate) fn encode(
    call: &mut Call<'_>,
    params: &Params,
    tables: &Tables,
    space: &Space,
    none: &wgpu::Buffer,
    sent: &wgpu::Buffer,
    rows: u32,
) {
    let (context, layout) = (call.context, &tables.layout);
    let uniform = &context.uniform(params);
    let mut over = |piece: &Piece, records: RecordBuffers<'_>| {
        let piece = context.uniform(piece);
        let from: &[&dyn Named] = &[&("params", uniform), &("piece", piece), &("sent", passing(sent)), tables, space];
        call.run_records(&SEND, from, (tables, params), records, &Groups::of(rows, layout.at_once()));
    };
    if tables.records.is_empty() {
        return over(&Piece { rows_each: 1, ..Piece::default() }, RecordBuffers::Transfer(none));
    }
    for pieces in tables.bound(context.caps()) {
        over(&pieces.uniform(layout, 0), RecordBuffers::Pieces(pieces));
    }
}
