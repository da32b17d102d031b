use bytemuck::{cast_slice, cast_slice_mut};
use hotrow::{
    Context, GroupConfig, Optimizer, Pooling,
    internals::layout::{NONE, Params},
    internals::stages,
};
use rand::RngExt as _;

use super::{
    Like, TRAIN, check, floats, gradients, guarded, junk, layout_of, linearize::offsets, on_each, params, read, rng,
    slot_rows, words,
};

/// For each index its output row, and a coefficient that the stage does not read.
pub(super) fn access(source: &mut impl rand::Rng, pooling: Pooling, offsets: &[u32]) -> Vec<u32> {
    let bags = (0..).zip(offsets.windows(2));
    let bag_of = bags.flat_map(|(bag, pair)| (pair[0]..pair[1]).map(move |_| bag));
    (0..).zip(bag_of).flat_map(|(i, bag)| [if pooling == Pooling::None { i } else { bag }, source.random()]).collect()
}

/// The floats of words that [`gradients`] made, for a mirror that takes floats. Halves stand for themselves.
pub(super) fn as_floats(words: &[u32], params: &Params) -> Vec<f32> {
    match params.half_grads {
        1 => cast_slice::<u32, u16>(words).iter().map(|&half| half::f16::from_bits(half).to_f32()).collect(),
        _ => cast_slice(words).to_vec(),
    }
}

/// Values whose products and sums FP32 holds exactly: multiples of 1/8 below 4.
pub(super) fn eighths(source: &mut impl rand::Rng, n: usize) -> Vec<f32> {
    (0..n).map(|_| source.random_range(-31i8..32)).map(|x| f32::from(x) / 8.0).collect()
}

fn run(
    context: &Context,
    seed: u64,
    (pooling, exact): (Pooling, bool),
    (indices, bags, dim): (u32, u32, u32),
) -> usize {
    let mut source = rng(seed);
    let mut config = GroupConfig::new(&[1500], dim).with_pooling(pooling);
    config.cache_rows = 64 * source.random_range(0..2);
    config.optimizer =
        [Optimizer::sgd(0.1), Optimizer::adagrad(0.1), Optimizer::row_wise_adagrad(0.1)][source.random_range(0..3)];
    let layout = layout_of(&config);
    // Multiples of 1/8 below 4 are halves too.
    let half = source.random_bool(0.5);
    let params = Params { indices, bags, half_grads: u32::from(half), ..params(&config, &layout, TRAIN, 0) };
    let (slots, n, in_scratch) = (layout.slots(), indices as usize, 20);
    let places: Vec<u32> = (0..n)
        .map(|_| if source.random_bool(0.1) { NONE } else { source.random_range(0..slots + in_scratch) })
        .collect();
    let offsets = offsets(&mut source, bags, indices);
    let access = access(&mut source, pooling, &offsets);
    let rows = if pooling == Pooling::None { indices } else { bags };
    let mut values = |n: usize| if exact { eighths(&mut source, n) } else { floats(&mut source, n, 1.0) };
    let mut slot_rows = |n: u32| slot_rows(&layout, n as usize, || values(layout.row.row_words as usize));
    let (cache, scratch) = (slot_rows(slots), slot_rows(in_scratch));
    let bindings = [
        words(&params),
        guarded(&offsets),
        guarded(&access),
        guarded(&places),
        guarded(&cache),
        guarded(&scratch),
        gradients(&values((rows * dim) as usize), half),
        guarded(&junk(&mut source, n)),
    ];
    // Products below 1, each rounded once, and once in each sum that it is part of; mean divides once more.
    let rounded = Like::Within(f32::EPSILON * (dim as f32 + 4.0) * dim as f32);
    let mean = pooling == Pooling::Mean;
    let like = if !exact {
        rounded
    } else if mean {
        Like::Within(4.0 * f32::EPSILON)
    } else {
        Like::Bits
    };
    let what = format!("seed {seed}, {indices} indices, {bags} bags, half {half}, {config:?}");
    let groups = indices.div_ceil(layout.at_once()) + 1;
    check(context, "weight_gradient", &what, &bindings, groups, &[("grad_weights", like)], |b| {
        let [params, offsets, access, places, cache, scratch, grads, found] = b else { unreachable!() };
        let (cache, scratch, access) = (cast_slice(cache), cast_slice(scratch), cast_slice(access));
        let (params, found) = (&read(params), cast_slice_mut(found));
        let grads = as_floats(grads, params);
        stages::weight_gradient(params, offsets, access, places, cache, scratch, &grads, found);
    })
    .changed
}

#[test]
pub(super) fn matches_the_mirror() {
    on_each(|context| {
        let mut changed = 0;
        for pooling in [Pooling::Sum, Pooling::Mean, Pooling::None] {
            for (seed, dim) in [1, 2, 4, 5, 63, 64, 65, 128, 260].into_iter().enumerate() {
                for (indices, bags) in [(0, 1), (1, 1), (7, 9), (130, 1), (300, 4)] {
                    for exact in [false, true] {
                        changed += run(context, seed as u64, (pooling, exact), (indices, bags, dim));
                    }
                }
            }
        }
        assert!(changed > 0);
    });
}
