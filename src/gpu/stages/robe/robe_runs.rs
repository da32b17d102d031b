//! Host side of `shaders/robe/robe_runs.wgsl`: finds the weights of a sparse gradient.

use crate::gpu::{
    engine::call::{Call, Groups, kernel},
    stages::robe::space::{Due, RUNS_BLOCK, Runs},
};

kernel! {
    "robe_runs", workgroup 256,
    params: Uniform,
    robe: Uniform,
    targets: Read,
    accesses: Read,
    scratch: Read,
    runs: ReadWrite,
    blocks: ReadWrite,
}

pub(crate) fn record(call: &mut Call<'_>, due: &Due<'_>, runs: &Runs) {
    let bindings = Bindings {
        params: due.uniforms.params.as_entire_binding(),
        robe: due.uniforms.robe.as_entire_binding(),
        targets: due.scratch.targets.as_entire_binding(),
        accesses: due.scratch.accesses.as_entire_binding(),
        scratch: due.scratch.scratch.as_entire_binding(),
        runs: runs.runs.as_entire_binding(),
        blocks: runs.blocks.as_entire_binding(),
    };
    call.dispatch(bindings, &Groups::capped(due.starts(), RUNS_BLOCK));
}
