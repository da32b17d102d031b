use bytemuck::{cast_slice, cast_slice_mut};
use hotrow::{
    Context,
    internals::{
        layout::{Grid, Level},
        stages,
    },
};
use rand::RngExt as _;
use rand_pcg::Pcg64;

use super::{check, guarded, junk, on_each, rng, words};

/// A grid over `points` points: dense and hashed levels, among them one of two corners a side.
pub(super) fn grid(source: &mut Pcg64, points: u32, dims: u32, wrap: bool) -> (Grid, Vec<Level>) {
    let levels: Vec<Level> = (0..source.random_range(1..6))
        .map(|_| {
            let scale: f32 = [1.0, 15.0, 22.5, 33.75, 511.0, 7005.25][source.random_range(0..6)];
            let side = scale.ceil() as u32 + 1;
            let hashed = side > 40;
            let rows = if hashed { 1 << source.random_range(0..19) } else { side.pow(dims) };
            Level { scale, side, rows, hashed: u32::from(hashed) }
        })
        .collect();
    (Grid { points, dims, levels: levels.len() as u32, wrap: u32::from(wrap), ..Grid::default() }, levels)
}

/// Coordinates in and around the unit cube, its ends and ends of cells among them. `all` has some that are not finite.
pub(super) fn coordinates(source: &mut Pcg64, n: u32, all: bool) -> Vec<f32> {
    let ends = [0.0, -0.0, 1.0, 0.5, 1.0 / 3.0, 1.0 - f32::EPSILON / 2.0, -1e-9, 1e-30];
    let none = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
    (0..n)
        .map(|_| match source.random_range(0..20) {
            0..3 => ends[source.random_range(0..ends.len())],
            3..5 => source.random_range(-3.0..4.0),
            5 if all => none[source.random_range(0..3)],
            _ => source.random_range(0.0..1.0),
        })
        .collect()
}

fn run(context: &Context, seed: u64, points: u32, dims: u32, wrap: bool) -> usize {
    let mut source = rng(seed);
    let (uniform, levels) = grid(&mut source, points, dims, wrap);
    let coordinates = coordinates(&mut source, points * dims, true);
    let bags = points * uniform.levels;
    let n = (bags << dims) as usize;
    let bindings = [
        words(&uniform),
        cast_slice(&levels).to_vec(),
        guarded(&coordinates),
        guarded(&junk(&mut source, n)),
        guarded(&junk(&mut source, n)),
    ];
    let what = format!("seed {seed}, {points} points, {dims} dims, wrap {wrap}, {levels:?}");
    // Every bit: a fused product and sum would find other cells.
    check(context, "grid", &what, &bindings, bags.div_ceil(256) + 1, &[], |b| {
        let [_, _, coordinates, indices, weights] = b else { unreachable!() };
        stages::grid(&uniform, &levels, cast_slice(coordinates), indices, cast_slice_mut(weights));
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
