//! Host side of `shaders/sort/scatter.wgsl`: moves keys and values to their sorted places.

use crate::gpu::{
    engine::call::{Call, Groups, kernel},
    stages::sort::space::{BLOCK, Pairs, SortScratch, Source},
};

kernel! {
    "scatter", workgroup 256,
    pass_info: Uniform,
    step: ReadWrite,
    keys_in: Read,
    values_in: Read,
    digits: Read,
    totals: Read,
    keys_out: ReadWrite,
    values_out: ReadWrite,
    next_digits: ReadWrite,
}

pub(crate) fn record(
    call: &mut Call<'_>,
    pass: &wgpu::Buffer,
    step: &wgpu::Buffer,
    from: &Source<'_>,
    (scratch, turn): (&SortScratch, usize),
    to: &Pairs<'_>,
    capacity: u32,
) {
    let bindings = Bindings {
        pass_info: pass.as_entire_binding(),
        step: step.as_entire_binding(),
        keys_in: from.keys.clone(),
        values_in: from.values.clone(),
        digits: scratch.digits[turn].as_entire_binding(),
        totals: scratch.totals.as_entire_binding(),
        keys_out: to.keys.as_entire_binding(),
        values_out: to.values.as_entire_binding(),
        next_digits: scratch.digits[1 - turn].as_entire_binding(),
    };
    let groups = Groups::capped(capacity, BLOCK);
    call.dispatch(bindings, &groups);
}
