//! A multiresolution hash grid ([Müller et al. 2022](https://doi.org/10.1145/3528223.3530127), section 3): each level is a table whose rows are
//! the features at the corners of a lattice. A point's features on a level are the d-linear mean of the rows at the corners of its cell. So a
//! point is a bag of 2^d weighted indices on each level, which forward and backward of any group take.
//!
//! [`Grid`](crate::Grid) turns points into batches on the device, [`CpuGrid`](crate::CpuGrid) on the host.

use std::{fmt, str::FromStr};

use crate::{
    config::{GroupConfig, named, setters},
    error::Error,
    robe,
    table::{
        abi::{Grid, Level},
        batch::MAX_INDICES,
    },
};

named!(Outside, "outside": Clamp = "clamp", Wrap = "wrap");

/// The place of a coordinate outside [0, 1].
///
/// Example: [`Config`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outside {
    /// The nearest end. The gradient with respect to such a coordinate is 0.
    Clamp,
    /// The coordinate modulo 1.
    Wrap,
}

/// The levels of a grid.
///
/// ```
/// use hotrow::{CpuGrid, CpuGroup, Mode, grid, prelude::*};
///
/// // Four levels over the unit square, the finest with 64 corners a side.
/// let config = grid::Config::new(2).with_levels(4).with_coarsest(8).with_finest(64)?.with_most_rows(1 << 10);
/// assert_eq!(config.tables()?, [64, 256, 1024, 1024]); // 8 x 8, 16 x 16, 32 x 32 corners; hashed
/// let mut features = CpuGroup::new(config.group()?)?;
/// let mut grid = CpuGrid::new(config)?;
/// let points = [0.25, 0.5, 0.9, 0.1]; // two points
/// let bags = grid.bags(&points)?;
/// let outputs = features.forward(bags, Mode::Train)?;
/// assert_eq!(outputs.len(), 4 * 2 * 2); // levels, points, features
/// let slopes = features.weight_gradient(bags, &outputs)?;
/// assert_eq!(grid.coordinate_gradient(&points, &slopes)?.len(), 4); // before the backward, which moves the rows
/// features.backward(&outputs)?;
/// # Ok::<(), hotrow::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Config {
    /// Coordinates of a point, d: 2 or 3.
    pub dims: u32,
    /// Number of levels, L: 1 to 32.
    pub levels: u32,
    /// Features of a row, F: 1, 2, 4 or 8.
    pub features: u32,
    /// Corners of a side of the coarsest level, at least 2.
    pub coarsest: u32,
    /// The factor from a level's resolution to the next one's, b: at least 1.
    pub growth: f32,
    /// Most rows of a level's table, T, a power of two. A level with more corners finds its rows by a hash, and corners share rows.
    pub most_rows: u32,
    /// The place of a coordinate outside [0, 1].
    pub outside: Outside,
}

setters!(Config {
    with_dims dims: u32,
    with_levels levels: u32,
    with_features features: u32,
    with_coarsest coarsest: u32,
    with_growth growth: f32,
    with_most_rows most_rows: u32,
    with_outside outside: Outside,
});

/// The largest resolution of a level. Beyond it FP32 has too few places within a cell.
const FINEST: f64 = (1 << 20) as f64;

impl Config {
    /// The paper's grid for images and fields of `dims` dimensions: 16 levels of 2 features from 16 corners a side on, each 1.5 times as fine as
    /// the last, in tables of at most 2^19 rows.
    #[must_use]
    pub const fn new(dims: u32) -> Self {
        let (levels, features, coarsest, most_rows) = (16, 2, 16, 1 << 19);
        Self { dims, levels, features, coarsest, growth: 1.5, most_rows, outside: Outside::Clamp }
    }

    /// With the growth that gives the finest level `finest` corners a side (equation 3 of the paper), between the levels and the coarsest side that
    /// are set now.
    ///
    /// # Errors
    /// [`Error::Grid`] if `finest` is less than the coarsest level's side, or another one where there is one level.
    pub fn with_finest(self, finest: u32) -> Result<Self, Error> {
        if finest < self.coarsest {
            return fail("finest", format!("at least the coarsest level's {}", self.coarsest), finest.to_string());
        }
        if self.levels < 2 && finest != self.coarsest {
            return fail("finest", format!("{}, the side of the only level", self.coarsest), finest.to_string());
        }
        let steps = self.levels.max(2) - 1;
        let growth = (f64::from(finest).ln() - f64::from(self.coarsest).ln()) / f64::from(steps);
        let mut growth = growth.exp() as f32;
        // Rounded up, the growth would give one corner too many.
        while f64::from(growth).powi(steps as i32) * f64::from(self.coarsest) > f64::from(finest) && growth > 1.0 {
            growth = growth.next_down();
        }
        Ok(self.with_growth(growth))
    }

