//! `--distribution`: a model of lookups instead of a trace, such as `zipf:rows=1e9,s=1.05`.

use super::amount;
use hotrow_plan::Error;
use hotrow_plan::scars::{Formula, Skew};
use hotrow_report::failure::Failure;
use hotrow_report::spec::{Kind, Spec};
use rand::{Rng, RngExt};
use rand_distr::{Distribution as _, StandardNormal, Zipf};

/// Rows 0, 1, .. with probabilities of a given shape.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Distribution {
    pub(crate) text: String,
    pub(crate) rows: u64,
    pub(crate) formula: Formula,
}

const KINDS: [Kind; 4] = [
    ("zipf", &["rows", "s"], "zipf:rows=1e9,s=1.05"),
    ("exponential", &["rows", "scale"], "exponential:rows=1e6,scale=1e4"),
    ("half-normal", &["rows", "scale"], "half-normal:rows=1e6,scale=1e4"),
    ("uniform", &["rows"], "uniform:rows=1e6"),
];

const WANTED: &str = "wanted zipf:rows=N,s=S, exponential:rows=N,scale=X, half-normal:rows=N,scale=X or uniform:rows=N";

impl std::str::FromStr for Distribution {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let spec = Spec::parse(text, &KINDS, WANTED)?;
        let formula = match spec.kind {
            "zipf" => match spec.required("s", amount::positive)? {
                // Beyond it the first row has all lookups, to the last bit, and sums of the formula overflow.
                s if s > 1000.0 => {
                    return Err(format!("wanted an s of at most 1000, found {s}; s=1000 looks up the first row alone"));
                }
                s => Formula::Zipf(s),
            },
            "exponential" => Formula::Exponential(spec.required("scale", amount::positive)?),
            "half-normal" => Formula::HalfNormal(spec.required("scale", amount::positive)?),
            // A uniform distribution is Zipf's with s = 0.
            _ => Formula::Zipf(0.0),
        };
        Ok(Self { text: text.trim().to_owned(), rows: spec.required("rows", amount::count)?, formula })
    }
}

impl Distribution {
    /// The rows, if a group of tables holds so many.
    pub(super) fn table_rows(&self) -> Result<u32, Failure> {
        u32::try_from(self.rows).ok().filter(|&rows| rows < u32::MAX).ok_or_else(|| {
            Failure::Usage(format!(
                "--distribution: wanted at most 4294967294 rows, what a group of tables holds, found {}; split them over several",
                self.rows
            ))
        })
    }

    /// The skew, for the library's model.
    pub(crate) fn skew(&self) -> Result<Skew, Error> {
        Skew::of(self.formula, self.rows)
    }

    /// Draws `n` independent lookups.
    pub(crate) fn draw(&self, n: usize, random: &mut impl Rng) -> anyhow::Result<Vec<u32>> {
        let rows = u32::try_from(self.rows)?;
        let mut drawn = Vec::new();
        if drawn.try_reserve_exact(n).is_err() {
            anyhow::bail!(
                "{}: wanted memory for {n} lookups, found too little; take smaller or fewer batches",
                self.text
            );
        }
        match self.formula {
            Formula::Zipf(s) => {
                let ranks = Zipf::new(f64::from(rows), s)?;
                // Ranks run from 1 to `rows`; the minimum guards against rounding.
                drawn.extend((0..n).map(|_| (ranks.sample(random) as u32 - 1).min(rows - 1)));
            }
            // The integer part of an exponential variable that is cut off at `rows`, by the inverse of its distribution.
            Formula::Exponential(scale) => {
                let mass = -(-f64::from(rows) / scale).exp_m1();
                let row = |u: f64| (-scale * (-u * mass).ln_1p()) as u32;
                drawn.extend((0..n).map(|_| row(random.random()).min(rows - 1)));
            }
            Formula::HalfNormal(scale) => drawn.extend((0..n).map(|_| half_normal(rows, scale, random))),
        }
        Ok(drawn)
    }
}

/// Draws row i of `rows` with probability ~ e^(-(i / scale)^2 / 2), by rejection: at least one try in six is accepted.
fn half_normal(rows: u32, scale: f64, random: &mut impl Rng) -> u32 {
    let weight = |i: f64| (-0.5 * (i / scale) * (i / scale)).exp();
    loop {
        let (row, taken) = if scale > f64::from(rows) {
            let row = random.random_range(0..rows);
            (f64::from(row), weight(row.into()))
        } else if random.random::<f64>() * (1.0 + scale * (0.5 * std::f64::consts::PI).sqrt()) < 1.0 {
            // Row 0 has weight 1; all other rows together have the integral.
            (0.0, 1.0)
        } else {
            // Row i is drawn from (i - 1, i], where the normal density is at least that of i.
            let normal: f64 = StandardNormal.sample(random);
            let (x, row) = (normal.abs() * scale, (normal.abs() * scale).ceil());
            (row, weight(row) / weight(x))
        };
        // If both weights are too small for a float, their quotient is not a number, and the row is rejected.
        if row < f64::from(rows) && random.random::<f64>() < taken {
            return row as u32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_pcg::Pcg64;

    /// Pearson's chi squared of 40,000 draws over 12 rows, with 11 degrees of freedom. By chance it exceeds 31.3 once in a thousand.
    fn chi_squared(drawn: &str, wanted: &str) -> f64 {
        let [drawn, wanted] = [drawn, wanted].map(|text| text.parse::<Distribution>().unwrap());
        let mut random = Pcg64::seed_from_u64(1);
        let mut counts = [0.0; 12];
        for row in drawn.draw(40_000, &mut random).unwrap() {
            counts[row as usize] += 1.0;
        }
        let skew = wanted.skew().unwrap();
        (0..12)
            .map(|row| {
                let expected = 40_000.0 * (skew.mass(row + 1) - skew.mass(row));
                (counts[row as usize] - expected) * (counts[row as usize] - expected) / expected
            })
            .sum()
    }

    #[test]
    fn draws_follow_the_model() {
        for text in
            ["zipf:rows=12,s=1.2", "exponential:rows=12,scale=5", "half-normal:rows=12,scale=5", "uniform:rows=12"]
        {
            let found = chi_squared(text, text);
            assert!(found < 31.3, "{text}: {found}");
        }
        assert!(chi_squared("half-normal:rows=12,scale=5", "half-normal:rows=12,scale=5.5") > 31.3);
    }
}
