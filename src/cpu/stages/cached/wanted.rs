//! CPU mirror of `shaders/cached/wanted.wgsl`: the rows that a caller's shaders want become the accesses of a step.

use crate::table::layout::{NONE, Params, Step, feedback as at};

/// Takes the wanted rows as the accesses of a step, and closes their frame. Mirror of `shaders/cached/wanted.wgsl`.
pub fn wanted(params: &Params, feedback: &mut [u32], step: &mut Step, keys: &mut [u32]) {
    let most = params.indices;
    let listed = feedback[at::MISSING].wrapping_add(feedback[at::PRESENT]);
    let missing = feedback[at::MISSING].min(most);
    let here = missing + feedback[at::PRESENT].min(most - missing);
    let (head, lists) = feedback.split_at_mut(at::HEAD);
    head[at::FRAME] = head[at::FRAME].wrapping_add(1);
    head[at::WANTED] = head[at::WANTED].wrapping_add(here);
    head[at::LOST] = head[at::LOST].wrapping_add(listed.wrapping_sub(here));
    step.accesses = here;
    for (i, key) in (0..most).zip(keys) {
        *key = match i {
            _ if i < missing => lists[i as usize],
            _ if i < here => lists[(most + i - missing) as usize],
            _ => NONE,
        };
    }
}
