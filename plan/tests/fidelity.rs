//! The loss of a table in a shared array: against the formula with its matrix written out in FP64, against the expected loss of random
//! tables, and bad input.

use hotrow::{CpuSharedGroup, Error as Refused, Init, Source, prelude::*, robe::Config};
use hotrow_harness::shared;
use hotrow_plan::{
    Error,
    fidelity::{Fidelity, Fit, WantedEps, largest_singular_value, size_for, unlike_share},
};
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use shared::place;

fn total(config: &Config) -> u32 {
    config.tables.iter().sum()
}

fn random_table(config: &Config, seed: u64) -> Vec<f32> {
    let mut random = Pcg64::seed_from_u64(seed);
    (0..total(config) * config.dim).map(|_| random.random_range(-1.0..1.0)).collect()
}

/// Independent normal numbers.
fn normal_table(rows: u32, dim: usize, mean: f32, std: f32) -> Vec<f32> {
    let mut table = vec![0.0; rows as usize * dim];
    for (row, values) in (0..rows).zip(table.chunks_exact_mut(dim)) {
        Init::Normal { mean, std }.row(11, row, values);
    }
    table
}

fn all(config: &Config) -> Vec<u32> {
    (0..total(config)).collect()
}

/// The matrix A: a line for each element of the table, a column for each weight.
fn matrix(config: &Config) -> Vec<Vec<f64>> {
    let mut lines = Vec::new();
    for row in 0..u64::from(total(config)) {
        for element in 0..config.dim {
            let mut line = vec![0.0; config.weights as usize];
            line[place(config, row, element)] = 1.0;
            lines.push(line);
        }
    }
    lines
}

/// Checks that `m` is the least squares solution of least norm: it solves the normal equations `A^T C (A m - e) = 0`, where C has the uses
/// of each element's row, and is 0 where the equations leave it free.
fn least_squares(config: &Config, table: &[f32], uses: Option<&[u32]>, m: &[f32]) -> Result<(), String> {
    let a = matrix(config);
    let dim = config.dim as usize;
    let c = |element: usize| uses.map_or(1.0, |uses| f64::from(uses[element / dim]));
    let residual: Vec<f64> = (a.iter().zip(table))
        .map(|(line, &x)| line.iter().zip(m).map(|(a, &m)| a * f64::from(m)).sum::<f64>() - f64::from(x))
        .collect();
    for (w, &weight) in m.iter().enumerate() {
        let column = || a.iter().enumerate().map(move |(element, line)| line[w] * c(element));
        let mass: f64 = column().sum();
        let slope: f64 = column().zip(&residual).map(|(a, r)| a * r).sum();
        // A weight is rounded to FP32 once.
        if slope.abs() > mass * (f64::from(weight).abs() * 2f64.powi(-24) + 1e-12) {
            return Err(format!("weight {w}: {weight}, read {mass} times, slope {slope}"));
        }
        if mass == 0.0 && weight != 0.0 {
            return Err(format!("weight {w}, which nothing reads: {weight}"));
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
        let fit = Fit::new(&config, &table, None).unwrap();
        prop_assert_eq!(least_squares(&config, &table, None, fit.weights()), Ok(()));
        prop_assert_eq!(fit.reads().iter().sum::<f64>(), table.len() as f64);
        let mut random = Pcg64::seed_from_u64(seed);
        let mut uses: Vec<u32> = (0..total(&config)).map(|_| random.random_range(0..4)).collect();
        uses[0] = 1;
        let used = Fit::new(&config, &table, Some(&uses)).unwrap();
        prop_assert_eq!(least_squares(&config, &table, Some(&uses), used.weights()), Ok(()));
        // One wrong weight, or a weight other than 0 that no row reads, must be noticed.
        let w = random.random_range(0..config.weights as usize);
        let mut wrong = fit.weights().to_vec();
        wrong[w] += 1e-4;
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
        prop_assert_eq!(found.pairs.len(), 4);
        for (k, pair) in found.pairs.iter().enumerate() {
            let [i, j] = [rows[k], rows[k + 5]];
            prop_assert_eq!(pair.rows, [i, j]);
            let near = |a: f64, b: f64| (a - b).abs() <= 1e-12;
            prop_assert!(near(pair.inner, dot(&row(i), &row(j))));
            prop_assert!(near(pair.inner_error, dot(&kept(i), &row(j)) - pair.inner));
            prop_assert!(pair.inner_error.abs() <= pair.inner_bound + 1e-12);
            prop_assert!(near(pair.distance, norm(&minus(&row(i), &row(j)))));
            prop_assert!(near(pair.distance_error, norm(&minus(&kept(i), &kept(j))) - pair.distance));
            prop_assert!(pair.distance_error.abs() <= pair.distance_bound + 1e-12);
        }
    }
}

/// A group that is given the array reads the rows that the report describes.
#[test]
fn a_group_takes_a_fit_over() {
    let config = Config::new(&[300, 77], 20, 900, 8);
    let table = random_table(&config, 3);
    let fit = Fit::new(&config, &table, None).unwrap();
    let rows = all(&config);
    let reported = fit.fidelity(&table, &rows).unwrap();
    let mut group = CpuSharedGroup::new(config).unwrap();
    let eps = |group: &mut CpuSharedGroup| -> Vec<f64> {
        let kept = group.read_rows(&rows).unwrap();
        let squares = kept.iter().zip(&table).map(|(&a, &b)| (f64::from(a) - f64::from(b)).powi(2));
        squares.collect::<Vec<_>>().chunks(20).map(|row| row.iter().sum::<f64>().sqrt()).collect()
    };
    let same = |found: &[f64]| found.iter().zip(&reported.rows).all(|(a, row)| (a - row.eps).abs() < 1e-12);
    assert!(!same(&eps(&mut group)), "initial values are nobody's fit");
    group.write_weights(fit.weights()).unwrap();
    assert!(same(&eps(&mut group)));
    assert_eq!(fit.clone().into_weights(), fit.weights());
}

/// More rows than one block, on several threads, give the same bits, and the right ones.
#[test]
fn threads_and_blocks_do_not_matter() {
    let config = Config::new(&[90_000], 13, 5000, 5);
    let table = normal_table(90_000, 13, 0.3, 1.0);
    let (mut sums, mut reads) = (vec![0.0; 5000], vec![0.0; 5000]);
    for row in 0..90_000 {
        for element in 0..13 {
            let w = place(&config, row, element);
            sums[w] += f64::from(table[row as usize * 13 + element as usize]);
            reads[w] += 1.0;
        }
    }
    for threads in [1, 2, 3, 16] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let fit = pool.install(|| Fit::new(&config, &table, None)).unwrap();
        for w in 0..5000 {
            assert_eq!(fit.weights()[w], (sums[w] / reads[w]) as f32, "{threads} threads, weight {w}");
        }
        assert_eq!(fit.reads(), reads);
    }
}

