//! The loss of a table in a shared array: against the formula with its matrix written out in FP64, and bad input.

use hotrow::{CpuSharedGroup, Error as Refused, Source, prelude::*, robe::Config};
use hotrow_harness::shared::place;
use hotrow_plan::{
    Error,
    fidelity::{Fidelity, Row, fit},
};
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

fn total(config: &Config) -> u32 {
    config.tables.iter().sum()
}

fn random_table(config: &Config, seed: u64) -> Vec<f32> {
    let mut random = Pcg64::seed_from_u64(seed);
    (0..total(config) * config.dim).map(|_| random.random_range(-1.0..1.0)).collect()
}

/// Checks that `m` is the least squares solution of least norm: it solves the normal equations `A^T C (A m - e) = 0`, where A has a line for each element of
/// the table with a 1 at its weight, and C the uses of each element's row; and it is 0 where the equations leave it free.
fn least_squares(config: &Config, table: &[f32], uses: Option<&[u32]>, m: &[f32]) -> Result<(), String> {
    let mut sums = vec![(0.0, 0.0); m.len()];
    for (element, &x) in table.iter().enumerate() {
        let (row, element) = (element as u32 / config.dim, element as u32 % config.dim);
        let (w, c) = (place(config, row.into(), element), uses.map_or(1.0, |uses| f64::from(uses[row as usize])));
        sums[w].0 += c;
        sums[w].1 += c * (f64::from(m[w]) - f64::from(x));
    }
    for (w, (&weight, (mass, slope))) in m.iter().zip(sums).enumerate() {
        // A weight is rounded to FP32 once.
        let off = slope.abs() > mass * (f64::from(weight).abs() * 2f64.powi(-24) + 1e-12);
        if off || mass == 0.0 && weight != 0.0 {
            return Err(format!("weight {w}: {weight}, read {mass} times, slope {slope}"));
        }
    }
    Ok(())
}

fn configs() -> impl Strategy<Value = Config> {
    (prop::collection::vec(1u32..12, 1..3), 1u32..10, 1u32..14, 0u32..90).prop_map(|(tables, dim, chunk, more)| {
        match more {
            ..10 => Config::direct(&tables, dim).unwrap(),
            _ => Config::new(&tables, dim, chunk + more, chunk),
        }
    })
}

proptest! {
    #![proptest_config(hotrow_harness::seed::proptest("fidelity", 200))]

    #[test]
    fn a_fit_is_the_least_squares_solution(config in configs(), seed: u64) {
        let table = random_table(&config, seed);
        let weights = fit(&config, &table, None).unwrap();
        prop_assert_eq!(least_squares(&config, &table, None, &weights), Ok(()));
        let mut random = Pcg64::seed_from_u64(seed);
        let mut uses: Vec<u32> = (0..total(&config)).map(|_| random.random_range(0..4)).collect();
        uses[0] = 1;
        let used = fit(&config, &table, Some(&uses)).unwrap();
        prop_assert_eq!(least_squares(&config, &table, Some(&uses), &used), Ok(()));
        // One wrong weight, or a weight other than 0 that no row reads, must be noticed.
        let mut wrong = weights;
        wrong[random.random_range(0..config.weights as usize)] += 1e-4;
        prop_assert!(least_squares(&config, &table, None, &wrong).is_err());
    }

    /// Eps is the smallest number that satisfies definition 2: no x needs a larger one, and one x needs exactly eps.
    #[test]
    fn eps_is_definition_2(config in configs(), seed: u64) {
        let table = random_table(&config, seed);
        let mut random = Pcg64::seed_from_u64(!seed);
        // The definition holds for any array, not only for a fitted one.
        let m: Vec<f32> = (0..config.weights).map(|_| random.random_range(-1.0..1.0)).collect();
        let rows: Vec<u32> = (0..9).map(|_| random.random_range(0..total(&config))).collect();
        let found = Fidelity::new(&config, &m, &table, &rows).unwrap();
        prop_assert_eq!(&found.rows.iter().map(|row| row.row).collect::<Vec<_>>(), &rows);
        let dim = config.dim as usize;
        let row = |row: u32| table[row as usize * dim..][..dim].iter().map(|&x| f64::from(x)).collect::<Vec<_>>();
        let kept = |row: u32| {
            (0..config.dim).map(|e| f64::from(m[place(&config, row.into(), e)])).collect::<Vec<_>>()
        };
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let norm = |a: &[f64]| dot(a, a).sqrt();
        let minus = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a - b).collect::<Vec<_>>();
        let asked = |r: u32, x: &[f64]| (dot(&kept(r), x) - dot(&row(r), x)).abs() / norm(x);
        for measured in &found.rows {
            let r = measured.row;
            prop_assert!((measured.norm - norm(&row(r))).abs() < 1e-12);
            for _ in 0..10 {
                let x: Vec<f64> = (0..dim).map(|_| random.random_range(-1.0..1.0)).collect();
                prop_assert!(asked(r, &x) <= measured.eps + 1e-12);
            }
            let worst = minus(&kept(r), &row(r));
            prop_assert!((asked(r, &worst) - measured.eps).abs() <= 1e-12);
        }
        // Theorem 3: the distance of two rows changes by at most the sum of their eps.
        for [i, j] in found.rows.windows(2).map(|pair| [pair[0], pair[1]]) {
            let change = norm(&minus(&kept(i.row), &kept(j.row))) - norm(&minus(&row(i.row), &row(j.row)));
            prop_assert!(change.abs() <= i.eps + j.eps + 1e-12);
        }
    }
}

