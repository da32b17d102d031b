use bytemuck::{cast_slice, cast_slice_mut};
use hotrow::{
    Context, GroupConfig, cpu,
    layout::{Params, count},
};
use rand::RngExt as _;

use super::{
    Like, TRAIN, check, distinct_rows, floats, guarded, junk, layout_of, of, on_each, params, read, rng, runs, step,
    words,
};

/// Sorted accesses of a tile.
const TILE: u32 = 32;

fn run(context: &Context, seed: u64, valid: u32, dim: u32, exact: bool) -> usize {
    let mut source = rng(seed);
    let config = GroupConfig::new(&[1500], dim);
    let layout = layout_of(&config);
    let indices = valid + source.random_range(0..40); // the rest were left out
    let (mut segment, starts) = runs(&mut source, valid);
    segment.extend(junk(&mut source, (indices - valid) as usize));
    let outputs = source.random_range(1..30);
    let access: Vec<[u32; 2]> = (0..indices)
        .map(|_| {
            // With powers of two products are exact, and the order of a sum shows in its bits.
            let coefficient: f32 = match exact {
                true => [0.5, -1.0, 2.0, 4.0][source.random_range(0..4)],
                false => source.random_range(-2.0..2.0),
            };
            [source.random_range(0..outputs), coefficient.to_bits()]
        })
        .collect();
    let tiles = indices.div_ceil(TILE);
    let bindings = [
        words(&Params { indices, ..params(&config, &layout, TRAIN, 0) }),
        words(&step(&mut source, 4, &[(count::VALID, valid), (count::UNIQUE, starts.len() as u32)])),
        guarded(&distinct_rows(&mut source, indices as usize, indices)),
        guarded(&segment),
        guarded(&access),
        guarded(&floats(&mut source, (outputs * dim) as usize, 1.0)),
        guarded(&junk(&mut source, starts.len() * dim as usize)),
        guarded(&junk(&mut source, (2 * tiles * dim) as usize)),
    ];
    // 32 terms below 2, each rounding at most half an ULP of 64, on either side.
    let like = if exact { Like::Bits } else { Like::Within(f32::EPSILON * 32.0 * 64.0) };
    let what = format!("seed {seed}, {valid} of {indices} indices, dim {dim}, exact {exact}");
    check(context, "merge", &what, &bindings, tiles, &[("grads", like), ("partials", like)], |b| {
        let [params, step, order, segment, access, grad_outputs, grads, partials] = b else { unreachable!() };
        let (grads, partials) = (cast_slice_mut(grads), cast_slice_mut(partials));
        let (access, grad_outputs) = (cast_slice(access), cast_slice(grad_outputs));
        cpu::merge(&read(params), of(step), order, segment, access, grad_outputs, grads, partials);
    })
    .changed
}

#[test]
fn matches_the_mirror() {
    on_each(|context| {
        let mut changed = 0;
        for seed in 0..4 {
            for valid in [0, 1, 31, 32, 33, 63, 64, 65, 700] {
                for dim in [1, 5, 63, 64, 65, 130] {
                    for exact in [false, true] {
                        changed += run(context, seed, valid, dim, exact);
                    }
                }
            }
        }
        assert!(changed > 0);
    });
}