/// The distance of the mean of eps^2 / dim over all rows from the expected `share`, in standard errors.
fn off(found: &Fidelity, dim: u32, share: f64) -> f64 {
    let n = found.rows.len() as f64;
    let each = || found.rows.iter().map(|row| row.eps * row.eps / f64::from(dim));
    let mean = each().sum::<f64>() / n;
    let variance = each().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
    (mean - share).abs() / (variance / n).sqrt()
}

/// Independent rows lose the expected share, by the hash's own counts; Poisson's law is close to it.
#[test]
fn unlike_rows_lose_what_is_expected() {
    for (dim, chunk) in [(16, 1), (16, 8), (20, 32), (33, 5)] {
        for compression in [0.3, 1.0, 3.0, 10.0, 100.0] {
            let rows = 6000;
            let weights = (f64::from(rows * dim) / compression) as u32;
            let config = Config::new(&[rows], dim, weights, chunk);
            let table = normal_table(rows, dim as usize, 0.0, 1.0);
            let fit = Fit::new(&config, &table, None).unwrap();
            let found = fit.fidelity(&table, &all(&config)).unwrap();
            let share = fit.unlike_share(&all(&config)).unwrap().unwrap();
            // Rows share weights, so their errors are not quite independent of each other.
            let by = off(&found, dim, share);
            assert!(by < 5.0, "dim {dim}, chunk {chunk}, {compression} x: {by} standard errors");
            let load = f64::from(rows * dim) / f64::from(weights);
            // The evenness of the hash matters where a weight has few readers. With many readers it makes no difference.
            let poisson = unlike_share(load);
            assert!(load < 9.9 || (poisson - share).abs() < 1e-3, "load {load}: {poisson} {share}");
            // The comparison must reject another share.
            for wrong in [poisson, 1.05 * share, 0.95 * share] {
                assert!((wrong - share).abs() < 0.02 || off(&found, dim, wrong) > 6.0, "{wrong} {share}");
            }
            assert!(off(&found, dim, 0.0) > 20.0);
        }
    }
}

