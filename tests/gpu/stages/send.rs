use bytemuck::cast_slice;
use hotrow::{
    Context, GroupConfig, Optimizer, Precision,
    internals::layout::{Params, Shard, Unique},
    internals::stages,
};
use rand::RngExt as _;

use super::{
    ROWS, check, distinct_rows, exchange::some_records, floats, guarded, junk, layout_of, on_each, params, placed,
    read, rng, slot_rows, ways, words,
};

/// The rows of the bound shard are the middle third.
fn run(context: &Context, seed: u64, config: &GroupConfig, n: usize) -> [usize; 4] {
    let mut source = rng(seed);
    let mut config = config.clone();
    config.tables = vec![1, 500, 399];
    config.cache_rows = 32 * source.random_range(0..8);
    let layout = layout_of(&config);
    let mut rows = distinct_rows(&mut source, n, 900);
    rows.sort_unstable();
    let unique: Vec<Unique> = placed(&mut source, &rows, layout.slots());
    let places: Vec<u32> = unique.iter().map(|one| one.slot).collect();
    let mut data = |n: usize| slot_rows(&layout, n, || floats(&mut source, layout.row.row_words as usize, 1.0));
    let (cache, scratch) = (data(layout.slots() as usize), data(n));
    let (dim, record_words) = (layout.row.dim as usize, layout.row.record_words as usize);
    let bindings = [
        words(&Params { indices: n as u32, ..params(&config, &layout, ROWS, 0) }),
        words(&Shard { first_row: 300, rows: 300, rows_each: 300, ..Shard::default() }),
        guarded(&rows),
        guarded(&places),
        guarded(&some_records(&mut source, &layout, 300)),
        guarded(&cache),
        guarded(&scratch),
        guarded(&ways(&mut source, layout.sets, 900, 8, 0.9)),
        guarded(&junk(&mut source, n * (1 + dim.max(record_words)))),
    ];
    let what = format!("seed {seed}, {n} rows, {config:?}");
    let groups = (n as u32).div_ceil(layout.at_once()) + 1;
    let run = check(context, "send", &what, &bindings, groups, &[], |b| {
        let [params, shard, keys, places, records, cache, _, ways, sent] = b else { unreachable!() };
        stages::send(&read(params), &read(shard), keys, places, records, cast_slice(cache), ways, sent);
    });
    let mut kinds = [run.changed, 0, 0, 0];
    for (i, entry) in run.found[8].chunks_exact(1 + dim.max(record_words)).take(n).enumerate() {
        let here = (300..600).contains(&rows[i]);
        kinds[if entry[0] == 0 { 1 } else { 3 - usize::from(here) }] += 1;
    }
    kinds
}

#[test]
pub(super) fn matches_the_mirror() {
    on_each(|context| {
        let mut kinds = [0; 4];
        let mut add = |found: [usize; 4]| kinds.iter_mut().zip(found).for_each(|(sum, one)| *sum += one);
        for precision in Precision::ALL {
            for optimizer in [Optimizer::sgd(0.1), Optimizer::adagrad(0.1), Optimizer::row_wise_adagrad(0.1)] {
                for (seed, dim) in [1, 4, 5, 63, 64, 65, 130, 260].into_iter().enumerate() {
                    let config = GroupConfig::new(&[1], dim).with_precision(precision).with_optimizer(optimizer);
                    add(run(context, seed as u64, &config, 50));
                }
            }
            for n in [0, 1, 2, 3, 7] {
                add(run(context, 11, &GroupConfig::new(&[1], 3).with_precision(precision), n));
            }
        }
        assert!(
            kinds.iter().all(|&kind| kind > 20),
            "changed words, dirty rows, records here, records elsewhere: {kinds:?}"
        );
    });
}
