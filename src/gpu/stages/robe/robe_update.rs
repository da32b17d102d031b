//! Host side of `shaders/robe/robe_update.wgsl`: the weights that chunks cover.

use crate::{
    gpu::{
        engine::call::{Call, Groups},
        stages::robe::{array::Array, space::Due},
    },
    table::layout::Robe,
    wgsl::{
        Access::{Read, ReadWrite, Uniform},
        Kernel,
    },
};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "robe_update",
    workgroup: 256,
    bindings: &[
        (Uniform, "params"),
        (Uniform, "robe"),
        (Read, "targets"),
        (Read, "accesses"),
        (Read, "grad_outputs"),
        (Read, "scratch"),
        (ReadWrite, "memory"),
        (ReadWrite, "states"),
        (ReadWrite, "tables"),
    ],
};

/// `kernel` is this stage, or `robe_blocks` for a packed array: a dispatch for each window of the array.
pub(crate) fn record(call: &mut Call<'_>, kernel: &Kernel, due: &Due<'_>, array: &Array) {
    for (k, (memory, states)) in (0..).zip(array.memory.iter().zip(&array.states)) {
        let robe = Robe { first: k * due.robe.window, ..due.robe };
        let other = (k > 0).then(|| call.context.uniform(&robe));
        let [params, first, targets, accesses, grad_outputs, scratch] = due.bindings();
        let bindings = [
            params,
            other.as_ref().map_or(first, wgpu::Buffer::as_entire_binding),
            targets,
            accesses,
            grad_outputs,
            scratch,
            memory.as_entire_binding(),
            states.as_entire_binding(),
            array.tables.as_entire_binding(),
        ];
        // An invocation a weight of the window where all of them may be gone over, which only the device knows: as many as the starts
        // want if they are not. Else the starts, or the blocks that their chunks may reach.
        let starts = due.starts();
        let groups = if starts >= robe.dense_from {
            Groups::capped(robe.window.min(robe.weights - robe.first), 256)
        } else if array.storage.plain() {
            Groups::capped(starts, starts_at_once(robe.reach))
        } else {
            let unit = array.storage.unit();
            let reached = u64::from(starts) * u64::from(((robe.reach + unit - 2) / unit + 1) * unit);
            Groups::Capped(reached.div_ceil(256))
        };
        call.dispatch(kernel, &bindings, &groups);
    }
}

/// Starts whose weights a workgroup moves at once: they own at most as many as eight times the invocations.
fn starts_at_once(reach: u32) -> u32 {
    256 / (1 << reach.ilog2()).min(8)
}