/// A table of nearly equal values is kept. Clusters are not, because the hash does not depend on values.
#[test]
fn only_what_is_alike_everywhere_is_kept() {
    let (rows, dim) = (4000, 16);
    let config = Config::compressed(&[rows], dim, 100.0, 8).unwrap();
    let share = |table: &Vec<f32>| {
        let found = Fit::new(&config, table, None).unwrap().fidelity(table, &all(&config)).unwrap();
        found.mean_square() / f64::from(dim)
    };
    // Values of variance 1 around 50, and around 0.
    let [far, near] = [50.0, 0.0].map(|mean| share(&normal_table(rows, 16, mean, 1.0)));
    assert!((far - near).abs() < 0.01 && (near - unlike_share(100.0)).abs() < 0.02, "{far} {near}");
    assert!(share(&vec![0.7; 64_000]) < 1e-12);
    // Ten different rows, 400 times each.
    let ten = normal_table(10, 16, 0.0, 1.0);
    let variance = ten.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / 160.0
        - (ten.iter().map(|&x| f64::from(x)).sum::<f64>() / 160.0).powi(2);
    let clustered = share(&ten.repeat(400)) / variance;
    assert!(clustered > 0.9, "{clustered}");
}

#[test]
fn quantiles_are_of_rows() {
    let config = Config::new(&[4], 1, 1, 1);
    // The array is 0: eps is |x|.
    let table = vec![3.0, -1.0, 0.0, 2.0];
    let found = Fidelity::new(&config, &[0.0], &table, &[0, 1, 2, 3]).unwrap();
    let quantiles = [0.0, 0.25, 0.26, 0.5, 0.75, 0.76, 1.0].map(|q| found.quantile(q).unwrap());
    assert_eq!(quantiles, [0.0, 0.0, 1.0, 1.0, 2.0, 3.0, 3.0]);
    assert_eq!((found.max(), found.mean(), found.mean_square()), (3.0, 1.5, 3.5));
    assert_eq!([0.25, 0.5, 1.0].map(|q| found.relative_quantile(q).unwrap()), [0.0, 1.0, 1.0]);
    // The relative eps of a row of zeros is infinite if the array does not keep the row.
    let found = Fidelity::new(&config, &[0.5], &table, &[2, 2, 3]).unwrap();
    assert_eq!([0.3, 1.0].map(|q| found.relative_quantile(q).unwrap()), [0.75, f64::INFINITY]);
    assert_eq!((found.rows.len(), found.pairs.len()), (3, 1));
    for wrong in [-0.1, 1.1, f64::NAN] {
        assert!(matches!(found.quantile(wrong), Err(Error::Argument { what: "quantile", .. })));
    }
}

/// Every number of weights for a small table.
#[test]
fn the_size_found_does_and_the_next_does_not() {
    let config = Config::new(&[24], 4, 0, 2);
    let mut found_some = 0;
    for seed in hotrow_harness::seeds("sizes of arrays", 6) {
        let table = random_table(&config, seed);
        let rows: Vec<u32> = (0..24).step_by(2).collect();
        for (eps, relative, quantile) in [
            (0.4, false, 0.5),
            (0.9, false, 1.0),
            (0.6, true, 0.5),
            (1.5, false, 1.0),
            (0.01, false, 0.5),
            (5.0, true, 0.9),
        ] {
            let wanted = WantedEps { eps, relative, quantile };
            let eps_of = |weights| {
                let config = config.clone().with_weights(weights);
                let fit = Fit::new(&config, &table, None).unwrap();
                wanted.of(&fit.fidelity(&table, &rows).unwrap()).unwrap()
            };
            let size = size_for(&config, &table, None, &rows, wanted).unwrap();
            assert!(size.tried.is_sorted_by_key(|tried| tried.weights));
            for tried in &size.tried {
                assert_eq!(tried.eps, eps_of(tried.weights));
            }
            match size.weights {
                None => assert!(eps_of(96) > eps && eps_of(2) > eps),
                Some(weights) => {
                    found_some += 1;
                    assert!((2..=96).contains(&weights) && eps_of(weights) <= eps);
                    assert!(weights == 2 || eps_of(weights - 1) > eps);
                }
            }
        }
    }
    assert!((6..36).contains(&found_some), "{found_some} of 36");
    // A table smaller than a chunk.
    let config = Config::new(&[1], 4, 0, 5);
    let size = size_for(&config, &vec![1.0; 4], None, &[0], WantedEps::absolute(1.0));
    assert_eq!(size.unwrap().weights, None);
}

