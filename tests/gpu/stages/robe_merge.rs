use bytemuck::{cast_slice, cast_slice_mut};
use hotrow::{Context, GroupConfig, Pooling, internals::layout::Params, internals::stages};
use rand::RngExt as _;

use super::{
    TRAIN, check, floats, gradients, gradients_of, guarded, junk, layout_of,
    merge::{CHUNK, lengths},
    on_each, params, read, rng,
    robe::{SHAPES, chunks, lanes, robe},
    words,
};

fn run(context: &Context, seed: u64, lengths: &[u32], shape: [u32; 3]) -> usize {
    let mut source = rng(seed);
    let robe = robe(shape);
    let outputs = source.random_range(1..20);
    let half = source.random_bool(0.4);
    let inverse: f32 = [1.0, 0.5, 2f32.powi(-10)][source.random_range(0..3)];
    let mut sorted = chunks(&mut source, &robe, lengths, outputs);
    sorted.targets[0].end = inverse.to_bits();
    let config = GroupConfig::new(&[1500], robe.dim)
        .with_pooling([Pooling::Sum, Pooling::None, Pooling::Mean][source.random_range(0..3)]);
    let width = robe.reach + 1;
    let lanes = lanes(width);
    let tiles = (sorted.segment.len() as u32).div_ceil(CHUNK);
    let bindings = [
        words(&Params {
            dim: width,
            lanes,
            weighted: source.random_range(0..2),
            half_grads: u32::from(half),
            ..params(&config, &layout_of(&config), TRAIN, 0)
        }),
        words(&robe),
        guarded(&sorted.targets),
        guarded(&sorted.segment),
        guarded(&sorted.accesses),
        gradients(&floats(&mut source, (outputs * robe.dim) as usize, 1.0 / inverse), half),
        guarded(&junk(&mut source, (2 * tiles * width) as usize)),
    ];
    let what = format!("seed {seed}, {lengths:?}, {robe:?}, half {half}, inverse {inverse}");
    let groups = [1, (2 * tiles).div_ceil(256 / lanes).max(1)][source.random_range(0..2)];
    // Gradients times powers of two, added in a given order, have the same bits.
    check(context, "robe_merge", &what, &bindings, groups, &[], |b| {
        let [params, robe, targets, segment, accesses, grad_outputs, scratch] = b else { unreachable!() };
        let (targets, accesses) = (cast_slice(targets), cast_slice(accesses));
        let params = read(params);
        let grads = gradients_of(grad_outputs, &params);
        stages::robe_merge(&params, &read(robe), targets, segment, accesses, grads, cast_slice_mut(scratch));
    })
    .changed
}

#[test]
pub(super) fn matches_the_mirror() {
    on_each(|context| {
        let mut changed = 0;
        for (seed, lengths) in (0..).zip(lengths(&mut rng(1))) {
            for shape in SHAPES {
                changed += run(context, seed, &lengths, shape);
            }
        }
        changed += run(context, 99, &[3, 100_000, 150], [8, 3, 40]);
        assert!(changed > 0);
    });
}
