//! Host side of `shaders/cached/exchange.wgsl`: moves rows between table and FP32, as many shards at a time as the device binds.

use crate::{
    gpu::{
        engine::call::{Call, Groups, Named},
        stages::{
            EXCHANGE,
            cached::tables::{BoundShards, RecordBuffers, Tables},
        },
    },
    table::abi::Shard,
};

/// The records that an exchange binds.
#[derive(Clone, Copy)]
pub(crate) enum Records<'a> {
    /// The table's records, shard by shard.
    Table,
    /// The records in a staged table's flight. The uniform says which phases run.
    Flight { flight: &'a wgpu::Buffer, shard: &'a wgpu::Buffer },
    /// No records: the host knows that no row of a staged table is missing.
    Nothing,
}

/// A list of Moves. `step` has its length.
pub(crate) struct List<'a> {
    pub(crate) step: &'a wgpu::Buffer,
    pub(crate) moves: &'a wgpu::Buffer,
    /// Most Moves that the list can have.
    pub(crate) capacity: u32,
    pub(crate) scratch: &'a wgpu::Buffer,
    pub(crate) records: Records<'a>,
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

pub(crate) fn record(call: &mut Call<'_>, uniform: &wgpu::Buffer, tables: &Tables, list: &List<'_>, phases: Phases) {
    let layout = &tables.layout;
    let context = call.context;
    let mut over = |shard: &wgpu::Buffer, records: RecordBuffers<'_>| {
        let List { step, moves, scratch, .. } = list;
        let from: &[&dyn Named] = &[
            &("params", uniform),
            &("shard", shard),
            &("step", step),
            &("moves", moves),
            &("scratch", scratch),
            tables,
        ];
        let groups = Groups::capped(list.capacity, records.block(layout));
        call.run_records(&EXCHANGE, from, tables, records, &groups);
    };
    match list.records {
        Records::Table => {}
        Records::Flight { flight, shard } => return over(shard, RecordBuffers::Flight(flight)),
        Records::Nothing => return,
    }
    let bound: Vec<BoundShards<'_>> = tables.bound(context.caps()).collect();
    let phases = match phases {
        Phases::Both if bound.len() == 1 => vec![Shard::PACK | Shard::UNPACK],
        Phases::Both => vec![Shard::PACK, Shard::UNPACK],
        Phases::Pack => vec![Shard::PACK],
        Phases::Unpack => vec![Shard::UNPACK],
    };
    for phases in phases {
        for &shards in &bound {
            over(&context.uniform(&shards.uniform(layout, phases)), RecordBuffers::Shards(shards));
        }
    }
}
