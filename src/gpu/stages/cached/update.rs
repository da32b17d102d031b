//! Host side of `shaders/cached/update.wgsl`: updates the distinct rows, as many pieces at a time as the device binds.

use crate::{
    gpu::{
        engine::call::{Call, Groups, Named},
        stages::{
            UPDATE,
            cached::{
                exchange::Records,
                tables::{RecordBuffers, Tables},
            },
        },
    },
    table::abi::{Params, Piece},
};

pub(crate) fn encode(
    call: &mut Call<'_>,
    from: &[&dyn Named],
    (tables, params): (&Tables, &Params),
    rows: u32,
    records: &Records,
) {
    let context = call.context;
    let mut over = |piece: &wgpu::Buffer, records: RecordBuffers<'_>| {
        let groups = Groups::Wide(u64::from(rows.div_ceil(records.block(&tables.layout))));
        call.run_records(&UPDATE, &[&("piece", piece), &from], (tables, params), records, &groups);
    };
    if let Records::Transfer { transfer, piece } = records {
        return over(piece, RecordBuffers::Transfer(transfer));
    }
    for pieces in tables.bound(context.caps()) {
        over(&context.uniform(&pieces.uniform(&tables.layout, Piece::PACK)), RecordBuffers::Pieces(pieces));
    }
}
