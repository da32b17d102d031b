use bytemuck::{cast_slice, cast_slice_mut};
use hotrow::{Context, GroupConfig, internals::layout::Params, internals::stages};
use rand::RngExt as _;

use super::{
    TRAIN, check, floats, guarded, layout_of,
    merge::{CHUNK, lengths},
    on_each, params, read, rng, targets_of, words,
};

fn run(context: &Context, seed: u64, lengths: &[u32], dim: u32) -> usize {
    let mut source = rng(seed);
    let config = GroupConfig::new(&[1500], dim);
    let layout = layout_of(&config);
    let (segment, targets) = targets_of(lengths, &vec![(0, 0); lengths.len()]);
    let tiles = (segment.len() as u32).div_ceil(CHUNK);
    let partials = source.random_range(0..20);
    let before = floats(&mut source, (partials * layout.width() + 2 * tiles * dim) as usize, 1.0);
    let bindings = [
        words(&Params { partials, ..params(&config, &layout, TRAIN, 0) }),
        guarded(&targets),
        guarded(&segment),
        guarded(&before),
    ];
    let what = format!("seed {seed}, {lengths:?}, dim {dim}");
    let groups = [1, tiles.max(1)][source.random_range(0..2)];
    // Sums in a given order have the same bits.
    let run = check(context, "combine", &what, &bindings, groups, &[], |b| {
        let [params, targets, segment, scratch] = b else { unreachable!() };
        stages::combine(&read(params), cast_slice(targets), segment, cast_slice_mut(scratch));
    });
    // Checked without the mirror: the total of a row's chunks, in FP64.
    let after: &[f32] = cast_slice(&run.found[3]);
    let partial = |row: u32, e: u32| ((partials * layout.width()) + row * dim + e) as usize;
    for one in targets[1..].iter().filter(|one| one.end - one.start > CHUNK) {
        let tile = one.start / CHUNK;
        for e in 0..dim {
            let chunk = |k: u32| f64::from(before[partial(if k == 0 { 2 * tile + 1 } else { 2 * (tile + k) }, e)]);
            let chunks = (one.end - one.start).div_ceil(CHUNK);
            let total: f64 = (0..chunks).map(chunk).sum();
            let found = f64::from(after[partial(2 * tile + 1, e)]);
            assert!((found - total).abs() <= 1e-6 * f64::from(chunks), "{what}: {found} for {total}");
        }
    }
    run.changed
}

#[test]
pub(super) fn matches_the_mirror() {
    on_each(|context| {
        let mut changed = 0;
        for (seed, lengths) in (0..).zip(lengths(&mut rng(1))) {
            for dim in [1, 4, 5, 64, 65, 128, 130, 260] {
                changed += run(context, seed, &lengths, dim);
            }
        }
        changed += run(context, 99, &[3, 100_000, 150], 4);
        assert!(changed > 0);
    });
}
