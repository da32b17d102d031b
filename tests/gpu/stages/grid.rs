//! The stages of grids.

use bytemuck::{cast_slice, cast_slice_mut};
use hotrow::internals::{
    layout::{Grid, Level},
    stages,
};
use rand::RngExt as _;
use rand_pcg::Pcg64;

use super::{Like, check, each, floats, guarded, junk, words};

/// A grid over `points` points: dense and hashed levels, among them one of two corners a side.
fn grid(source: &mut Pcg64, points: u32, dims: u32, wrap: bool) -> (Grid, Vec<Level>) {
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
    each("grid", [7, 2, 2], |case, mut source, [points, dims, wrap]| {
        let (points, dims) = ([0, 1, 2, 63, 256, 300, 1000][points], [2, 3][dims]);
        let (uniform, levels) = grid(&mut source, points, dims, wrap == 1);
        let coordinates = guarded(&coordinates(&mut source, points * dims));
        let bags = points * uniform.levels;
        let n = (bags << dims) as usize;
        let bindings = [
            words(&uniform),
            cast_slice(&levels).to_vec(),
            coordinates.clone(),
            guarded(&junk(&mut source, n)),
            guarded(&junk(&mut source, n)),
        ];
        // Every bit: a fused product and sum would find other cells.
        check(case, "grid", &bindings, bags.div_ceil(256) + 1, &[], |[_, _, coordinates, indices, weights]| {
            stages::grid(&uniform, &levels, cast_slice(coordinates), indices, cast_slice_mut(weights));
        });

        // Gradients that shrink with the resolution keep every sum near 1.
        let finest = levels.iter().map(|level| level.scale).fold(1.0, f32::max);
        let slopes = guarded(&floats(&mut source, n, 1.0 / finest));
        let found = guarded(&junk(&mut source, (points * dims) as usize));
        let bindings = [words(&uniform), cast_slice(&levels).to_vec(), coordinates, slopes, found];
        // Up to 40 terms below 1, each rounded a few times.
        let rules = [("grad_coordinates", Like::Within(f32::EPSILON * 40.0 * 8.0))];
        let groups = points.div_ceil(256) + 1;
        check(case, "grid_gradient", &bindings, groups, &rules, |[_, _, coordinates, slopes, found]| {
            let (coordinates, slopes) = (cast_slice(coordinates), cast_slice(slopes));
            stages::grid_gradient(&uniform, &levels, coordinates, slopes, cast_slice_mut(found));
        });
    });
}
