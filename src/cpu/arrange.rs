use crate::layout::{Step, Target, count};

/// The accesses in sorted order, and each distinct row with its own. Mirror of `shaders/arrange.wgsl`.
pub fn arrange(
    step: &Step,
    order: &[u32],
    segment: &[u32],
    keys: &[u32],
    places: &[u32],
    access: &[[u32; 2]],
    accesses: &mut [[u32; 2]],
    targets: &mut [Target],
) {
    let valid = step.counts[count::VALID] as usize;
    targets[0] = Target { row: step.counts[count::UNIQUE], place: valid as u32, start: step.t, end: 0 };
    for j in 0..valid {
        let i = order[j] as usize;
        accesses[j] = access[i];
        let one = &mut targets[segment[j] as usize + 1];
        if j == 0 || segment[j - 1] != segment[j] {
            (one.row, one.place, one.start) = (keys[i], places[i], j as u32);
        }
        one.end = j as u32 + 1;
    }
}
