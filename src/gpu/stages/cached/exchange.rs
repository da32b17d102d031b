//! Host side of `shaders/cached/exchange.wgsl`: rows between table and FP32, shard by shard.

use crate::gpu::{
    engine::call::{Call, Groups, kernel},
    stages::cached::tables::Tables,
};

kernel! {
    "exchange", workgroup 256,
    params: Uniform,
    shard: Uniform,
    step: ReadWrite,
    moves: Read,
    records: ReadWrite,
    cache: ReadWrite,
    scratch: ReadWrite,
    ways: ReadWrite,
    tables: ReadWrite,
}

/// Which records are bound.
#[derive(Clone, Copy)]
pub(crate) enum Records<'a> {
    /// The table's own, shard by shard.
    Table,
    /// Those of a staged table that come and go; the uniform says what is to be done.
    Flight { flight: &'a wgpu::Buffer, shard: &'a wgpu::Buffer },
    /// None: nothing is missing, which the host knows of a staged table.
    Nothing,
}

/// A list of Moves, of the length that `step` tells.
pub(crate) struct List<'a> {
    pub(crate) step: &'a wgpu::Buffer,
    pub(crate) moves: &'a wgpu::Buffer,
    /// Most there can be.
    pub(crate) capacity: u32,
    pub(crate) scratch: &'a wgpu::Buffer,
    pub(crate) records: Records<'a>,
}

/// What of an exchange a list can ask for at all.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phases {
    /// Rows leave and rows come.
    Both,
    /// Rows leave: flush, write rows.
    Pack,
    /// Rows come: no admission.
    Unpack,
}

pub(crate) fn record(call: &mut Call<'_>, uniform: &wgpu::Buffer, tables: &Tables, list: &List<'_>, phases: Phases) {
    let layout = &tables.layout;
    let mut over = |shard: &wgpu::Buffer, records: &wgpu::Buffer| {
        let bindings = Bindings {
            params: uniform.as_entire_binding(),
            shard: shard.as_entire_binding(),
            step: list.step.as_entire_binding(),
            moves: list.moves.as_entire_binding(),
            records: records.as_entire_binding(),
            cache: tables.cache.as_entire_binding(),
            scratch: list.scratch.as_entire_binding(),
            ways: tables.ways.as_entire_binding(),
            tables: tables.tables.as_entire_binding(),
        };
        call.dispatch_rows(bindings, tables, &Groups::capped(list.capacity, layout.at_once()));
    };
    match list.records {
        Records::Table => {}
        Records::Flight { flight, shard } => return over(shard, flight),
        Records::Nothing => return,
    }
    let mut over_shards = |uniforms: &[wgpu::Buffer]| {
        uniforms.iter().zip(&tables.records).for_each(|(shard, records)| over(shard, records));
    };
    if phases != Phases::Unpack {
        over_shards(&tables.packs);
    }
    // A single shard has done both at once: the uniform says so.
    if phases == Phases::Unpack || (phases == Phases::Both && layout.shards > 1) {
        over_shards(&tables.unpacks);
    }
}
