use crate::layout::{BoundsInfo, NONE, Step};

/// Which part of an ascending list of rows lies in each shard. Mirror of `shaders/bounds.wgsl`.
pub fn bounds(info: &BoundsInfo, step: &Step, rows: &[u32], range: &mut [[u32; 2]], groups_of: &mut [u32]) {
    let n = step.counts[info.count as usize];
    let lower_bound = |row: u32| rows[..n as usize].partition_point(|&other| other < row) as u32;
    for shard in 0..info.shards {
        let (mut low, mut high) = (0, n);
        if info.sorted == 1 {
            low = lower_bound(shard * info.rows_per_shard);
            let past = if shard + 1 < info.shards { (shard + 1) * info.rows_per_shard } else { NONE };
            high = lower_bound(past);
        }
        let at = shard as usize;
        range[at] = [low, high];
        let groups = (high - low).div_ceil(info.per_group);
        let x = groups.min(info.max_groups);
        groups_of[3 * at] = x;
        groups_of[3 * at + 1] = if x > 0 { groups.div_ceil(x) } else { 0 };
        groups_of[3 * at + 2] = 1;
    }
}
