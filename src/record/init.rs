//! The first values of a table, packed at once: the same bits on every machine and both backends.

use std::{f32::consts::TAU, ops::Range};

use rayon::prelude::*;

use crate::{
    config::{GroupConfig, Init, Precision, Rounding},
    error::Error,
    record::{
        codec::{Noise, code, scale_and_bias},
        int4x32, rows, search,
    },
    source::{self, Source},
    table::{
        layout::Layout,
        rng::{self, Purpose, pcg4d},
    },
};

/// Bytes that are packed before they are handed on.
const CHUNK: u64 = 8 << 20;
/// Floats that a thread holds while it packs.
const BLOCK: u32 = 16 << 10;

/// The source of the weights.
#[derive(Clone, Copy)]
enum Values<'a> {
    Init(Init),
    Source(&'a dyn Source),
}

/// Makes the records of a new table.
pub(crate) struct Filler<'a> {
    layout: &'a Layout,
    values: Values<'a>,
    noise: Noise,
    searches: bool,
    config: &'a GroupConfig,
}

impl<'a> Filler<'a> {
    /// Takes the values of `source`, after checking its size; without a source, those that the configuration names.
    ///
    /// # Errors
    /// The errors of [`Source::check`]; [`Error::Config`] for a searched range beside stochastic rounding.
    pub(crate) fn new(
        config: &'a GroupConfig,
        layout: &'a Layout,
        source: Option<&'a dyn Source>,
    ) -> Result<Self, Error> {
        if let Some(source) = source {
            source.check(layout.total_rows, layout.row.dim as usize)?;
        }
        let purpose = if source.is_some() { Purpose::Write } else { Purpose::Init };
        let noise = Noise::new(config, purpose, 0);
        let values = source.map_or(Values::Init(config.init), Values::Source);
        let searches = source.is_some_and(|source| source.range() == source::Range::Searched);
        if searches && noise.rounding == Rounding::Stochastic {
            let (wanted, found) = ("nearest beside a searched range".into(), noise.rounding.to_string());
            return Err(Error::Config { field: "write_rounding", wanted, found });
        }
        Ok(Self { layout, values, noise, searches, config })
    }

    /// Whether every record is all zeros.
    pub(crate) fn zeros(&self) -> bool {
        // An own rule may give zeros a state.
        matches!(self.values, Values::Init(Init::Constant(value)) if value.to_bits() == 0 && self.config.own().is_none())
    }

    /// Writes the initial weights of neighbouring rows, not yet rounded to the table's precision.
    fn weights(&self, first_row: u32, weights: &mut [f32]) -> Result<(), Error> {
        match self.values {
            Values::Source(source) => return source.rows(first_row, self.layout.row.dim as usize, weights),
            Values::Init(init) => (first_row..)
                .zip(weights.chunks_exact_mut(self.layout.row.dim as usize))
                .for_each(|(row, weights)| init.row(self.noise.seed, self.noise.stripe.whole(row), weights)),
        }
        Ok(())
    }

    /// Makes the records of neighbouring rows, as many as fit into `records`, on all cores; the state starts at zero, or as its rule derives it from the weights. A
    /// thread holds at most one block of FP32 values.
    ///
    /// # Errors
    /// The error of the first row that cannot be stored.
    pub(crate) fn pack(&self, first_row: u32, records: &mut [u32]) -> Result<(), Error> {
        let (dim, words) = (self.layout.row.dim as usize, self.layout.row.record_words as usize);
        let block = (BLOCK / self.layout.row.dim).max(1);
        let failed = records.par_chunks_mut(block as usize * words).enumerate().find_map_first(|(k, records)| {
            let first_row = first_row + k as u32 * block;
            let (mut weights, mut state) =
                (vec![0.0; records.len() / words * dim], vec![0.0; self.layout.row.state as usize]);
            if let Err(error) = self.weights(first_row, &mut weights) {
                return Some(error);
            }
            let mut rows = (first_row..).zip(weights.chunks_exact(dim)).zip(records.chunks_exact_mut(words));
            rows.find_map(|((row, weights), record)| {
                if let Err(error) = self.config.begin(weights, &mut state) {
                    return Some(error);
                }
                let packed = self.pack_row(row, weights, &state, record);
                (!packed).then(|| not_packed(row, weights, self.config.precision.format().most))
            })
        });
        failed.map_or(Ok(()), Err)
    }

