//! The number of sets of a cache of a given size (SPEC 9, simulate).

use hotrow::{GroupConfig, Policy};
use std::fmt;

/// The shape of a cache that holds a share of the rows of a trace.
///
/// ```
/// use hotrow_plan::simulate::{Geometry, GeometryError};
///
/// let shape = Geometry::of_percent(10_000, 5.0, 32)?;
/// assert_eq!((shape.slots, shape.sets, shape.ways), (512, 16, 32)); // 500 rows, rounded up to whole sets of 32
/// # Ok::<(), GeometryError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// `32 * ceil(rows * percent / 3200)` for any number of ways, so that shapes can be compared; at most the rows.
    pub slots: u32,
    /// `ceil(slots / ways)`; 1 if fully associative.
    pub sets: u32,
    /// Ways of a set; all slots if fully associative.
    pub ways: u32,
}

impl Geometry {
    /// The shape of a cache of `percent` % of `rows` rows. `ways = 0` means fully associative.
    ///
    /// # Errors
    /// [`GeometryError::Percent`] unless `0 < percent <= 100`, [`GeometryError::Rows`] unless there are rows and at
    /// most 2^32 - 2 of them.
    pub fn of_percent(rows: u64, percent: f64, ways: u32) -> Result<Self, GeometryError> {
        if !(percent > 0.0 && percent <= 100.0) {
            return Err(GeometryError::Percent(percent));
        }
        if rows == 0 || rows > u64::from(u32::MAX) - 1 {
            return Err(GeometryError::Rows(rows));
        }
        // Whole percents are exact in f64 (rows * percent < 2^39), so the quotient is rounded once, and a whole
        // number stays one: `ceil` equals the integer formula.
        let groups = (rows as f64 * percent / 3200.0).ceil().max(1.0) as u64;
        let slots = (groups * 32).min(rows) as u32;
        if ways == 0 {
            return Ok(Self { slots, sets: 1, ways: slots });
        }
        Ok(Self { slots, sets: slots.div_ceil(ways), ways })
    }

    /// The group whose cache has this shape, of one table of `rows` rows.
    #[must_use]
    pub fn group(&self, rows: u32, policy: Policy) -> GroupConfig {
        let config = GroupConfig::new(&[rows], 1).with_cache_rows(self.slots).with_ways(self.ways).with_policy(policy);
        let window_ways = config.window_ways.min(self.ways - 1);
        config.with_window_ways(window_ways)
    }
}

/// The reason why a cache cannot have this shape.
///
/// Example: [`Geometry`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum GeometryError {
    /// The share is not a percentage above 0 and at most 100.
    Percent(f64),
    /// The table has no rows, or more than a group can number.
    Rows(u64),
}

impl fmt::Display for GeometryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Percent(found) => {
                write!(f, "cache size: wanted more than 0 and at most 100 percent of the rows, found {found}")
            }
            Self::Rows(found) => {
                write!(f, "rows: wanted 1 to 4294967294, found {found}; give a trace that has rows")
            }
        }
    }
}

impl std::error::Error for GeometryError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_the_data_folder() {
        // (rows, percent, sets of 32 ways), computed by hand from the formula.
        for (rows, percent, sets) in
            [(3958, 1.0, 2), (3958, 5.0, 7), (3958, 10.0, 13), (33278, 1.0, 11), (33278, 5.0, 52), (33278, 10.0, 104)]
        {
            let found = Geometry::of_percent(rows, percent, 32).unwrap();
            assert_eq!(found, Geometry { slots: 32 * sets, sets, ways: 32 });
        }
    }

    #[test]
    fn float_and_integer_formula_agree() {
        for rows in (1..200_000).step_by(37).chain([4_294_967_200]) {
            for percent in 1..=100_u64 {
                let found = Geometry::of_percent(rows, percent as f64, 32).unwrap();
                assert_eq!(u64::from(found.sets), (rows * percent).div_ceil(3200), "{percent} % of {rows} rows");
            }
        }
    }

    #[test]
    fn shapes() {
        assert_eq!(Geometry::of_percent(3958, 1.0, 0).unwrap(), Geometry { slots: 64, sets: 1, ways: 64 });
        assert_eq!(Geometry::of_percent(3958, 1.0, 1).unwrap(), Geometry { slots: 64, sets: 64, ways: 1 });
        assert_eq!(Geometry::of_percent(3958, 0.01, 24).unwrap(), Geometry { slots: 32, sets: 2, ways: 24 });
        let largest = Geometry::of_percent(u64::from(u32::MAX) - 1, 100.0, 0).unwrap();
        assert_eq!(largest.slots, u32::MAX - 1);
        // No cache has more rows than the table.
        assert_eq!(Geometry::of_percent(70, 100.0, 32).unwrap(), Geometry { slots: 70, sets: 3, ways: 32 });
        assert_eq!(Geometry::of_percent(10, 5.0, 0).unwrap(), Geometry { slots: 10, sets: 1, ways: 10 });
    }

    #[test]
    fn refusals_are_named() {
        for percent in [0.0, -1.0, 100.1, f64::NAN, f64::INFINITY] {
            assert!(matches!(Geometry::of_percent(10, percent, 1), Err(GeometryError::Percent(_))), "{percent}");
        }
        for rows in [0, u64::from(u32::MAX)] {
            assert_eq!(Geometry::of_percent(rows, 1.0, 1), Err(GeometryError::Rows(rows)));
        }
    }
}
