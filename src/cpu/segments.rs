use crate::layout::{DedupInfo, NONE, Step};

/// From scanned heads to the segment of each key and the start of each distinct key. Mirror of `shaders/segments.wgsl`.
pub fn segments(info: &DedupInfo, step: &mut Step, keys: &[u32], segment: &mut [u32], starts: &mut [u32]) {
    let n = step.counts[info.count as usize] as usize;
    for i in 0..n {
        if keys[i] == NONE {
            continue;
        }
        let head = i == 0 || keys[i - 1] != keys[i];
        let last = i + 1 == n || keys[i + 1] == NONE;
        let here = if head { segment[i] } else { segment[i] - 1 };
        segment[i] = here;
        if head {
            starts[here as usize] = i as u32;
        }
        if last {
            step.counts[info.segments as usize] = here + 1;
            step.counts[info.valid as usize] = i as u32 + 1;
        }
    }
}
