use bytemuck::{cast_slice, cast_slice_mut};
use hotrow::{
    Context, GroupConfig, Optimizer,
    internals::layout::{Params, Unique},
    internals::stages,
};
use rand::RngExt as _;

use super::{
    ROWS, check, distinct_rows, floats, guarded, junk, layout_of, on_each, params, placed, read, rng, slot_rows,
    tables, ways, words,
};

fn run(context: &Context, seed: u64, config: &GroupConfig, n: usize) -> usize {
    let mut source = rng(seed);
    let mut config = config.clone();
    config.tables = vec![1, 500, 399];
    config.cache_rows = 32 * source.random_range(0..4);
    let layout = layout_of(&config);
    let mut rows = distinct_rows(&mut source, n, 900);
    rows.sort_unstable();
    let unique: Vec<Unique> = placed(&mut source, &rows, layout.slots());
    let places: Vec<u32> = unique.iter().map(|one| one.slot).collect();
    let dim = layout.row.dim as usize;
    let mut values = floats(&mut source, n * dim, 1.0);
    for u in 0..n {
        let bad = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, 0.0];
        if source.random_bool(0.4) {
            values[u * dim + source.random_range(0..dim)] = bad[source.random_range(0..5)];
        }
    }
    let mut data = |n: usize| slot_rows(&layout, n, || floats(&mut source, layout.row.row_words as usize, 1.0));
    let (cache, scratch) = (data(layout.slots() as usize), data(n));
    let bindings = [
        words(&Params { indices: n as u32, ..params(&config, &layout, ROWS, 0) }),
        guarded(&rows),
        guarded(&places),
        guarded(&values),
        guarded(&cache),
        guarded(&scratch),
        guarded(&ways(&mut source, layout.sets, 900, 8, 0.9)),
        guarded(&junk(&mut source, 4 * n)),
        guarded(&tables(&mut source, &config.tables, 4)),
    ];
    let what = format!("seed {seed}, {n} rows, {config:?}");
    let groups = (n as u32).div_ceil(layout.at_once()) + 1;
    // Values are copied, not computed, so their bits are the same.
    check(context, "assign", &what, &bindings, groups, &[], |b| {
        let [params, keys, places, values, cache, scratch, ways, moves, tables] = b else { unreachable!() };
        let (cache, scratch) = (cast_slice_mut(cache), cast_slice_mut(scratch));
        let (values, moves) = (cast_slice(values), cast_slice_mut(moves));
        stages::assign(&read(params), keys, places, values, cache, scratch, ways, moves, tables);
    })
    .changed
}

#[test]
pub(super) fn matches_the_mirror() {
    on_each(|context| {
        let mut changed = 0;
        for optimizer in [Optimizer::sgd(0.1), Optimizer::adagrad(0.1), Optimizer::row_wise_adagrad(0.1)] {
            for (seed, dim) in [1, 4, 5, 63, 64, 65, 130, 260].into_iter().enumerate() {
                let config = GroupConfig::new(&[1], dim).with_optimizer(optimizer);
                changed += run(context, seed as u64, &config, 50);
            }
            for n in [0, 1, 2, 3, 7] {
                changed += run(context, 11, &GroupConfig::new(&[1], 3).with_optimizer(optimizer), n);
            }
        }
        assert!(changed > 0);
    });
}
