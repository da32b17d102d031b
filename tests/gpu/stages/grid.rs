//! The bits of a grid's rows and weights. `../grid.rs` has whole steps.

use bytemuck::{cast_slice, cast_slice_mut};
use hotrow::internals::{
    layout::{Grid, Level},
    stages,
};
use hotrow_harness::{device::with_gpu, seed_for};
use rand::RngExt as _;
use rand_pcg::Pcg64;

use super::{rng, run, words};

/// A grid over `points` points: dense and hashed levels, among them one of two corners a side.
fn grid(source: &mut Pcg64, points: u32, dims: u32, wrap: u32) -> (Grid, Vec<Level>) {
    let levels: Vec<Level> = (0..source.random_range(1..6))
        .map(|_| {
            let scale: f32 = [1.0, 15.0, 22.5, 33.75, 511.0, 7005.25][source.random_range(0..6)];
            let side = scale.ceil() as u32 + 1;
            let hashed = side > 40;
            let rows = if hashed { 1 << source.random_range(0..19) } else { side.pow(dims) };
            Level { scale, side, rows, hashed: u32::from(hashed) }
        })
        .collect();
    (Grid { points, dims, levels: levels.len() as u32, wrap, ..Grid::default() }, levels)
}

/// Coordinates in and around the unit cube, its ends and ends of cells among them. Some are not finite.
fn coordinates(source: &mut Pcg64, n: u32) -> Vec<f32> {
    let ends = [0.0, -0.0, 1.0, 0.5, 1.0 / 3.0, 1.0 - f32::EPSILON / 2.0, -1e-9, 1e-30];
    let none = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
    (0..n)
        .map(|_| match source.random_range(0..20) {
            0..3 => ends[source.random_range(0..ends.len())],
            3..5 => source.random_range(-3.0..4.0),
            5 => none[source.random_range(0..3)],
            _ => source.random_range(0.0..1.0),
        })
        .collect()
}

#[test]
pub(crate) fn grid_and_grid_gradient() {
    with_gpu(|context| {
        for (turn, points) in [1, 2, 63, 256, 300, 1000].repeat(4).into_iter().enumerate() {
            let mut source = rng(seed_for("grid") + turn as u64);
            let dims = 2 + turn as u32 / 6 % 2;
            let (uniform, levels) = grid(&mut source, points, dims, turn as u32 / 12);
            let coordinates = coordinates(&mut source, points * dims);
            let bags = points * uniform.levels;
            let n = (bags << dims) as usize;
            let head = [words(&uniform), cast_slice(&levels).to_vec(), cast_slice(&coordinates).to_vec()];
            // The words behind the last stay.
            let [mut indices, mut weights] = [(); 2].map(|()| vec![7; n + 4]);
            let bindings = [&head[..], &[indices.clone(), weights.clone()]].concat();
            let found = run(context, "grid", &bindings, bags.div_ceil(256) + 1);
            stages::grid(&uniform, &levels, &coordinates, &mut indices, cast_slice_mut(&mut weights));
            // Every bit: a fused product and sum would find other cells.
            assert!(found[3..] == [indices, weights], "turn {turn}, {uniform:?}, {levels:?}");

            // Gradients that shrink with the resolution keep every sum near 1.
            let finest = levels.iter().map(|level| level.scale).fold(1.0, f32::max);
            let slopes: Vec<f32> = (0..n).map(|_| source.random_range(-1.0..1.0) / finest).collect();
            let mut wanted = vec![7.0; coordinates.len() + 4];
            let bindings = [&head[..], &[cast_slice(&slopes).to_vec(), cast_slice(&wanted).to_vec()]].concat();
            let found = run(context, "grid_gradient", &bindings, points.div_ceil(256) + 1);
            stages::grid_gradient(&uniform, &levels, &coordinates, &slopes, &mut wanted);
            // Up to 40 terms below 1, each rounded a few times.
            let bound = f32::EPSILON * 40.0 * 8.0;
            let near = |(a, b): (&f32, &f32)| (a - b).abs() <= bound * b.abs().max(1.0);
            assert!(cast_slice(&found[4]).iter().zip(&wanted).all(near), "turn {turn}, {uniform:?}, {levels:?}");
        }
    });
}
