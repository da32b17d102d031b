use bytemuck::{cast_slice, cast_slice_mut};
use hotrow::{
    Context, GroupConfig, Optimizer, Pooling,
    internals::layout::{NONE, Params},
    internals::stages,
};
use rand::RngExt as _;

use super::{
    Like, TRAIN, check, floats, guarded, junk, layout_of, linearize::offsets, on_each, params, read, rng, slot_rows,
    words,
};

struct Case {
    pooling: Pooling,
    weighted: bool,
    /// Weights are powers of two, so products are exact and the bits of a sum show its order.
    exact: bool,
    indices: u32,
    bags: u32,
    dim: u32,
    broken: bool,
}

fn run(context: &Context, seed: u64, case: &Case) -> usize {
    let &Case { pooling, weighted, exact, indices, bags, dim, broken } = case;
    let mut source = rng(seed);
    let mut config = GroupConfig::new(&[1500], dim);
    config.cache_rows = 64 * source.random_range(0..2);
    config.pooling = pooling;
    config.optimizer =
        [Optimizer::sgd(0.1), Optimizer::adagrad(0.1), Optimizer::row_wise_adagrad(0.1)][source.random_range(0..3)];
    let layout = layout_of(&config);
    let params = Params { indices, bags, weighted: u32::from(weighted), ..params(&config, &layout, TRAIN, 0) };
    let (slots, n) = (layout.slots(), indices as usize);
    let in_scratch = 20;
    let places: Vec<u32> = (0..n)
        .map(|_| if source.random_bool(0.1) { NONE } else { source.random_range(0..slots + in_scratch) })
        .collect();
    let weights: Vec<f32> = (0..n)
        .map(|_| match exact {
            true => [0.5, -1.0, 2.0, 4.0][source.random_range(0..4)],
            false => source.random_range(-2.0..2.0),
        })
        .collect();
    let mut offsets = offsets(&mut source, bags, indices);
    if broken {
        // A broken step is a no-op whose places are all NONE. But the kernel reads its offsets, and must stay within the buffers.
        offsets.iter_mut().for_each(|at| {
            if source.random_bool(0.3) {
                *at = source.random();
            }
        });
        offsets.sort_unstable();
        offsets.reverse();
    }
    let places = if broken { vec![NONE; n] } else { places };
    let rows = if pooling == Pooling::None { indices } else { bags };
    let mut slot_rows =
        |n: u32| slot_rows(&layout, n as usize, || floats(&mut source, layout.row.row_words as usize, 1.0));
    let (cache, scratch) = (slot_rows(slots), slot_rows(in_scratch));
    let bindings = [
        words(&params),
        guarded(&offsets),
        guarded(&places),
        guarded(&weights),
        guarded(&cache),
        guarded(&scratch),
        guarded(&junk(&mut source, 2 * n)),
        guarded(&junk(&mut source, (rows * dim) as usize)),
    ];
    // In a sum of m terms below 2, each rounding is off by at most half an ULP of 2 m, on either side. Mean divides once more.
    let longest = offsets.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).max().unwrap_or(0).min(indices) as f32;
    let (rounded, divided) = (f32::EPSILON * (longest + 2.0) * longest.max(1.0) * 2.0, 4.0 * f32::EPSILON);
    let mean = pooling == Pooling::Mean;
    let outputs = if exact && !mean { Like::Bits } else { Like::Within(rounded) };
    let rules = [("outputs", outputs), ("access", if mean { Like::Pairs(divided) } else { Like::Bits })];
    let what = format!("seed {seed}, {indices} indices, {bags} bags, {config:?}, weighted {weighted}");
    let per_group = layout.at_once() * if pooling == Pooling::None { 4 } else { 1 };
    check(context, "gather", &what, &bindings, rows.div_ceil(per_group) + 1, &rules, |b| {
        let [params, offsets, places, weights, cache, scratch, access, outputs] = b else { unreachable!() };
        let (access, outputs) = (cast_slice_mut(access), cast_slice_mut(outputs));
        let (weights, cache, scratch) = (cast_slice(weights), cast_slice(cache), cast_slice(scratch));
        stages::gather(&read(params), offsets, places, weights, cache, scratch, access, outputs);
    })
    .changed
}

#[test]
pub(super) fn matches_the_mirror() {
    on_each(|context| {
        let mut changed = 0;
        for pooling in [Pooling::Sum, Pooling::Mean, Pooling::None] {
            for weighted in [false, true] {
                for (seed, dim) in [1, 4, 5, 63, 64, 65, 128, 130, 260].into_iter().enumerate() {
                    for (indices, bags) in [(0, 1), (1, 1), (7, 9), (130, 1), (300, 4)] {
                        for exact in [false, true] {
                            let case = Case { pooling, weighted, exact, indices, bags, dim, broken: false };
                            changed += run(context, seed as u64, &case);
                        }
                    }
                    let case = Case { pooling, weighted, exact: true, indices: 50, bags: 12, dim, broken: true };
                    changed += run(context, seed as u64, &case);
                }
            }
        }
        assert!(changed > 0);
    });
}
