//! Host side of `shaders/fetch.wgsl`: records to rows, shard by shard.

use super::{
    call::{Call, Groups},
    space::Space,
    tables::Tables,
};
use crate::shader::{
    Access::{Read, ReadWrite, Uniform},
    Kernel,
};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "fetch",
    workgroup: 64,
    bindings: &[
        (Uniform, "params"),
        (Uniform, "shard"),
        (Read, "range"),
        (Read, "rows"),
        (Read, "fetch_to"),
        (Read, "records"),
        (ReadWrite, "cache"),
        (ReadWrite, "scratch"),
        (ReadWrite, "tables"),
    ],
};

pub(crate) fn record(call: &mut Call<'_>, uniform: &wgpu::Buffer, tables: &Tables, space: &Space) {
    for (shard, records) in tables.records.iter().enumerate() {
        let bindings = [
            uniform.as_entire_binding(),
            tables.shards[shard].as_entire_binding(),
            space.row_ranges.range.as_entire_binding(),
            space.rows.as_entire_binding(),
            space.fetch_to.as_entire_binding(),
            records.as_entire_binding(),
            tables.cache.as_entire_binding(),
            space.scratch.as_entire_binding(),
            tables.tables.as_entire_binding(),
        ];
        call.dispatch(&KERNEL, &bindings, &Groups::Indirect(&space.row_ranges.groups, 12 * shard as u64));
    }
}
