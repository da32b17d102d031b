//! Searches the number of weights for a wanted eps.

use crate::{
    Error,
    fidelity::{
        fit::Fit,
        measure::{Fidelity, check_quantile},
        no_answer,
        rows::checked,
    },
};
use hotrow::{
    Source,
    robe::{Config, hash::PRIME},
};

/// The eps that is wanted.
///
/// ```
/// use hotrow::robe::Config;
/// use hotrow_plan::fidelity::{WantedEps, size_for};
///
/// // How many weights keep half of the rows within nine tenths of their length?
/// let rows: Vec<f32> = (0..200 * 8).map(|k| (k as f32).sin()).collect();
/// let config = Config::compressed(&[200], 8, 1.0, 4)?;
/// let wanted = WantedEps { quantile: 0.5, ..WantedEps::relative(0.9) };
/// let size = size_for(&config, &rows, None, &(0..200).collect::<Vec<_>>(), wanted)?;
/// assert!(size.found().is_some_and(|tried| tried.eps <= 0.9));
/// # Ok::<(), hotrow_plan::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WantedEps {
    /// The largest eps allowed, above 0.
    pub eps: f64,
    /// Whether eps is a share of the row's length instead of a length.
    pub relative: bool,
    /// The share of the rows that must have it, 0 to 1. 1 means each of them, as in definition 2.
    pub quantile: f64,
}

impl WantedEps {
    /// A length that each row must keep to.
    #[must_use]
    pub const fn absolute(eps: f64) -> Self {
        Self { eps, relative: false, quantile: 1.0 }
    }

    /// A share of its own length that each row must keep to.
    #[must_use]
    pub const fn relative(eps: f64) -> Self {
        Self { relative: true, ..Self::absolute(eps) }
    }

    fn check(&self) -> Result<(), Error> {
        check_quantile(self.quantile)?;
        if self.eps.is_finite() && self.eps > 0.0 {
            return Ok(());
        }
        Err(no_answer("eps", "a number above 0", &self.eps))
    }

    /// The eps of `found` at this quantile, absolute or relative.
    ///
    /// # Errors
    /// [`Error::Argument`] if the quantile is not from 0 to 1.
    pub fn of(&self, found: &Fidelity) -> Result<f64, Error> {
        if self.relative { found.relative_quantile(self.quantile) } else { found.quantile(self.quantile) }
    }

    /// The mean number of weights that this eps needs for a table of `values` values, if all values were independent: see [`load_for`].
    /// `constant`: the fidelity of an array that has one weight for all values.
    #[must_use]
    pub fn unlike_weights(&self, constant: &Fidelity, values: u64) -> f64 {
        let square = self.eps * self.eps * if self.relative { constant.mean_square_length() } else { 1.0 };
        values as f64 / load_for(square / constant.mean_square())
    }
}

/// A number of weights that was tried, and the eps that it gives.
///
/// Example: [`WantedEps`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tried {
    /// |M|.
    pub weights: u32,
    /// The eps of this number of weights at the wanted quantile, absolute or relative.
    pub eps: f64,
}

/// The result of a search.
///
/// Example: [`WantedEps`].
#[derive(Clone, Debug, PartialEq)]
pub struct Size {
    /// The smallest size found that gives the wanted eps. `None` if neither as many weights as the table has values do,
    /// nor [`PRIME`].
    pub weights: Option<u32>,
    /// Every size that was tried, ascending.
    pub tried: Vec<Tried>,
}

impl Size {
    /// The size found, and its eps.
    #[must_use]
    pub fn found(&self) -> Option<Tried> {
        self.tried.iter().copied().find(|tried| Some(tried.weights) == self.weights)
    }

    /// The largest size tried below the size found; its eps is too much.
    #[must_use]
    pub fn below(&self) -> Option<Tried> {
        let weights = self.weights?;
        self.tried.iter().copied().rev().find(|tried| tried.weights < weights)
    }
}

/// Searches the smallest |M| whose fit gives the wanted eps on these rows, from one chunk to as many weights as the
/// table has values. The weights of `config` do not matter. Each try is a [`Fit`], so the source is read about 15
/// times; a try takes 20 bytes a weight.
///
/// Eps does not fall strictly as |M| grows, because another size is another hash. The promise is: the returned size
/// gives the wanted eps, and the next smaller size tried, within 1 % or 1 weight of it, does not.
///
/// # Errors
/// The errors of [`Fit::new`] and [`Fidelity::new`]; [`Error::Argument`] if the wanted eps is not above 0 or the quantile
/// not from 0 to 1.
pub fn size_for(
    config: &Config,
    table: &dyn Source,
    uses: Option<&[u32]>,
    rows: &[u32],
    wanted: WantedEps,
) -> Result<Size, Error> {
    wanted.check()?;
    let mut smallest = config.clone();
    smallest.weights = config.chunk;
    let total = checked(&smallest, table)?;
    let values = u64::from(total) * u64::from(config.dim);
    let mut size = Size { weights: None, tried: Vec::new() };
    let mut does = |weights: u32| -> Result<bool, Error> {
        let mut config = config.clone();
        config.weights = weights;
        let eps = wanted.of(&Fit::new(&config, table, uses)?.fidelity(table, rows)?)?;
        size.tried.push(Tried { weights, eps });
        Ok(eps <= wanted.eps)
    };
    let found = search(config.chunk, values.min(PRIME.into()) as u32, &mut does)?;
    size.weights = found;
    size.tried.sort_unstable_by_key(|tried| tried.weights);
    Ok(size)
}