    /// Packs a row, under a searched range if the source asks for one.
    fn pack_row(&self, row: u32, weights: &[f32], state: &[f32], record: &mut [u32]) -> bool {
        let (layout, bits) = (&self.layout.row, self.config.precision.bits());
        let packed = rows::pack(layout, &self.noise, row, weights, state, record);
        match self.config.precision {
            _ if !packed || !self.searches => return packed,
            Precision::Fp32 | Precision::Fp16 => return true,
            Precision::Int4x32 => return int4x32::pack(layout, weights, record, true),
            Precision::Int8 | Precision::Int4 | Precision::Int2 => {}
        }
        let [low, high] = search::range(weights, |ends| {
            let (scale, bias) = scale_and_bias(&ends, bits)?;
            Some(move |x| code(x, scale, bias, bits, Rounding::Nearest, || 0) as f32 * scale + bias)
        });
        // Weights outside of the range get the codes of its ends.
        let within: Vec<f32> = weights.iter().map(|x| x.clamp(low, high)).collect();
        rows::pack(layout, &self.noise, row, &within, state, record)
    }

    /// Makes the records of `rows` chunk by chunk, and calls the callback with each chunk and its first row.
    pub(crate) fn chunks(
        &self,
        rows: Range<u32>,
        mut take: impl FnMut(u32, &[u32]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let chunk = (CHUNK / self.layout.stride()).max(1) as u32;
        let mut words = Vec::new();
        for first_row in rows.clone().step_by(chunk as usize) {
            let count = chunk.min(rows.end - first_row);
            words.resize(count as usize * self.layout.row.record_words as usize, 0);
            self.pack(first_row, &mut words)?;
            take(first_row, &words)?;
        }
        Ok(())
    }
}

impl Init {
    /// Writes the initial weights of `row` in a group with this seed, before they are rounded to the table's precision.
    /// `weights` has dim elements. The values are the same on every machine.
    ///
    /// ```
    /// # use hotrow::{CpuGroup, GroupConfig, Init, Precision, prelude::*};
    /// let init = Init::Uniform { low: -0.1, high: 0.1 };
    /// let config = GroupConfig::new(&[1000], 16).with_init(init).with_seed(7).with_precision(Precision::Fp32);
    /// let mut weights = [0.0; 16];
    /// init.row(7, 123, &mut weights);
    /// assert_eq!(CpuGroup::new(config)?.read_rows(&[123])?, weights);
    /// # Ok::<(), hotrow::Error>(())
    /// ```
    pub fn row(self, seed: u32, row: u32, weights: &mut [f32]) {
        match self {
            Self::Constant(value) => weights.fill(value),
            Self::Uniform { low, high } => {
                for (element, x) in (0..).zip(weights) {
                    let bits = rng::random(seed, 0, row, element, Purpose::Value as u32);
                    *x = (low + (high - low) * ((bits >> 8) as f32 * 2f32.powi(-24))).clamp(low, high);
                }
            }
            Self::Normal { mean, std } => {
                for (element, pair) in (0..).step_by(2).zip(weights.chunks_mut(2)) {
                    let words = pcg4d([seed, 0, row, element + ((Purpose::Normal as u32) << 24)]);
                    for (x, z) in pair.iter_mut().zip(normal(words)) {
                        *x = mean + std * z;
                    }
                }
            }
        }
    }
}

/// Two independent normal numbers of mean 0 and standard deviation 1 from random words (Box & Muller 1958). libm uses
/// IEEE operations only, so the bits are the same everywhere; the standard library calls the system's functions.
fn normal(words: [u32; 4]) -> [f32; 2] {
    let radius = (-2.0 * libm::logf((words[0] as f32 + 0.5) * 2f32.powi(-32))).sqrt();
    let (sin, cos) = libm::sincosf(TAU * ((words[1] >> 8) as f32 * 2f32.powi(-24)));
    [radius * cos, radius * sin]
}

/// The error of a row that cannot be stored.
fn not_packed(row: u32, weights: &[f32], most: f32) -> Error {
    let found = match weights.iter().position(|x| !x.is_finite() || x.abs() > most) {
        Some(element) => format!("{} at element {element}", weights[element]),
        None => "a largest and a smallest value that are further apart".into(),
    };
    Error::Source {
        name: "source".into(),
        row,
        wanted: match most {
            f32::MAX => "finite values whose range is a finite FP32 number".into(),
            _ => format!("finite values of at most {most} in magnitude"),
        },
        found,
        remedy: "correct the row",
        source: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(init: Init, seed: u32, row: u32, dim: usize) -> Vec<f32> {
        let mut weights = vec![f32::NAN; dim];
        init.row(seed, row, &mut weights);
        weights
    }

    const STANDARD: Init = Init::Normal { mean: 0.0, std: 1.0 };

    #[test]
    fn normal_known_answers() {
        // Computed by a separate program in FP64 from the formulas.
        let known = [
            (0, 0, 0, [1.072_715_85, 0.184_425_589]),
            (7, 3, 0, [-0.096_167_291_4, -0.044_722_610_4]),
            (7, 3, 2, [-0.431_418_029, 0.614_314_912]),
            (1_234_567, u32::MAX - 2, 126, [-0.779_144_986, 1.278_031_44]),
        ];
        let close = |x: f32, exact: f64| (f64::from(x) - exact).abs() < 1e-6;
        for (seed, at, element, exact) in known {
            let weights = row(STANDARD, seed, at, 128);
            for k in 0..2 {
                assert!(close(weights[element + k], exact[k]), "{seed} {at} {element}: {}", weights[element + k]);
                assert!(!close(row(STANDARD, seed + 1, at, 128)[element + k], exact[k]));
                assert!(!close(row(STANDARD, seed, at ^ 1, 128)[element + k], exact[k]));
            }
        }
    }

    #[test]
    fn normal_bits() {
        // The same on every machine. A change of these bits changes every table made from a seed.
        let bits = row(Init::Normal { mean: 0.5, std: 0.1 }, 7, 3, 5).iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits, NORMAL_BITS);
    }

    const NORMAL_BITS: [u32; 5] = [0x3efb_1385, 0x3efd_b5d0, 0x3ee9_e951, 0x3f0f_b9f9, 0x3ef6_35e5];

    #[test]
    fn normal_scales_and_shifts() {
        let plain = row(STANDARD, 9, 5, 33);
        let scaled = row(Init::Normal { mean: 2.0, std: 0.25 }, 9, 5, 33);
        assert!(plain.iter().zip(&scaled).all(|(z, x)| *x == 2.0 + 0.25 * z));
        assert_eq!(plain[..32], row(STANDARD, 9, 5, 32), "an odd dim ends with half a pair");
        // The ends of the radius: zero, then the largest.
        assert_eq!(normal([u32::MAX, 0, 0, 0])[0], 0.0);
        assert!((6.7..6.8).contains(&normal([0; 4])[0]));
    }

    /// Checks 2^20 numbers against the normal distribution: each statistic is within six standard deviations of its
    /// mean.
    fn like_normal(values: &[f32]) -> Result<(), String> {
        let n = values.len() as f64;
        let moment = |k: i32| values.iter().map(|&x| f64::from(x).powi(k)).sum::<f64>() / n;
        // For x^k the mean, and the variance, which is the mean of x^2k less the mean's square.
        for (k, mean, square) in [(1, 0.0, 1.0), (2, 1.0, 3.0), (3, 0.0, 15.0), (4, 3.0, 105.0)] {
            let (found, spread) = (moment(k), 6.0 * ((square - mean * mean) / n).sqrt());
            if (found - mean).abs() > spread {
                return Err(format!("moment {k}: wanted {mean} +- {spread}, found {found}"));
            }
        }
        for below in -40..=40 {
            let x = f64::from(below) / 10.0;
            let wanted = 0.5 * libm::erfc(-x / std::f64::consts::SQRT_2);
            let found = values.iter().filter(|&&y| f64::from(y) < x).count() as f64 / n;
            if (found - wanted).abs() > 6.0 * (wanted * (1.0 - wanted) / n).sqrt() {
                return Err(format!("below {x}: wanted {wanted}, found {found}"));
            }
        }
        let neighbours = values.windows(2).map(|pair| f64::from(pair[0]) * f64::from(pair[1])).sum::<f64>() / n;
        if neighbours.abs() > 6.0 / n.sqrt() {
            return Err(format!("neighbours: wanted no correlation, found {neighbours}"));
        }
        Ok(())
    }

    #[test]
    fn normal_moments() {
        let values: Vec<f32> = (0..1 << 13).flat_map(|at| row(STANDARD, 11, at, 128)).collect();
        assert_eq!(like_normal(&values), Ok(()));
        // The check must reject other distributions of mean 0 and standard deviation 1, and repeated numbers.
        let uniform = Init::Uniform { low: -3f32.sqrt(), high: 3f32.sqrt() };
        let uniform: Vec<f32> = (0..1 << 13).flat_map(|at| row(uniform, 11, at, 128)).collect();
        assert!(like_normal(&uniform).unwrap_err().contains("moment 4"));
        assert!(like_normal(&values.iter().map(|x| x + 0.01).collect::<Vec<_>>()).unwrap_err().contains("moment 1"));
        let twice: Vec<f32> = values.iter().flat_map(|&x| [x; 2]).take(values.len()).collect();
        assert!(like_normal(&twice).unwrap_err().contains("neighbours"));
        assert!(like_normal(&values.iter().map(|x| x.clamp(-3.5, 3.5)).collect::<Vec<_>>()).is_err());
    }
}
