use bytemuck::{cast_slice, cast_slice_mut};
use hotrow::{Context, GroupConfig, Pooling, Precision, internals::layout::Params, internals::stages};

use rand::RngExt as _;

use super::{
    Like, TRAIN, check, floats, gradients, guarded, junk, layout_of,
    linearize::offsets,
    on_each, params, read, rng,
    robe::{SHAPES, hashes, kept, lanes, packed, robe},
    weight_gradient::{access, as_floats},
    words,
};

fn run(
    context: &Context,
    seed: u64,
    precision: Precision,
    pooling: Pooling,
    sizes: (u32, u32),
    shape: [u32; 3],
) -> usize {
    let (indices, bags) = sizes;
    let mut source = rng(seed);
    let robe = packed(precision, [16, 64, 256][seed as usize % 3], robe(shape));
    let config = GroupConfig::new(&[1500], robe.dim).with_precision(precision).with_pooling(pooling);
    let lanes = lanes(robe.dim);
    let half = source.random_bool(0.5);
    let params =
        Params { indices, bags, lanes, half_grads: u32::from(half), ..params(&config, &layout_of(&config), TRAIN, 0) };
    let n = indices as usize;
    let offsets = offsets(&mut source, bags, indices);
    let access = access(&mut source, pooling, &offsets);
    let rows = if pooling == Pooling::None { indices } else { bags };
    let bindings = [
        words(&params),
        words(&robe),
        guarded(&offsets),
        guarded(&access),
        guarded(&hashes(&mut source, n)),
        guarded(&kept(&mut source, precision.bits(), &robe)),
        gradients(&floats(&mut source, (rows * robe.dim) as usize, 1.0), half),
        guarded(&junk(&mut source, n)),
    ];
    // Products below 4, each rounded once, and once in each sum that it is part of.
    let like = Like::Within(f32::EPSILON * (robe.dim as f32 + 4.0) * robe.dim as f32);
    let what =
        format!("{precision:?}, seed {seed}, {indices} indices, {bags} bags, half {half}, {robe:?}, {pooling:?}");
    let groups = indices.div_ceil(256 / lanes) + 1;
    check(context, "robe_weight_gradient", &what, &bindings, groups, &[("grad_weights", like)], |b| {
        let [params, robe, offsets, access, hashes, memory, grads, found] = b else { unreachable!() };
        let (access, params, found) = (cast_slice(access), &read(params), cast_slice_mut(found));
        let grads = as_floats(grads, params);
        stages::robe_weight_gradient(params, &read(robe), offsets, access, hashes, memory, &grads, found);
    })
    .changed
}

#[test]
pub(super) fn matches_the_mirror() {
    on_each(|context| {
        let mut changed = 0;
        for pooling in [Pooling::Sum, Pooling::Mean, Pooling::None] {
            for precision in Precision::ALL {
                // The last shape has too large an array for this test.
                for (seed, shape) in SHAPES[..8].iter().enumerate() {
                    for sizes in [(0, 1), (7, 9), (300, 4)] {
                        changed += run(context, seed as u64, precision, pooling, sizes, *shape);
                    }
                }
            }
        }
        assert!(changed > 0);
    });
}
