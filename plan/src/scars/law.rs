//! Probabilities given by a formula: weights of rows, and their sums over any number of rows.

use libm::{erf, erfc};

/// A formula for probabilities, most probable row first: the three of SCARS. [`Skew::of`](crate::scars::skew::Skew::of) makes a distribution of it.
///
/// Example: the [module](crate::scars).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Formula {
    /// `(i + 1)^-s`.
    Zipf(f64),
    /// `e^(-i / scale)`.
    Exponential(f64),
    /// `e^(-(i / scale)^2 / 2)`.
    HalfNormal(f64),
}

/// Number of rows whose Zipf weights are added one by one. Later weights change slowly enough for an integral.
const HEAD: u64 = 64;
/// The smallest scale of a half-normal law whose sums are computed by integrals.
const SMOOTH: f64 = 32.0;

impl Formula {
    /// The natural logarithm of a row's weight.
    pub(crate) fn log_weight(self, row: f64) -> f64 {
        match self {
            Self::Zipf(s) => -s * row.ln_1p(),
            Self::Exponential(scale) => -row / scale,
            Self::HalfNormal(scale) => -0.5 * (row / scale).powi(2),
        }
    }

    /// The last row whose weight is at least `e^-fall` of this row's, as a real number.
    pub(crate) fn last_within(self, row: f64, fall: f64) -> f64 {
        match self {
            Self::Zipf(s) => row + (row + 1.0) * (fall / s).exp_m1(),
            Self::Exponential(scale) => row + fall * scale,
            Self::HalfNormal(scale) => (row * row + 2.0 * fall * scale * scale).sqrt(),
        }
    }

    /// The sum of the weights of the rows `from .. to`. The relative error is about 1e-11.
    ///
    /// Exponential: the geometric series. Others, where weights are smooth on the scale of a row: Euler and Maclaurin's sum about the middles of
    /// rows, `integral from a-1/2 to b-1/2 of w, - [w']/24 + 7 [w''']/5760`. Elsewhere they are added term by term.
    pub(crate) fn sum(self, from: u64, to: u64) -> f64 {
        if from >= to {
            return 0.0;
        }
        match self {
            Self::Exponential(scale) => {
                let rows = (to - from) as f64;
                self.log_weight(from as f64).exp() * (-rows / scale).exp_m1() / (-1.0 / scale).exp_m1()
            }
            Self::HalfNormal(scale) if scale < SMOOTH => self.one_by_one(from, to),
            Self::HalfNormal(_) => self.by_integral(from, to),
            Self::Zipf(_) => {
                let head = to.min(HEAD);
                let tail = from.max(HEAD);
                let head = if from < head { self.one_by_one(from, head) } else { 0.0 };
                head + if tail < to { self.by_integral(tail, to) } else { 0.0 }
            }
        }
    }

    fn one_by_one(self, from: u64, to: u64) -> f64 {
        // Weights descend, so the first one that underflows to 0 ends the sum.
        (from..to).map(|row| self.log_weight(row as f64).exp()).take_while(|&weight| weight > 0.0).sum()
    }

    fn by_integral(self, from: u64, to: u64) -> f64 {
        let (a, b) = (from as f64 - 0.5, to as f64 - 0.5);
        let (first_a, third_a) = self.derivatives(a);
        let (first_b, third_b) = self.derivatives(b);
        self.integral(a, b) - (first_b - first_a) / 24.0 + 7.0 / 5760.0 * (third_b - third_a)
    }

    /// The first and third derivative of the weight.
    fn derivatives(self, row: f64) -> (f64, f64) {
        let weight = self.log_weight(row).exp();
        match self {
            Self::Zipf(s) => {
                let x = row + 1.0;
                (-s * weight / x, -s * (s + 1.0) * (s + 2.0) * weight / x.powi(3))
            }
            Self::Exponential(scale) => (-weight / scale, -weight / scale.powi(3)),
            Self::HalfNormal(scale) => {
                let x = row / scale;
                (-x * weight / scale, (3.0 * x - x.powi(3)) * weight / scale.powi(3))
            }
        }
    }

