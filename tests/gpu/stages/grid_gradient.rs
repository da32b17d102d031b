use bytemuck::{cast_slice, cast_slice_mut};
use hotrow::{Context, internals::stages};

use super::{
    Like, check, floats,
    grid::{coordinates, grid},
    guarded, junk, on_each, rng, words,
};

fn run(context: &Context, seed: u64, points: u32, dims: u32, wrap: bool) -> usize {
    let mut source = rng(seed);
    let (uniform, levels) = grid(&mut source, points, dims, wrap);
    let coordinates = coordinates(&mut source, points * dims, true);
    let n = ((points * uniform.levels) << dims) as usize;
    // Gradients that shrink with the resolution keep every sum near 1.
    let finest = levels.iter().map(|level| level.scale).fold(1.0, f32::max);
    let bindings = [
        words(&uniform),
        cast_slice(&levels).to_vec(),
        guarded(&coordinates),
        guarded(&floats(&mut source, n, 1.0 / finest)),
        guarded(&junk(&mut source, (points * dims) as usize)),
    ];
    let what = format!("seed {seed}, {points} points, {dims} dims, wrap {wrap}, {levels:?}");
    // Up to 40 terms below 1, each rounded a few times.
    let rules = [("grad_coordinates", Like::Within(f32::EPSILON * 40.0 * 8.0))];
    check(context, "grid_gradient", &what, &bindings, points.div_ceil(256) + 1, &rules, |b| {
        let [_, _, coordinates, slopes, found] = b else { unreachable!() };
        let (coordinates, slopes) = (cast_slice(coordinates), cast_slice(slopes));
        stages::grid_gradient(&uniform, &levels, coordinates, slopes, cast_slice_mut(found));
    })
    .changed
}

#[test]
pub(super) fn matches_the_mirror() {
    on_each(|context| {
        let mut changed = 0;
        for (seed, points) in [0, 1, 2, 63, 256, 300, 1000].into_iter().enumerate() {
            for (dims, wrap) in [(2, false), (3, false), (2, true), (3, true)] {
                changed += run(context, seed as u64, points, dims, wrap);
            }
        }
        assert!(changed > 1000);
    });
}
