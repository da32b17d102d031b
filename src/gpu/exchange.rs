//! Host side of `shaders/exchange.wgsl`: rows between table and FP32, shard by shard.

use super::{
    call::{Call, Groups},
    tables::Tables,
};
use crate::shader::{
    Access::{Read, ReadWrite, Uniform},
    Kernel,
};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "exchange",
    workgroup: 256,
    bindings: &[
        (Uniform, "params"),
        (Uniform, "shard"),
        (ReadWrite, "step"),
        (Read, "moves"),
        (ReadWrite, "records"),
        (ReadWrite, "cache"),
        (ReadWrite, "scratch"),
        (ReadWrite, "tables"),
    ],
};

/// A list of Moves, of the length that `step` tells.
pub(crate) struct List<'a> {
    pub(crate) step: &'a wgpu::Buffer,
    pub(crate) moves: &'a wgpu::Buffer,
    /// Most there can be.
    pub(crate) capacity: u32,
    pub(crate) scratch: &'a wgpu::Buffer,
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
    let mut over_shards = |uniforms: &[wgpu::Buffer]| {
        for (shard, records) in uniforms.iter().zip(&tables.records) {
            let bindings = [
                uniform.as_entire_binding(),
                shard.as_entire_binding(),
                list.step.as_entire_binding(),
                list.moves.as_entire_binding(),
                records.as_entire_binding(),
                tables.cache.as_entire_binding(),
                list.scratch.as_entire_binding(),
                tables.tables.as_entire_binding(),
            ];
            call.dispatch_rows(&KERNEL, layout.width(), &bindings, &Groups::capped(list.capacity, layout.at_once()));
        }
    };
    if phases != Phases::Unpack {
        over_shards(&tables.packs);
    }
    // A single shard has done both at once: the uniform says so.
    if phases == Phases::Unpack || (phases == Phases::Both && layout.shards > 1) {
        over_shards(&tables.unpacks);
    }
}