/// A group that is given the array reads the rows that are measured.
#[test]
fn a_group_takes_a_fit_over() {
    let config = Config::new(&[300, 77], 20, 900, 8);
    let table = random_table(&config, 3);
    let weights = fit(&config, &table, None).unwrap();
    let mut group = CpuSharedGroup::new(config.clone()).unwrap();
    group.write_weights(&weights).unwrap();
    let kept = group.read_rows(&(0..377).collect::<Vec<_>>()).unwrap();
    let lost: f64 = kept.iter().zip(&table).map(|(&a, &b)| (f64::from(a) - f64::from(b)).powi(2)).sum();
    let found = Fidelity::new(&config, &weights, &table, &(0..377).collect::<Vec<_>>()).unwrap();
    assert!((lost / 377.0 - found.mean_square()).abs() < 1e-9 && lost > 100.0, "{lost}");
}

/// More rows than one block; and the largest floats, whose sum is no float, but whose mean is one.
#[test]
fn tables_may_be_long_and_values_large() {
    let config = Config::new(&[90_000], 13, 5000, 5);
    let table = random_table(&config, 11);
    assert_eq!(least_squares(&config, &table, None, &fit(&config, &table, None).unwrap()), Ok(()));
    let config = Config::new(&[40], 4, 2, 2);
    for uses in [None, Some(&[u32::MAX; 40][..])] {
        assert_eq!(fit(&config, &vec![f32::MAX; 160], uses).unwrap(), [f32::MAX; 2]);
    }
}

#[test]
fn quantiles_are_of_rows() {
    let config = Config::new(&[4], 1, 1, 1);
    // The array is 0: eps is |x|.
    let table = vec![3.0, -1.0, 0.0, 2.0];
    let found = Fidelity::new(&config, &[0.0], &table, &[0, 1, 2, 3]).unwrap();
    let quantiles = [0.0, 0.25, 0.26, 0.5, 0.75, 0.76, 1.0].map(|share| found.quantile(share, |row| row.eps));
    assert_eq!(quantiles, [0.0, 0.0, 1.0, 1.0, 2.0, 3.0, 3.0]);
    assert_eq!(found.mean_square(), 3.5);
    assert_eq!([0.25, 0.5, 1.0].map(|share| found.quantile(share, Row::relative)), [0.0, 1.0, 1.0]);
    // The relative eps of a row of zeros is infinite if the array does not keep the row.
    let found = Fidelity::new(&config, &[0.5], &table, &[2, 2, 3]).unwrap();
    assert_eq!([0.3, 1.0].map(|share| found.quantile(share, Row::relative)), [0.75, f64::INFINITY]);
}

fn refused<T: std::fmt::Debug>(found: Result<T, Error>) -> Refused {
    if let Err(Error::Hotrow(refused)) = found { refused } else { panic!("{found:?}") }
}

#[test]
fn bad_input_is_named() {
    let config = Config::new(&[6, 4], 4, 20, 2);
    let good = vec![1.0f32; 40];
    let fit = |config: &Config, table: &dyn Source, uses: Option<&[u32]>| refused(fit(config, table, uses));
    assert!(matches!(fit(&config.clone().with_weights(1), &good, None), Refused::Config { field: "weights", .. }));
    assert!(matches!(
        fit(&config, &good[1..].to_vec(), None),
        Refused::Length { what: "source", wanted: 40, found: 39 }
    ));
    assert!(matches!(fit(&config, &good, Some(&[1; 9])), Refused::Length { what: "uses", wanted: 10, found: 9 }));
    let unused = hotrow_plan::fidelity::fit(&config, &good, Some(&[0; 10]));
    assert!(matches!(unused, Err(Error::Argument { what: "uses", .. })));
    for wrong in [f32::NAN, f32::INFINITY] {
        let mut table = good.clone();
        (table[30], table[33]) = (wrong, wrong);
        let Refused::Source { row, found, .. } = fit(&config, &table, None) else { panic!("{wrong}") };
        assert_eq!((row, found), (7, format!("{wrong} at element 2")));
        assert!(Fidelity::new(&config, &[1.0; 20], &table, &[7]).is_err());
        Fidelity::new(&config, &[1.0; 20], &table, &[6]).unwrap();
    }
    let measure = |weights: &[f32], rows: &[u32]| refused(Fidelity::new(&config, weights, &good, rows));
    assert!(matches!(measure(&[1.0; 19], &[1]), Refused::Length { what: "weights", wanted: 20, found: 19 }));
    assert!(matches!(measure(&[f32::NAN; 20], &[1]), Refused::Source { row: 0, .. }));
    assert!(matches!(measure(&[1.0; 20], &[9, 10]), Refused::RowOutOfRange { rows: 10, position: 1, row: 10, .. }));
    let none = Fidelity::new(&config, &[1.0; 20], &good, &[]);
    assert!(matches!(none, Err(Error::Argument { what: "rows", .. })));
}
