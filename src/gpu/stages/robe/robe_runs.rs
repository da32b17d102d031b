//! Host side of `shaders/robe/robe_runs.wgsl`: which weights a sparse gradient has.

use crate::{
    gpu::{
        engine::call::{Call, Groups},
        stages::robe::space::{Due, RUNS_BLOCK, Runs},
    },
    wgsl::{
        Access::{Read, ReadWrite, Uniform},
        Kernel,
    },
};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "robe_runs",
    workgroup: 256,
    bindings: &[
        (Uniform, "params"),
        (Uniform, "robe"),
        (Read, "targets"),
        (Read, "accesses"),
        (Read, "scratch"),
        (ReadWrite, "runs"),
        (ReadWrite, "blocks"),
    ],
};

pub(crate) fn record(call: &mut Call<'_>, due: &Due<'_>, runs: &Runs) {
    let [params, robe, targets, accesses, _, scratch] = due.bindings();
    let (each, blocks) = (runs.runs.as_entire_binding(), runs.blocks.as_entire_binding());
    let bindings = [params, robe, targets, accesses, scratch, each, blocks];
    call.dispatch(&KERNEL, &bindings, &Groups::capped(due.starts(), RUNS_BLOCK));
}
