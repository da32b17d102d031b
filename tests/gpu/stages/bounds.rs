use bytemuck::cast_slice_mut;
use hotrow::{
    cpu,
    layout::{BoundsInfo, NONE, count},
};
use rand::RngExt as _;

use super::{check, guarded, junk, of, on_each, read, rng, step, words};

#[test]
fn matches_the_mirror() {
    on_each(|context| {
        let mut changed = 0;
        // Around a workgroup's 64 shards; the last two reach to the end of the row numbers.
        let cuts = [(1, 5000), (2, 700), (63, 80), (64, 80), (65, 80), (200, 7), (3, 0x6000_0000), (2, u32::MAX - 1)];
        for (seed, (shards, rows_per_shard)) in cuts.into_iter().enumerate() {
            for n in [0usize, 1, 64, 3000] {
                for left_out in [0, n / 4, n] {
                    let mut source = rng(seed as u64);
                    let top = (u64::from(shards) * u64::from(rows_per_shard)).min(u64::from(NONE) - 1) as u32;
                    let mut rows: Vec<u32> = (0..n).map(|_| source.random_range(0..top)).collect();
                    // The first and the last row of a shard.
                    rows.iter_mut().step_by(5).for_each(|row| *row -= *row % rows_per_shard);
                    rows.iter_mut().skip(1).step_by(5).for_each(|row| {
                        *row = (*row - *row % rows_per_shard).saturating_add(rows_per_shard - 1).min(top);
                    });
                    let sorted = shards > 1 || source.random_bool(0.5);
                    if sorted {
                        rows.sort_unstable();
                        rows[n - left_out..].fill(NONE);
                    }
                    let which = [count::UNIQUE, count::SLOTS][seed % 2];
                    let info = BoundsInfo {
                        shards,
                        rows_per_shard,
                        count: which as u32,
                        sorted: u32::from(sorted),
                        per_group: [1, 64][source.random_range(0..2)],
                        max_groups: [3, 65535][source.random_range(0..2)],
                        ..BoundsInfo::default()
                    };
                    let step = step(&mut source, 2, &[(which, n as u32)]);
                    rows.extend(junk(&mut source, 3)); // room that is not used
                    let bindings = [
                        words(&info),
                        words(&step),
                        guarded(&rows),
                        guarded(&junk(&mut source, 2 * shards as usize)),
                        guarded(&junk(&mut source, 3 * shards as usize)),
                    ];
                    let case = format!("{n} rows, {left_out} left out, {info:?}");
                    changed += check(context, "bounds", &case, &bindings, shards.div_ceil(64), &[], |b| {
                        let [info, step, rows, range, groups_of] = b else { unreachable!() };
                        cpu::bounds(&read(info), of(step), rows, cast_slice_mut(range), groups_of);
                    })
                    .changed;
                }
            }
        }
        assert!(changed > 0);
    });
}
