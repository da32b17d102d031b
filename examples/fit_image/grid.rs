//! A hash grid over the unit square (Müller et al. 2022, section 3): each level is a table, and a point reads the four corners of its cell.

use rayon::prelude::*;

/// The grids of an encoding, the coarsest first.
pub(crate) struct Grid {
    levels: Vec<Level>,
}

struct Level {
    /// Cells of a side, less the half cell by which levels are shifted against each other.
    scale: f32,
    /// Corners of a side.
    side: u32,
    rows: u32,
    hashed: bool,
}

/// A batch as the tables take it: bags level by level, in each level point by point, with four weighted indices each.
pub(crate) struct Bags {
    pub(crate) indices: Vec<u32>,
    pub(crate) offsets: Vec<u32>,
    pub(crate) weights: Vec<f32>,
}

impl Grid {
    /// `levels` levels from `coarsest` cells a side on, each `growth` times as fine as the last, in tables of at most `most` rows, a power
    /// of two.
    pub(crate) fn new(levels: usize, coarsest: f32, growth: f32, most: u32) -> Self {
        let level = |level| {
            let scale = coarsest * growth.powi(level as i32) - 1.0;
            let side = scale.ceil() as u32 + 1;
            let corners = u64::from(side) * u64::from(side);
            Level { scale, side, rows: corners.min(u64::from(most)) as u32, hashed: corners > u64::from(most) }
        };
        Self { levels: (0..levels).map(level).collect() }
    }

    /// Rows of each level's table.
    pub(crate) fn tables(&self) -> Vec<u32> {
        self.levels.iter().map(|level| level.rows).collect()
    }

    pub(crate) fn bags(&self, points: &[[f32; 2]]) -> Bags {
        let (n, levels) = (points.len(), self.levels.len());
        let (mut indices, mut weights) = (vec![0; levels * n * 4], vec![0.0; levels * n * 4]);
        let tables = indices.par_chunks_mut(n * 4).zip(weights.par_chunks_mut(n * 4)).zip(&self.levels);
        tables.for_each(|((indices, weights), level)| {
            let bags = indices.as_chunks_mut().0.iter_mut().zip(weights.as_chunks_mut().0);
            for ((indices, weights), point) in bags.zip(points) {
                (*indices, *weights) = level.corners(*point);
            }
        });
        Bags { indices, offsets: (0..=(levels * n) as u32).map(|bag| 4 * bag).collect(), weights }
    }
}

impl Level {
    /// The rows of the cell's corners, and their bilinear weights.
    fn corners(&self, point: [f32; 2]) -> ([u32; 4], [f32; 4]) {
        let place = point.map(|x| x * self.scale + 0.5);
        let cell = place.map(|x| x as u32);
        let part = [0, 1].map(|i| place[i] - cell[i] as f32);
        let of = |corner: u32| [0, 1].map(|i| corner >> i & 1);
        let row = |corner| {
            let [dx, dy] = of(corner);
            let [x, y] = [cell[0] + dx, cell[1] + dy];
            // At the far edge a dense level has no further corner; its weight there is 0 or the level wraps, as in the authors' code.
            if self.hashed { (x ^ y.wrapping_mul(2_654_435_761)) % self.rows } else { (x + y * self.side) % self.rows }
        };
        let weight = |corner| {
            let far = of(corner);
            [0, 1].map(|i| if far[i] == 1 { part[i] } else { 1.0 - part[i] }).iter().product()
        };
        ([0, 1, 2, 3].map(row), [0, 1, 2, 3].map(weight))
    }
}
