//! Host side of `shaders/write_back.wgsl`: rows to records, shard by shard.

use super::{
    call::{Call, Groups},
    space::Ranges,
    tables::Tables,
};
use crate::shader::{
    Access::{Read, ReadWrite, Uniform},
    Kernel,
};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "write_back",
    workgroup: 64,
    bindings: &[
        (Uniform, "params"),
        (Uniform, "shard"),
        (Read, "range"),
        (Read, "rows"),
        (Read, "sources"),
        (ReadWrite, "records"),
        (Read, "cache"),
        (Read, "scratch"),
        (ReadWrite, "tables"),
    ],
};

/// The rows to write and where they are.
pub(crate) struct Work<'a> {
    pub(crate) rows: &'a wgpu::Buffer,
    pub(crate) sources: &'a wgpu::Buffer,
    pub(crate) scratch: &'a wgpu::Buffer,
    pub(crate) ranges: &'a Ranges,
}

pub(crate) fn record(call: &mut Call<'_>, uniform: &wgpu::Buffer, tables: &Tables, work: &Work<'_>) {
    for (shard, records) in tables.records.iter().enumerate() {
        let bindings = [
            uniform.as_entire_binding(),
            tables.shards[shard].as_entire_binding(),
            work.ranges.range.as_entire_binding(),
            work.rows.as_entire_binding(),
            work.sources.as_entire_binding(),
            records.as_entire_binding(),
            tables.cache.as_entire_binding(),
            work.scratch.as_entire_binding(),
            tables.tables.as_entire_binding(),
        ];
        call.dispatch(&KERNEL, &bindings, &Groups::Indirect(&work.ranges.groups, 12 * shard as u64));
    }
}
