//! Tables whose rows share one array (ROBE): `robe:compression=1000,chunk=32`.

use crate::names::{PrecisionName, RoundingName, option_name};
use hotrow::{Error, robe};
use serde::{Deserialize, Serialize};

/// Values of a row that lie together where nothing else is asked for.
pub(crate) const CHUNK: u32 = 32;

/// How large the array is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Size {
    /// So many times fewer weights than the rows of all tables that share it have values, whatever a weight takes.
    Compression(f64),
    /// So many weights.
    Weights(u32),
}

/// An array for all tables that are kept so and may share a group.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename = "robe")]
pub(crate) struct Robe {
    #[serde(flatten)]
    pub(crate) size: Size,
    pub(crate) chunk: u32,
    #[serde(with = "crate::names")]
    pub(crate) precision: PrecisionName,
    /// Means nothing in FP32.
    #[serde(with = "crate::names")]
    pub(crate) rounding: RoundingName,
}

impl Robe {
    /// FP32 weights.
    pub(crate) const fn fp32(size: Size, chunk: u32) -> Self {
        Self { size, chunk, precision: PrecisionName::Fp32, rounding: RoundingName::Stochastic }
    }

    /// "robe 1000x, chunks of 8, int8 stochastic".
    pub(crate) fn label(&self) -> String {
        let size = match self.size {
            Size::Compression(times) => format!("robe {times}x"),
            Size::Weights(weights) => format!("robe of {weights} weights"),
        };
        let chunk = if self.chunk == CHUNK { String::new() } else { format!(", chunks of {}", self.chunk) };
        let precision = match self.precision {
            PrecisionName::Fp32 => String::new(),
            precision => format!(", {} {}", option_name(&precision), option_name(&self.rounding)),
        };
        size + &chunk + &precision
    }

    /// The configuration of a group of tables.
    ///
    /// # Errors
    /// [`Error::Config`] for an array that cannot be.
    pub(crate) fn config(&self, rows: &[u32], dim: u32) -> Result<robe::Config, Error> {
        let config = match self.size {
            Size::Compression(times) => robe::Config::compressed(rows, dim, times, self.chunk)?,
            Size::Weights(weights) => robe::Config::new(rows, dim, weights, self.chunk),
        };
        let (precision, rounding) = (self.precision, self.rounding);
        let config = config.with_precision(precision).with_rounding(rounding);
        config.check().map(|()| config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotrow::{Precision, Rounding};

    #[test]
    fn an_array_for_all_its_tables() {
        let robe = Robe::fp32;
        let config = robe(Size::Compression(10.0), 8).config(&[1000, 250], 16).unwrap();
        assert_eq!((config.tables.len(), config.weights, config.chunk), (2, 2000, 8));
        assert_eq!(robe(Size::Weights(77), 8).config(&[1000, 250], 16).unwrap().weights, 77);
        for (size, chunk, wanted) in [
            (Size::Compression(10_000.0), 8, "compression"),
            (Size::Compression(0.5), 8, "compression"),
            (Size::Weights(77), 78, "weights"),
            (Size::Weights(77), 0, "chunk"),
        ] {
            let error = robe(size, chunk).config(&[1000, 250], 16).unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
        }
    }

    #[test]
    fn labels_say_what_counts() {
        assert_eq!(Robe::fp32(Size::Compression(1000.0), CHUNK).label(), "robe 1000x");
        assert_eq!(Robe::fp32(Size::Compression(2.5), 8).label(), "robe 2.5x, chunks of 8");
        let int8 = Robe { precision: PrecisionName::Int8, ..Robe::fp32(Size::Weights(5000), 1) };
        assert_eq!(int8.label(), "robe of 5000 weights, chunks of 1, int8 stochastic");
        let config = int8.config(&[1000], 16).unwrap();
        assert_eq!((config.precision, config.rounding), (Precision::Int8, Rounding::Stochastic));
    }
}
