use crate::layout::{DedupInfo, NONE, Step};

/// Marks where a new key begins in the sorted keys. Mirror of `shaders/heads.wgsl`.
pub fn heads(info: &DedupInfo, step: &Step, keys: &[u32], heads: &mut [u32]) {
    let n = step.counts[info.count as usize] as usize;
    for (i, head) in heads[..info.capacity as usize].iter_mut().enumerate() {
        *head = u32::from(i < n && keys[i] != NONE && (i == 0 || keys[i - 1] != keys[i]));
    }
}
