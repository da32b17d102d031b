//! Host side of `shaders/bounds.wgsl`: a list of rows, cut into shards.

use super::{
    call::{Call, Groups},
    space::Ranges,
    tables::Tables,
};
use crate::layout::BoundsInfo;
use crate::shader::{
    Access::{Read, ReadWrite, Uniform},
    Kernel,
};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "bounds",
    workgroup: 64,
    bindings: &[(Uniform, "info"), (ReadWrite, "step"), (Read, "rows"), (ReadWrite, "range"), (ReadWrite, "groups_of")],
};

/// A list of linear rows.
pub(crate) struct List<'a> {
    /// The rows, ascending if `sorted`; NONE sorts last.
    pub(crate) rows: &'a wgpu::Buffer,
    /// Which of the step's counts tells how many there are.
    pub(crate) count: usize,
    /// False only where there is one shard.
    pub(crate) sorted: bool,
    /// Rows a workgroup of the dispatch to come takes.
    pub(crate) per_group: u32,
}

pub(crate) fn record(call: &mut Call<'_>, step: &wgpu::Buffer, tables: &Tables, list: &List<'_>, to: &Ranges) {
    let layout = &tables.layout;
    let info = call.context.uniform(&BoundsInfo {
        shards: layout.shards,
        rows_per_shard: layout.rows_per_shard,
        count: list.count as u32,
        sorted: u32::from(list.sorted),
        per_group: list.per_group,
        max_groups: call.context.max_groups(),
        ..BoundsInfo::default()
    });
    let bindings = [
        info.as_entire_binding(),
        step.as_entire_binding(),
        list.rows.as_entire_binding(),
        to.range.as_entire_binding(),
        to.groups.as_entire_binding(),
    ];
    call.dispatch(&KERNEL, &bindings, &Groups::of(layout.shards, 64));
}
