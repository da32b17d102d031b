use crate::layout::{NONE, Params, Step, Unique, count};

/// Where each index's row is. Mirror of `shaders/locate.wgsl`.
pub fn locate(
    params: &Params,
    step: &Step,
    keys: &[u32],
    order: &[u32],
    segment: &[u32],
    unique: &[Unique],
    places: &mut [u32],
) {
    let n = params.indices as usize;
    if step.counts[count::INDICES] == 0 {
        places[..n].fill(NONE);
        return;
    }
    for j in 0..n {
        let place = if keys[j] == NONE { NONE } else { unique[segment[j] as usize].slot };
        places[order[j] as usize] = place;
    }
}
