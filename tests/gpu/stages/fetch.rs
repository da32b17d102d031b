use bytemuck::{cast_slice, cast_slice_mut};
use hotrow::{
    Context, GroupConfig, Optimizer, Precision, cpu,
    layout::{NONE, Shard},
};
use rand::RngExt as _;

use super::{
    FROZEN, Like, TRAIN, check, distinct_rows, floats, guarded, junk, layout_of, on_each, params, placed, read, rng,
    tables, words,
};

fn case(context: &Context, seed: u64, config: &GroupConfig, n: usize) -> usize {
    let mut source = rng(seed);
    let mut config = config.clone();
    config.tables = vec![1, 500, 399];
    config.cache_rows = 32 * source.random_range(0..4);
    let layout = layout_of(&config);
    let params = params(&config, &layout, [TRAIN, FROZEN][source.random_range(0..2)], 0);
    // The second of three shards.
    let (per_shard, index) = (300, 1);
    let mut rows = distinct_rows(&mut source, n, per_shard);
    rows.iter_mut().for_each(|row| *row += index * per_shard);
    rows.sort_unstable();
    // Any bits are codes and halves; floats are kept ordinary, since a driver may flush subnormals.
    let mut records = junk(&mut source, (per_shard * layout.record_words) as usize);
    for record in records.chunks_exact_mut(layout.record_words as usize) {
        let float = |word: &mut u32, low: f32, high: f32, x: u32| {
            *word = (low + (high - low) * (x as f32 / u32::MAX as f32)).to_bits();
        };
        if config.precision.is_integer() {
            float(&mut record[0], 0.0, 0.1, source.random());
            float(&mut record[1], -1.0, 1.0, source.random());
        }
        let (state, payload) = (layout.state_word as usize, layout.payload_half as usize / 2);
        if !layout.state_half {
            record[state..state + layout.state as usize].iter_mut().for_each(|x| float(x, 0.0, 2.0, source.random()));
        }
        if config.precision == Precision::Fp32 {
            record[payload..].iter_mut().for_each(|x| float(x, -2.0, 2.0, source.random()));
        }
    }
    let mut fetch_to: Vec<u32> = placed(&mut source, &rows, layout.slots()).iter().map(|one| one.slot).collect();
    fetch_to.iter_mut().for_each(|to| *to = if source.random_bool(0.2) { NONE } else { *to });
    let before = 3;
    rows.splice(0..0, [0, 1, 2]);
    // Scratch places count from this shard's first row on, as they do from the start of the list in a group.
    fetch_to.splice(0..0, [layout.slots() + 7777; 3]);
    let mut range = junk(&mut source, 6);
    range[2..4].copy_from_slice(&[before, before + n as u32]);
    let row = layout.row_words as usize;
    let bindings = [
        words(&params),
        words(&Shard { index, first_row: index * per_shard, ..Shard::default() }),
        guarded(&range),
        guarded(&rows),
        guarded(&fetch_to),
        guarded(&records),
        guarded(&floats(&mut source, layout.slots() as usize * row, 1.0)),
        guarded(&floats(&mut source, n * row, 1.0)),
        guarded(&tables(&mut source, &config.tables, 4)),
    ];
    // q * scale + bias, two roundings or one, below 27: two ULP. Otherwise bits are moved, and they stay.
    let like = if config.precision.is_integer() { Like::Within(2.0 * f32::EPSILON) } else { Like::Bits };
    let rules = [("cache", like), ("scratch", like)];
    let what = format!("seed {seed}, {n} rows, {config:?}");
    check(context, "fetch", &what, &bindings, n as u32, &rules, |b| {
        let [params, shard, range, rows, fetch_to, records, cache, scratch, tables] = b else { unreachable!() };
        let (cache, scratch) = (cast_slice_mut(cache), cast_slice_mut(scratch));
        let (params, shard) = (read(params), read(shard));
        cpu::fetch(&params, &shard, cast_slice(range), rows, fetch_to, records, cache, scratch, tables);
    })
    .changed
}

#[test]
fn matches_the_mirror() {
    on_each(|context| {
        let mut changed = 0;
        for precision in Precision::ALL {
            for optimizer in [Optimizer::sgd(0.1), Optimizer::adagrad(0.1), Optimizer::row_wise_adagrad(0.1)] {
                for (seed, dim) in [1, 3, 33, 63, 64, 65, 130].into_iter().enumerate() {
                    let config = GroupConfig { precision, optimizer, ..GroupConfig::new(&[1], dim) };
                    changed += case(context, seed as u64, &config, 40);
                }
            }
            for n in [0, 1, 2, 7] {
                changed += case(context, 9, &GroupConfig { precision, ..GroupConfig::new(&[1], 5) }, n);
            }
        }
        assert!(changed > 0);
    });
}
