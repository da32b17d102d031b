//! CPU mirror of `shaders/cached/wanted.wgsl`: the rows that a caller's shaders want become the accesses of a step.

use crate::table::layout::{NONE, Params, Step, feedback as at};

/// Takes the wanted rows as the accesses of a step, and closes their frame. Mirror of `shaders/cached/wanted.wgsl`.
pub fn wanted(params: &Params, feedback: &mut [u32], step: &mut Step, keys: &mut [u32]) {
    let listed = feedback[at::LISTED];
    let here = listed.min(params.indices);
    let (head, list) = feedback.split_at_mut(at::HEAD);
    head[at::FRAME] = head[at::FRAME].wrapping_add(1);
    head[at::WANTED] = head[at::WANTED].wrapping_add(here);
    head[at::LOST] = head[at::LOST].wrapping_add(listed - here);
    step.accesses = here;
    for (i, key) in (0..params.indices).zip(keys) {
        *key = if i < here { list[i as usize] } else { NONE };
    }
}
