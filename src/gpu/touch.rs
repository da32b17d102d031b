//! Host side of `shaders/touch.wgsl`: the frequencies of one shard.

use super::{
    call::{Call, Groups},
    space::{Ranges, Space},
    tables::Tables,
};
use crate::shader::{
    Access::{Read, ReadWrite, Uniform},
    Kernel,
};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "touch",
    workgroup: 64,
    bindings: &[(Uniform, "shard"), (Read, "range"), (ReadWrite, "unique"), (ReadWrite, "ways"), (ReadWrite, "freqs")],
};

/// Rows of a workgroup.
pub(crate) const PER_GROUP: u32 = 64;

pub(crate) fn record(call: &mut Call<'_>, tables: &Tables, space: &Space, ranges: &Ranges) {
    for (shard, freqs) in tables.freqs.iter().enumerate() {
        let bindings = [
            tables.shards[shard].as_entire_binding(),
            ranges.range.as_entire_binding(),
            space.unique.as_entire_binding(),
            tables.ways.as_entire_binding(),
            freqs.as_entire_binding(),
        ];
        call.dispatch(&KERNEL, &bindings, &Groups::Indirect(&ranges.groups, 12 * shard as u64));
    }
}
