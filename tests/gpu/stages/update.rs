use bytemuck::{cast_slice, cast_slice_mut};
use hotrow::{
    Context, GroupConfig, Layout, Optimizer, cpu,
    layout::{NONE, Params, Unique, count},
};
use rand::RngExt as _;

use super::{
    Like, TRAIN, check, distinct_rows, floats, guarded, junk, layout_of, of, on_each, params, placed, read, rng, step,
    tables, ways, words,
};

/// What update and assign write, besides what the test gives them to write from.
pub(super) struct Rows {
    pub(super) layout: Layout,
    pub(super) params: Params,
    /// Bindings 1 and 2, then 4 to 8: step, unique, cache, scratch, ways, sources, tables.
    pub(super) arrays: [Vec<u32>; 7],
    /// Where each row's floats begin: in the cache, or in scratch.
    pub(super) place: Vec<(bool, usize)>,
}

/// `n` rows of three tables, some resident, some bypassed, in a call that has room for three more.
pub(super) fn rows(seed: u64, config: &GroupConfig, n: usize) -> Rows {
    let mut source = rng(seed);
    let mut config = config.clone();
    config.tables = vec![1, 500, 399];
    config.cache_rows = 32 * source.random_range(0..4);
    let layout = layout_of(&config);
    let mut rows = distinct_rows(&mut source, n, 900);
    rows.sort_unstable();
    let (slots, row) = (layout.slots(), layout.row_words as usize);
    let mut unique = placed(&mut source, &rows, slots);
    let place: Vec<(bool, usize)> = unique
        .iter()
        .map(|one| match one.slot < slots {
            true => (false, one.slot as usize * row),
            false => (true, (one.slot - slots) as usize * row),
        })
        .collect();
    unique.extend([Unique::default(); 3]);
    // The state is a sum of squares: not negative, and not so small that its root tells roundings apart.
    let mut data = |rows: usize| {
        let mut data = floats(&mut source, rows * row, 1.0);
        for row in data.chunks_exact_mut(row) {
            row[layout.dim as usize..].iter_mut().for_each(|x| *x = x.abs() + 0.05);
        }
        data
    };
    let (cache, scratch) = (data(slots as usize), data(n));
    let arrays = [
        words(&step(&mut source, 4, &[(count::UNIQUE, n as u32)])),
        guarded(&unique),
        guarded(&cache),
        guarded(&scratch),
        guarded(&ways(&mut source, layout.sets, 900, 8, 0.9)),
        guarded(&junk(&mut source, n + 3)),
        guarded(&tables(&mut source, &config.tables, 4)),
    ];
    Rows { params: params(&config, &layout, TRAIN, 0), layout, arrays, place }
}

fn run(context: &Context, seed: u64, config: &GroupConfig, n: usize, skipped: &mut usize) -> usize {
    let mut source = rng(seed ^ 77);
    let Rows { layout, params, arrays, place } = rows(seed, config, n);
    let [step, unique, mut cache, mut scratch, ways, sources, tables] = arrays;
    let dim = layout.dim as usize;
    let mut grads = floats(&mut source, (n + 3) * dim, 1.0);
    for (u, &(bypass, base)) in place.iter().enumerate() {
        let e = source.random_range(0..dim);
        let target = if bypass { &mut scratch } else { &mut cache };
        // Every way a row can go wrong, and some that look alike and do not.
        match source.random_range(0..14) {
            0 => grads[u * dim + e] = f32::NAN,
            1 => grads[u * dim + e] = f32::NEG_INFINITY,
            2 => target[base + e] = f32::INFINITY.to_bits(),
            3 if layout.state > 0 => target[base + dim] = f32::NAN.to_bits(),
            4 if layout.state == 0 => {
                target[base + e] = f32::MAX.to_bits();
                grads[u * dim + e] = f32::MIN;
            }
            5 if layout.state > 0 => grads[u * dim + e] = 1e25, // its square is no float
            6 => grads[u * dim..][..dim].fill(0.0),
            _ => {}
        }
    }
    let bindings = [words(&params), step, unique, guarded(&grads), cache, scratch, ways, sources, tables];
    // A root, a quotient and a few sums of numbers near 1; row-wise also a mean, in 64 sums and a tree on both sides.
    let like = Like::Within(32.0 * f32::EPSILON);
    let what = format!("seed {seed}, {n} rows, {config:?}");
    let run = check(context, "update", &what, &bindings, n as u32 + 3, &[("cache", like), ("scratch", like)], |b| {
        let [params, step, unique, grads, cache, scratch, ways, sources, tables] = b else { unreachable!() };
        let (cache, scratch) = (cast_slice_mut(cache), cast_slice_mut(scratch));
        let (unique, grads) = (cast_slice(unique), cast_slice(grads));
        cpu::update(&read(params), of(step), unique, grads, cache, scratch, ways, sources, tables);
    });
    // Said without the mirror: a refused row keeps its bits. In scratch it is told by its source.
    for (u, &(bypass, base)) in place.iter().enumerate() {
        if bypass && run.found[7][u] == NONE {
            let range = base..base + layout.row_words as usize;
            assert_eq!(run.found[5][range.clone()], bindings[5][range], "{what}: row {u} moved");
            *skipped += 1;
        }
    }
    run.changed
}

#[test]
fn matches_the_mirror() {
    on_each(|context| {
        let (mut changed, mut skipped) = (0, 0);
        for mut optimizer in [Optimizer::sgd(0.1), Optimizer::adagrad(0.1), Optimizer::row_wise_adagrad(0.1)] {
            for weight_decay in [0.0, 0.01] {
                optimizer.weight_decay = weight_decay;
                optimizer.eps = 1e-3;
                for (seed, dim) in [1, 5, 63, 64, 65, 130, 200].into_iter().enumerate() {
                    let config = GroupConfig { optimizer, ..GroupConfig::new(&[1], dim) };
                    changed += run(context, seed as u64, &config, 60, &mut skipped);
                }
                for n in [0, 1, 2, 3, 7] {
                    let config = GroupConfig { optimizer, ..GroupConfig::new(&[1], 3) };
                    changed += run(context, 11, &config, n, &mut skipped);
                }
            }
        }
        assert!(changed > 0 && skipped > 100, "{changed} words, {skipped} rows skipped");
    });
}