/// Finds a size from `few` to `many` that is enough, such that the next smaller one tried is not.
fn search<E>(few: u32, many: u32, does: &mut impl FnMut(u32) -> Result<bool, E>) -> Result<Option<u32>, E> {
    if many < few {
        return Ok(None);
    }
    if does(few)? {
        return Ok(Some(few));
    }
    if many == few || !does(many)? {
        return Ok(None);
    }
    let (mut few, mut many) = (few, many);
    while many - few > (few / 100).max(1) {
        let middle = (f64::from(few) * f64::from(many)).sqrt() as u32;
        let middle = middle.clamp(few + 1, many - 1);
        if does(middle)? { many = middle } else { few = middle }
    }
    Ok(Some(many))
}

/// The mean share of their variance that independent elements lose in a fit with `load` elements a weight, distributed
/// by Poisson's law: `1 - (1 - e^-load) / load`. 0 at load 0, 1 in the limit.
#[must_use]
pub fn unlike_share(load: f64) -> f64 {
    if load.is_infinite() {
        1.0
    } else if load < 1e-4 {
        // The terms left out are below the rounding of the others.
        load / 2.0 - load * load / 6.0 + load * load * load / 24.0
    } else {
        1.0 + (-load).exp_m1() / load
    }
}

/// The load at which independent elements lose this share of their variance: the inverse of [`unlike_share`]. Rows with
/// nothing in common keep a relative eps in `rows dim / load_for(eps^2)` weights. Infinite for a share of 1 or more.
#[must_use]
pub fn load_for(share: f64) -> f64 {
    if share >= 1.0 {
        return f64::INFINITY;
    }
    if share.is_nan() || share <= 0.0 {
        return 0.0;
    }
    if share < 1e-12 {
        return 2.0 * share; // the next term is a twelfth of its square
    }
    // The share is below load / 2 and above 1 - 1 / load.
    let (mut low, mut high) = (2.0 * share, (2.0 * share).max(1.0 / (1.0 - share)));
    while unlike_share(high) < share {
        high *= 2.0;
    }
    // As many halvings as a double has significant bits, and more for the width of the bounds.
    for _ in 0..128 {
        let middle = 0.5 * (low + high);
        if unlike_share(middle) < share { low = middle } else { high = middle }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn shares_by_hand() {
        let near = |a: f64, b: f64| (a - b).abs() <= 1e-12 * b.abs();
        for (load, share) in [
            (0.0, 0.0),
            (1.0, 0.367_879_441_171_442_3),
            (10.0, 0.900_004_539_992_976_2),
            (1000.0, 0.999),
            (1e-8, 4.999_999_983_333_333e-9),
            (f64::INFINITY, 1.0),
        ] {
            assert!(near(unlike_share(load), share), "{load}: {}", unlike_share(load));
            assert!(!near(unlike_share(load * 1.01 + 1e-9), share) || share == 1.0, "{load}");
        }
        // Both forms agree where they meet.
        assert!((unlike_share(0.999_999e-4) - unlike_share(1.000_001e-4)).abs() < 1e-9);
        assert_eq!([load_for(0.0), load_for(-1.0), load_for(f64::NAN)], [0.0; 3]);
        assert_eq!(load_for(1.0), f64::INFINITY);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn loads_come_back(exponent in -12f64..6.0) {
            let load = 10f64.powf(exponent);
            let back = load_for(unlike_share(load));
            // Near 1 a share has few digits of the load left.
            prop_assert!((back / load - 1.0).abs() < 1e-6 + 1e-15 * load * 10.0, "{} {}", load, back);
        }

        /// For any monotone or nearly monotone answer: the size found is enough, the next smaller one tried is not, and
        /// the two are near.
        #[test]
        fn a_search_keeps_its_promise(few in 1u32..50, more in 0u32..3000, enough in 0u32..4000, odd in 1u32..40) {
            let many = few + more;
            let mut tried = Vec::new();
            // Some small sizes are enough by chance, and some large ones are not.
            let truth = |weights: u32| (weights >= enough) ^ weights.is_multiple_of(odd * 7);
            let found = search(few, many, &mut |weights| { tried.push(weights); Ok::<_, ()>(truth(weights)) }).unwrap();
            match found {
                None => prop_assert!(!truth(few) && !truth(many)),
                Some(found) => {
                    prop_assert!(truth(found) && (few..=many).contains(&found));
                    if found > few {
                        let below = tried.iter().copied().filter(|&weights| weights < found).max().unwrap();
                        prop_assert!(!truth(below));
                        prop_assert!(found - below <= (below / 100).max(1));
                    }
                }
            }
            prop_assert!(tried.len() < 20);
        }
    }

    #[test]
    fn a_search_ends_where_there_is_nothing() {
        let mut never = |_| Ok::<_, ()>(false);
        assert_eq!(search(4, 3, &mut never), Ok(None));
        assert_eq!(search(4, 4, &mut never), Ok(None));
        assert_eq!(search(4, 5, &mut never), Ok(None));
        assert_eq!(search(1, u32::MAX, &mut |weights| Ok::<_, ()>(weights == u32::MAX)), Ok(Some(u32::MAX)));
        assert_eq!(search(1, 9, &mut |_| Err::<bool, _>("stop")), Err("stop"));
    }
}
