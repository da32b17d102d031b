use bytemuck::{cast_slice, cast_slice_mut};
use hotrow::{Context, GroupConfig, Pooling, Precision, internals::layout::Params, internals::stages};
use rand::RngExt as _;

use super::{
    Like, TRAIN, check, guarded, junk, layout_of,
    linearize::offsets,
    on_each, params, read, rng,
    robe::{SHAPES, hashes, kept, lanes, packed, robe},
    words,
};

struct Case {
    precision: Precision,
    pooling: Pooling,
    weighted: bool,
    /// Weights are powers of two, so products are exact and the bits of a sum show its order.
    exact: bool,
    indices: u32,
    bags: u32,
    shape: [u32; 3],
}

fn run(context: &Context, seed: u64, case: &Case) -> usize {
    let &Case { precision, pooling, weighted, exact, indices, bags, shape } = case;
    let mut source = rng(seed);
    let robe = packed(precision, [16, 64, 256][seed as usize % 3], robe(shape));
    let config = GroupConfig::new(&[1500], robe.dim).with_precision(precision).with_pooling(pooling);
    let lanes = lanes(robe.dim);
    let params = Params {
        indices,
        bags,
        lanes,
        weighted: u32::from(weighted),
        ..params(&config, &layout_of(&config), TRAIN, 0)
    };
    let n = indices as usize;
    let weight = |_| match exact {
        true => [0.5, -1.0, 2.0, 4.0][source.random_range(0..4)],
        false => source.random_range(-2.0..2.0),
    };
    let weights: Vec<f32> = (0..n).map(weight).collect();
    let offsets = offsets(&mut source, bags, indices);
    let rows = if pooling == Pooling::None { indices } else { bags };
    let bindings = [
        words(&params),
        words(&robe),
        guarded(&offsets),
        guarded(&hashes(&mut source, n)),
        guarded(&weights),
        guarded(&kept(&mut source, precision.bits(), &robe)),
        guarded(&junk(&mut source, 2 * n)),
        guarded(&junk(&mut source, (rows * robe.dim) as usize)),
    ];
    let longest = offsets.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0) as f32;
    let (rounded, divided) = (f32::EPSILON * (longest + 2.0) * longest.max(1.0) * 2.0, 4.0 * f32::EPSILON);
    let mean = pooling == Pooling::Mean;
    let outputs = if (exact || !weighted) && !mean { Like::Bits } else { Like::Within(rounded) };
    let rules = [("outputs", outputs), ("access", if mean { Like::Pairs(divided) } else { Like::Bits })];
    let what = format!(
        "{precision:?}, seed {seed}, {indices} indices, {bags} bags, {robe:?}, {pooling:?}, weighted {weighted}"
    );
    let per_group = 256 / lanes * if pooling == Pooling::None { 4 } else { 1 };
    let stage = if precision == Precision::Fp32 { "robe_gather" } else { "robe_decode" };
    check(context, stage, &what, &bindings, rows.div_ceil(per_group) + 1, &rules, |b| {
        let [params, robe, offsets, hashes, weights, memory, access, outputs] = b else { unreachable!() };
        let (access, outputs) = (cast_slice_mut(access), cast_slice_mut(outputs));
        let weights = cast_slice(weights);
        stages::robe_gather(&read(params), &read(robe), offsets, hashes, weights, memory, access, outputs);
    })
    .changed
}

#[test]
pub(super) fn matches_the_mirror() {
    matches(&[Precision::Fp32]);
}

/// Runs all cases in one window and in several, with the precisions in turn.
pub(super) fn matches(precisions: &[Precision]) {
    on_each(|context| {
        let (mut changed, mut turn) = (0, precisions.iter().cycle());
        for pooling in [Pooling::Sum, Pooling::Mean, Pooling::None] {
            for weighted in [false, true] {
                // The last shape has too large an array for this test.
                for (seed, shape) in SHAPES[..8].iter().enumerate() {
                    for (indices, bags) in [(0, 1), (1, 1), (7, 9), (300, 4)] {
                        let exact = (indices + bags) % 2 == 0;
                        let precision = *turn.next().unwrap();
                        let case = Case { precision, pooling, weighted, exact, indices, bags, shape: *shape };
                        changed += run(context, seed as u64, &case);
                    }
                }
            }
        }
        assert!(changed > 0);
    });
}
