use bytemuck::cast_slice_mut;
use hotrow::{
    cpu,
    layout::{NONE, Shard, Unique},
};
use rand::RngExt as _;

use super::{check, distinct_rows, guarded, junk, on_each, read, rng, slot_of, ways, words};

#[test]
fn matches_the_mirror() {
    on_each(|context| {
        let (mut changed, mut saturated) = (0, 0);
        for seed in 0..5 {
            for n in [0usize, 1, 63, 64, 65, 500] {
                let mut source = rng(seed);
                let (per_shard, index) = (700u32, source.random_range(0..3u32));
                let sets = source.random_range(0..4);
                let ways = ways(&mut source, sets, 3 * per_shard, 8, 0.6);
                let mut rows = distinct_rows(&mut source, n, per_shard);
                rows.sort_unstable();
                let (before, after) = (source.random_range(0..5), source.random_range(0..5));
                let mut unique: Vec<Unique> = rows
                    .iter()
                    .map(|&row| {
                        let row = row + index * per_shard;
                        let count = [1, 3, 1 << 30][source.random_range(0..3)];
                        Unique { row, count, key: count, slot: slot_of(&ways, sets, row) }
                    })
                    .collect();
                // Rows of the other shards stand before and behind, and are none of this one's business.
                let other = Unique { row: 7777, count: 5, key: 6, slot: NONE };
                unique.splice(0..0, vec![other; before]);
                unique.extend(vec![other; after]);
                let mut range = junk(&mut source, 6);
                range[2 * index as usize..][..2].copy_from_slice(&[before as u32, (before + n) as u32]);
                let freqs: Vec<u32> = (0..per_shard)
                    .map(|_| [0, 5, (1 << 31) - 1, (1 << 31) - 3, 1 << 31][source.random_range(0..5)])
                    .collect();
                let bindings = [
                    words(&Shard { index, first_row: index * per_shard, ..Shard::default() }),
                    guarded(&range),
                    guarded(&unique),
                    guarded(&ways),
                    guarded(&freqs),
                ];
                let groups = n.div_ceil(64) as u32;
                let run = check(context, "touch", &format!("seed {seed}, {n} rows"), &bindings, groups, &[], |b| {
                    let [shard, range, unique, ways, freqs] = b else { unreachable!() };
                    let (range, unique) = (cast_slice_mut(range), cast_slice_mut(unique));
                    cpu::touch(&read(shard), range, unique, ways, freqs);
                });
                changed += run.changed;
                saturated += run.found[4].iter().zip(&freqs).filter(|&(&a, &b)| a == 1 << 31 && b != a).count();
            }
        }
        assert!(changed > 0 && saturated > 0);
    });
}
