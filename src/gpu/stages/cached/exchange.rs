//! Host side of `shaders/cached/exchange.wgsl`: moves rows between table and FP32, as many pieces at a time as the device binds.

use crate::{
    gpu::{
        engine::call::{Call, Groups, Named},
        stages::{
            EXCHANGE,
            cached::tables::{BoundPieces, RecordBuffers, Tables},
        },
    },
    table::abi::{Params, Piece},
};

/// The records that an exchange binds.
pub(crate) enum Records {
    /// The table's records, piece by piece.
    Table,
    /// The records in a staged table's transfer. The uniform says which phases run.
    Transfer { transfer: wgpu::Buffer, piece: wgpu::Buffer },
    /// No records: the host knows that no row of a staged table is missing.
    Nothing,
}

/// A list of swaps. `step` has its length.
pub(crate) struct List<'a> {
    pub(crate) step: &'a wgpu::Buffer,
    pub(crate) swaps: &'a wgpu::Buffer,
    /// Most swaps that the list can have.
    pub(crate) capacity: u32,
    pub(crate) scratch: &'a wgpu::Buffer,
    pub(crate) records: Records,
}

/// The phases of an exchange that a list needs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phases {
    /// Rows leave and rows come.
    Both,
    /// Rows leave: flush, writing rows.
    Pack,
    /// Rows come: a step without admission.
    Unpack,
}

pub(crate) fn encode(call: &mut Call<'_>, params: &Params, tables: &Tables, list: &List<'_>, phases: Phases) {
    let layout = &tables.layout;
    let context = call.context;
    let uniform = &context.uniform(params);
    let mut over = |piece: &wgpu::Buffer, records: RecordBuffers<'_>| {
        let List { step, swaps, scratch, .. } = list;
        let from: &[&dyn Named] = &[
            &("params", uniform),
            &("piece", piece),
            &("step", step),
            &("swaps", swaps),
            &("scratch", scratch),
            tables,
        ];
        let groups = Groups::capped(list.capacity, records.block(layout));
        call.run_records(&EXCHANGE, from, (tables, params), records, &groups);
    };
    match &list.records {
        Records::Table => {}
        Records::Transfer { transfer, piece } => return over(piece, RecordBuffers::Transfer(transfer)),
        Records::Nothing => return,
    }
    let bound: Vec<BoundPieces<'_>> = tables.bound(context.caps()).collect();
    let phases = match phases {
        Phases::Both if bound.len() == 1 => vec![Piece::PACK | Piece::UNPACK],
        Phases::Both => vec![Piece::PACK, Piece::UNPACK],
        Phases::Pack => vec![Piece::PACK],
        Phases::Unpack => vec![Piece::UNPACK],
    };
    for phases in phases {
        for &pieces in &bound {
            over(&context.uniform(&pieces.uniform(layout, phases)), RecordBuffers::Pieces(pieces));
        }
    }
}
