use bytemuck::{cast_slice, cast_slice_mut};
use hotrow::{
    AddBody, Context, GroupConfig, Optimizer, Pooling, ScalerState, internals::layout::Params, internals::stages,
};
use rand::RngExt as _;

use super::{
    Like, TRAIN, check, floats, gradients, gradients_of, guarded, layout_of, on_each, params, read, rng,
    robe::{SHAPES, hashes, robe, with_states},
    words,
};
use hotrow_harness::device::{again, options};

fn run(context: &Context, seed: u64, n: u32, shape: [u32; 3]) -> usize {
    let mut source = rng(seed);
    let outputs = source.random_range(1..20);
    let (half, exact, overflow) = (source.random_bool(0.4), source.random_bool(0.5), source.random_bool(0.1));
    let optimizer = Optimizer::sgd(0.1).with_weight_decay([0.0, 0.1][source.random_range(0..2)]);
    let robe = with_states(32, optimizer, robe(shape));
    let pooling = [Pooling::Sum, Pooling::None, Pooling::Mean][source.random_range(0..3)];
    let config = GroupConfig::new(&[1500], robe.dim).with_pooling(pooling).with_optimizer(optimizer);
    let params = Params {
        indices: n,
        weighted: source.random_range(0..2),
        half_grads: u32::from(half),
        ..params(&config, &layout_of(&config), TRAIN, 0)
    };
    let access: Vec<[u32; 2]> = (0..n)
        .map(|_| [source.random_range(0..outputs), [0.5f32, -1.0, 2.0][source.random_range(0..3)].to_bits()])
        .collect();
    let mut grads = floats(&mut source, (outputs * robe.dim) as usize, 2.0);
    if exact {
        // Sums of whole numbers times powers of two have the same bits in any order.
        grads.iter_mut().for_each(|g| *g = (*g * 8.0).round());
    }
    let mut rows = hashes(&mut source, n as usize);
    // Every other access goes to one row.
    let hot = rows.first().copied();
    rows.iter_mut().step_by(2).zip(hot.iter().cycle()).for_each(|(row, &hot)| *row = hot);
    let scaler = ScalerState { inverse: 0.5, overflow: u32::from(overflow), ..ScalerState::default() };
    let marks = robe.weights.div_ceil(32) as usize;
    let bindings = [
        words(&params),
        words(&robe),
        words(&scaler),
        guarded(&rows),
        guarded(&access),
        gradients(&grads, half),
        guarded(&vec![0.0f32; robe.weights as usize]),
        guarded(&vec![0u32; marks]),
    ];
    // A weight's sum has some 300 terms below 4: 300 roundings of numbers below 1200.
    let like = if exact { Like::Bits } else { Like::Within(0.03) };
    let what = format!("seed {seed}, {n} accesses, {robe:?}, exact {exact}, overflow {overflow}");
    let groups = [1, (n * robe.dim).div_ceil(256).max(1)][source.random_range(0..2)];
    check(context, "robe_scatter", &what, &bindings, groups, &[("sums", like)], |b| {
        let [params, robe, scaler, hashes, access, grads, sums, covered] = b else { unreachable!() };
        let params = read(params);
        let (grads, access, sums) = (gradients_of(grads, &params), cast_slice(access), cast_slice_mut(sums));
        stages::robe_scatter(&params, &read(robe), &read(scaler), hashes, access, grads, sums, covered);
    })
    .changed
}

#[test]
pub(super) fn matches_the_mirror() {
    on_each(|context| {
        let exchange = again(&options().add(AddBody::Exchange));
        for context in [context, &exchange] {
            let (mut changed, mut seed) = (0, 0);
            // The last two shapes have too large an array for this test.
            for shape in &SHAPES[..7] {
                for n in [0, 1, 3, 40, 300] {
                    seed += 1;
                    changed += run(context, seed, n, *shape);
                }
            }
            assert!(changed > 0);
        }
    });
}