    fn integral(self, a: f64, b: f64) -> f64 {
        match self {
            Self::Zipf(s) => {
                // `x^(1-s) ln(y/x) (e^z - 1)/z` with `z = (1 - s) ln(y/x)`: accurate at s = 1 and near it.
                let log = ((b - a) / (a + 1.0)).ln_1p();
                let z = (1.0 - s) * log;
                let slope = if z.abs() < 1e-12 { 1.0 } else { z.exp_m1() / z };
                ((1.0 - s) * a.ln_1p()).exp() * log * slope
            }
            Self::Exponential(scale) => -scale * (-a / scale).exp() * (-(b - a) / scale).exp_m1(),
            Self::HalfNormal(scale) => {
                let (x, y) = (a / scale, b / scale);
                if (y - x).max(x.abs() * (y - x)) < 0.25 {
                    return scale * short_bell(x, y);
                }
                let [x, y] = [x, y].map(|x| x * std::f64::consts::FRAC_1_SQRT_2);
                let between = if x < 0.5 { erf(y) - erf(x) } else { erfc(x) - erfc(y) };
                scale * (std::f64::consts::PI / 2.0).sqrt() * between
            }
        }
    }
}

/// The integral of `e^(-x^2/2)` over a short interval, by Gauss's rule of five points. A difference of two error functions would lose digits there.
fn short_bell(x: f64, y: f64) -> f64 {
    const POINTS: [(f64, f64); 3] = [
        (0.0, 128.0 / 225.0),
        (0.538_469_310_105_683_1, 0.478_628_670_499_366_47),
        (0.906_179_845_938_664, 0.236_926_885_056_189_08),
    ];
    let (middle, half) = ((x + y) / 2.0, (y - x) / 2.0);
    let at = |x: f64| (-0.5 * x * x).exp();
    let sum = POINTS.iter().skip(1).map(|&(t, weight)| weight * (at(middle - half * t) + at(middle + half * t)));
    half * (POINTS[0].1 * at(middle) + sum.sum::<f64>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slow(law: Formula, from: u64, to: u64) -> f64 {
        // The smallest first.
        (from..to).rev().map(|row| law.log_weight(row as f64).exp()).sum()
    }

    #[test]
    fn sums_are_those_of_the_terms() {
        let laws = [0.05, 0.5, 0.99, 1.0, 1.000_001, 1.3, 2.0, 7.0].map(Formula::Zipf).into_iter();
        let laws = laws.chain([0.01, 1.0, 30.0, 5000.0, 1e7].map(Formula::Exponential));
        let laws: Vec<Formula> =
            laws.chain([0.01, 1.0, 31.9, 32.0, 700.0, 20_000.0, 1e7].map(Formula::HalfNormal)).collect();
        let ranges =
            [(0, 1), (0, 100_000), (3, 70), (64, 65), (100, 140), (1000, 1001), (1000, 100_000), (99_999, 100_000)];
        for &law in &laws {
            for (from, to) in ranges {
                let (found, wanted) = (law.sum(from, to), slow(law, from, to));
                let close = (found - wanted).abs() <= 1e-9 * wanted + 1e-30;
                assert!(close, "{law:?} {from}..{to}: {found}, wanted {wanted}");
            }
        }
        // One row more or fewer must show, even of the coldest.
        let law = Formula::Zipf(1.0);
        assert!((law.sum(0, 100_000) - slow(law, 0, 99_999)).abs() > 1e-9 * slow(law, 0, 100_000));
    }

    #[test]
    fn sums_of_a_thousand_million_rows() {
        // Harmonic numbers: ln n + gamma + 1/2n.
        let n = 1_000_000_000u64;
        let harmonic = (n as f64).ln() + 0.577_215_664_901_532_9 + 0.5 / n as f64;
        assert!((Formula::Zipf(1.0).sum(0, n) / harmonic - 1.0).abs() < 1e-12);
        // Half of Gauss's integral, and half of row 0.
        let scale = 1e7;
        let bell = scale * (std::f64::consts::PI / 2.0).sqrt() + 0.5;
        assert!((Formula::HalfNormal(scale).sum(0, n) / bell - 1.0).abs() < 1e-12);
        // Parts must add up to the whole.
        for law in [Formula::Zipf(0.8), Formula::Zipf(1.2), Formula::Exponential(1e8), Formula::HalfNormal(3e8)] {
            let parts = law.sum(0, 12_345) + law.sum(12_345, 98_765_432) + law.sum(98_765_432, n);
            assert!((parts / law.sum(0, n) - 1.0).abs() < 1e-11, "{law:?}");
        }
    }
}