/// A source without row 5.
fn broken(first_row: u32, dim: usize, out: &mut [f32]) -> Result<(), Refused> {
    out.fill(1.0);
    if (first_row..first_row + (out.len() / dim) as u32).contains(&5) {
        return Err(Refused::Source {
            name: "mine".into(),
            row: 5,
            wanted: "it".into(),
            found: "none".into(),
            remedy: "look for it",
            source: None,
        });
    }
    Ok(())
}

#[test]
fn bad_input_is_named() {
    let config = Config::new(&[6, 4], 4, 20, 2);
    let good = vec![1.0f32; 40];
    let fit = |config: &Config, table: &dyn Source, uses: Option<&[u32]>| Fit::new(config, table, uses).unwrap_err();
    assert!(matches!(
        fit(&config.clone().with_weights(1), &good, None),
        Error::Hotrow(Refused::Config { field: "weights", .. })
    ));
    assert!(matches!(
        fit(&config, &good[1..].to_vec(), None),
        Error::Hotrow(Refused::Length { what: "source", wanted: 40, found: 39 })
    ));
    assert!(matches!(
        fit(&config, &good, Some(&[1; 9])),
        Error::Hotrow(Refused::Length { what: "uses", wanted: 10, found: 9 })
    ));
    assert!(matches!(fit(&config, &good, Some(&[0; 10])), Error::Argument { what: "uses", .. }));
    assert!(matches!(fit(&config, &broken, None), Error::Hotrow(Refused::Source { row: 5, .. })));
    for wrong in [f32::NAN, f32::INFINITY] {
        let mut table = good.clone();
        (table[30], table[33]) = (wrong, wrong);
        let Error::Hotrow(Refused::Source { row, found, .. }) = fit(&config, &table, None) else { panic!("{wrong}") };
        assert_eq!((row, found), (7, format!("{wrong} at element 2")));
        assert!(largest_singular_value(&config, &table).is_err());
        let weights = [1.0; 20];
        assert!(Fidelity::new(&config, &weights, &table, &[7]).is_err());
        Fidelity::new(&config, &weights, &table, &[6]).unwrap();
    }
    let measure = |weights: &[f32], rows: &[u32]| Fidelity::new(&config, weights, &good, rows).unwrap_err();
    assert!(matches!(
        measure(&[1.0; 19], &[1]),
        Error::Hotrow(Refused::Length { what: "weights", wanted: 20, found: 19 })
    ));
    assert!(matches!(measure(&[f32::NAN; 20], &[1]), Error::Hotrow(Refused::Source { row: 0, .. })));
    assert!(matches!(measure(&[1.0; 20], &[]), Error::Argument { what: "rows", .. }));
    assert!(matches!(
        measure(&[1.0; 20], &[9, 10]),
        Error::Hotrow(Refused::RowOutOfRange { rows: 10, position: 1, row: 10, .. })
    ));
    let fitted = Fit::new(&config, &good, None).unwrap();
    assert!(matches!(fitted.unlike_share(&[10]), Err(Refused::RowOutOfRange { .. })));
    assert_eq!(fitted.unlike_share(&[]).unwrap(), None);
    assert_eq!(Fit::new(&config, &good, Some(&[2; 10])).unwrap().unlike_share(&[1]).unwrap(), None);
    for (eps, quantile, what) in [(0.0, 0.5, "eps"), (f64::NAN, 0.5, "eps"), (-1.0, 0.5, "eps"), (1.0, 2.0, "quantile")]
    {
        match size_for(&config, &good, None, &[1], WantedEps { quantile, ..WantedEps::absolute(eps) }) {
            Err(Error::Argument { what: found, .. }) => assert_eq!(found, what),
            other => panic!("{other:?}"),
        }
    }
}

/// The largest floats: their sum is no float, but their mean is one.
#[test]
fn the_largest_floats_have_a_mean() {
    let config = Config::new(&[40], 4, 2, 2);
    let fit = Fit::new(&config, &vec![f32::MAX; 160], None).unwrap();
    assert_eq!(fit.weights(), [f32::MAX; 2]);
    let fit = Fit::new(&config, &vec![f32::MAX; 160], Some(&[u32::MAX; 40])).unwrap();
    assert_eq!(fit.weights(), [f32::MAX; 2]);
    let kept = fit.fidelity(&vec![f32::MAX; 160], &[0, 1]).unwrap();
    assert_eq!((kept.max(), kept.pairs[0].distance_error), (0.0, 0.0));
}
