use crate::layout::{Field, NONE, Shard, Unique, way_at};

const FREQ_MAX: u32 = 0x8000_0000;

/// LFU: the frequencies of one shard's rows. Mirror of `shaders/touch.wgsl`.
pub fn touch(shard: &Shard, range: &[[u32; 2]], unique: &mut [Unique], ways: &mut [u32], freqs: &mut [u32]) {
    let [first, end] = range[shard.index as usize];
    for one in &mut unique[first as usize..end as usize] {
        let freq = &mut freqs[(one.row - shard.first_row) as usize];
        *freq = freq.wrapping_add(one.count).min(FREQ_MAX);
        one.key = *freq;
        if one.slot != NONE {
            ways[way_at(one.slot, Field::Freq)] = *freq;
        }
    }
}