    /// Checks every field.
    ///
    /// # Errors
    /// [`Error::Grid`] names the first illegal field.
    pub fn check(&self) -> Result<(), Error> {
        let all = [
            ("dims", matches!(self.dims, 2 | 3), "2 or 3", self.dims.to_string()),
            ("levels", (1..=32).contains(&self.levels), "1 to 32", self.levels.to_string()),
            ("features", matches!(self.features, 1 | 2 | 4 | 8), "1, 2, 4 or 8", self.features.to_string()),
            ("coarsest", self.coarsest >= 2, "at least 2", self.coarsest.to_string()),
            ("growth", self.growth >= 1.0 && self.growth.is_finite(), "at least 1", self.growth.to_string()),
            ("most_rows", self.most_rows.is_power_of_two(), "a power of two", self.most_rows.to_string()),
        ];
        for (what, right, wanted, found) in all {
            if !right {
                return fail(what, wanted.to_owned(), found);
            }
        }
        let finest = self.resolution(self.levels - 1);
        if finest > FINEST {
            return fail("levels", format!("a finest resolution of at most {FINEST}"), format!("{finest:.0}"));
        }
        let rows: u64 = self.levels_of().iter().map(|level| u64::from(level.rows)).sum();
        if rows > u64::from(u32::MAX) {
            return fail("most_rows", "levels of fewer than 2^32 rows together".into(), rows.to_string());
        }
        Ok(())
    }

    /// Rows of each level's table.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn tables(&self) -> Result<Vec<u32>, Error> {
        self.check()?;
        Ok(self.levels_of().iter().map(|level| level.rows).collect())
    }

    /// A group with a table for each level, to be changed as wished. Integers have a scale and a bias for each row, 8 bytes: a row of 8
    /// features takes 16 bytes in FP16 and in INT8, and 12 in INT4; rows of fewer features take more in integers than in FP16. Take
    /// [`array`](Self::array) for them.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn group(&self) -> Result<GroupConfig, Error> {
        Ok(GroupConfig::new(&self.tables()?, self.features))
    }

    /// A shared array that holds all levels side by side, to be changed as wished. With integers a block of weights shares its scale, which takes
    /// fewer bytes than a scale for each row of few features.
    ///
    /// # Errors
    /// As [`check`](Self::check) and [`robe::Config::direct`].
    pub fn array(&self) -> Result<robe::config::Config, Error> {
        robe::config::Config::direct(&self.tables()?, self.features)
    }

    /// Resolution of a level.
    fn resolution(&self, level: u32) -> f64 {
        f64::from(self.coarsest) * f64::from(self.growth).powi(level as i32)
    }

    /// The levels of a legal configuration. The formulas are tiny-cuda-nn's (`grid.h`), but for the differences that SPEC 8 names.
    pub(crate) fn levels_of(&self) -> Vec<Level> {
        let level = |level| {
            let scale = (self.resolution(level) - 1.0) as f32;
            let side = scale.ceil() as u32 + 1;
            let corners = u128::from(side).pow(self.dims);
            let hashed = corners > u128::from(self.most_rows);
            let rows = if hashed { self.most_rows } else { corners as u32 };
            Level { scale, side, rows, hashed: u32::from(hashed) }
        };
        (0..self.levels).map(level).collect()
    }

    /// Indices of a bag.
    pub(crate) const fn corners(&self) -> u32 {
        1 << self.dims
    }

    /// The uniform of a call with this number of points, and the number of its indices.
    ///
    /// # Errors
    /// [`Error::TooLarge`] for more indices than a batch may have.
    pub(crate) fn points(&self, points: u64) -> Result<(Grid, u64), Error> {
        let indices = points * u64::from(self.levels) * u64::from(self.corners());
        if indices > MAX_INDICES {
            let (wanted, limit) = (indices * 4, MAX_INDICES * 4);
            return Err(Error::TooLarge { what: "batch", wanted, limit, remedy: "split the points" });
        }
        let Self { dims, levels, .. } = *self;
        let wrap = u32::from(self.outside == Outside::Wrap);
        Ok((Grid { points: points as u32, dims, levels, wrap, ..Grid::default() }, indices))
    }

    /// The number of points of so many coordinates.
    ///
    /// # Errors
    /// [`Error::Length`] unless each point has all its coordinates.
    pub(crate) fn points_of(&self, coordinates: u64) -> Result<u64, Error> {
        let dims = u64::from(self.dims);
        if !coordinates.is_multiple_of(dims) {
            let wanted = coordinates.next_multiple_of(dims);
            return Err(Error::Length { what: "coordinates", wanted, found: coordinates });
        }
        Ok(coordinates / dims)
    }

    /// The offsets of so many points' bags.
    pub(crate) fn offsets(&self, points: u32) -> impl Iterator<Item = u32> {
        let corners = self.corners();
        (0..=points * self.levels).map(move |bag| bag * corners)
    }
}

fn fail<T>(what: &'static str, wanted: String, found: String) -> Result<T, Error> {
    Err(Error::Grid { what, wanted, found, remedy: "change the grid's configuration" })
}
