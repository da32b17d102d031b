//! Hash grids on the CPU: known answers, a second program in FP64 by the definitions, gradients against differences, and bad input.

use hotrow::{
    Bags, CpuGrid, CpuGroup, CpuSharedGroup, Error, Init, Lookup, Mode, Precision,
    grid::{Config, Outside},
};
use hotrow_harness::seed_for;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

/// The rows and weights of a point on a level, by the definitions: FP64, wide integers, and no table of levels.
fn bag(config: &Config, level: u32, point: &[f32]) -> Vec<(u64, f64)> {
    let resolution = f64::from(config.coarsest) * f64::from(config.growth).powi(level as i32);
    let scale = f64::from((resolution - 1.0) as f32);
    let side = scale.ceil() as u64 + 1;
    let corners = u128::from(side).pow(config.dims);
    let place = |x: f32| {
        let held = if config.outside == Outside::Wrap { x - x.floor() } else { x.clamp(0.0, 1.0) };
        // Rounded as FP32 rounds it, so that a point near the end of a cell is in the same one.
        f64::from((f64::from(held) * scale) as f32 + 0.5)
    };
    let places: Vec<f64> = point.iter().map(|&x| place(x)).collect();
    let mut found = Vec::new();
    for c in 0..1u64 << config.dims {
        let (mut hash, mut row, mut weight, mut stride) = (0u64, 0, 1.0, 1);
        for (axis, (&place, prime)) in places.iter().zip([1, 2_654_435_761, 805_459_861]).enumerate() {
            let further = c >> axis & 1;
            let at = place.floor() as u64 + further;
            hash ^= at * prime % (1 << 32);
            row += at.min(side - 1) * stride;
            stride *= side;
            let part = place - place.floor();
            weight *= if further == 1 { part } else { 1.0 - part };
        }
        let hashed = corners > u128::from(config.most_rows);
        found.push((if hashed { hash % u64::from(config.most_rows) } else { row }, weight));
    }
    found
}

fn differs(config: &Config, points: &[f32], found: Bags<'_>) -> Option<String> {
    let (weights, mut at) = (found.weights.unwrap(), 0);
    for level in 0..config.levels {
        for (i, point) in points.chunks(config.dims as usize).enumerate() {
            for (row, weight) in bag(config, level, point) {
                let (index, share) = (found.indices[at], weights[at]);
                if u64::from(index) != row || (f64::from(share) - weight).abs() > 2f64.powi(-22) {
                    return Some(format!(
                        "level {level}, point {i}: row {index} for {row}, weight {share} for {weight}"
                    ));
                }
                at += 1;
            }
        }
    }
    (at != found.indices.len()).then(|| format!("{at} indices for {}", found.indices.len()))
}

fn random_points(source: &mut StdRng, n: u32) -> Vec<f32> {
    (0..n).map(|i| if i % 7 == 0 { source.random_range(-2.0..3.0) } else { source.random_range(0.0..1.0) }).collect()
}

fn configs() -> impl Iterator<Item = Config> {
    [(2, 16, 1.5, 1 << 15), (3, 4, 2.0, 1 << 10), (2, 2, 1.26, 1), (3, 16, 1.38, 1 << 19)].into_iter().flat_map(
        |(dims, coarsest, growth, most)| {
            let config = Config::new(dims).with_levels(8).with_coarsest(coarsest).with_growth(growth);
            let config = config.with_most_rows(most);
            [config.clone().with_outside(Outside::Wrap), config]
        },
    )
}

#[test]
fn bags_are_those_of_the_definitions() {
    let mut source = StdRng::seed_from_u64(seed_for("bags of a grid"));
    for config in configs() {
        let points = random_points(&mut source, 500 * config.dims);
        let mut grid = CpuGrid::new(config.clone()).unwrap();
        let found = grid.bags(&points).unwrap();
        assert_eq!(differs(&config, &points, found), None, "{config:?}");
        assert_eq!(found.offsets.len() as u32, 500 * config.levels + 1);
        assert!(found.offsets.iter().zip(0..).all(|(&offset, bag)| offset == bag << config.dims));
        let tables = config.tables().unwrap();
        let each = 500 << config.dims;
        assert!(found.indices.chunks(each).zip(&tables).all(|(rows, &n)| rows.iter().all(|&row| row < n)));
        // The comparison notices a wrong row, a wrong weight, and another grid.
        let last = found.indices.len() - 1;
        let mut weights = found.weights.unwrap().to_vec();
        weights[last] += 1e-3;
        assert!(differs(&config, &points, found.with_weights(Some(&weights))).is_some());
        let mut indices = found.indices.to_vec();
        indices[last] ^= 1;
        assert!(differs(&config, &points, Bags { indices: &indices, ..found }).is_some());
    }
}

/// Numbers by hand: 4 corners a side, 1 level; the point lies in cell (1, 2) at (0.25, 0.5).
#[test]
fn a_cell_by_hand() {
    let config = Config::new(2).with_levels(1).with_coarsest(4).with_most_rows(16);
    let point = [0.75 / 3.0, 2.0 / 3.0];
    let mut grid = CpuGrid::new(config.clone()).unwrap();
    let found = grid.bags(&point).unwrap();
    assert_eq!(found.indices, [9, 10, 13, 14]);
    let near = |found: &[f32], wanted: &[f32]| found.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-6);
    assert!(near(found.weights.unwrap(), &[0.375, 0.125, 0.375, 0.125]), "{:?}", found.weights);
    // Hashed in 8 rows: x ^ (y * 2654435761), of which the lowest three bits count: 2654435761 mod 8 = 1.
    let mut hashed = CpuGrid::new(config.with_most_rows(8)).unwrap();
    assert_eq!(hashed.bags(&point).unwrap().indices, [1 ^ 2, 2 ^ 2, 1 ^ 3, 2 ^ 3]);
    // In 3 dimensions 805459861 mod 8 = 5.
    let config = Config::new(3).with_levels(1).with_coarsest(4).with_most_rows(8);
    let mut cube = CpuGrid::new(config).unwrap();
    let rows = [0, 5u32].iter().flat_map(|z| [2, 3].iter().flat_map(move |y| [1, 2].map(|x| x ^ y ^ z)));
    assert_eq!(cube.bags(&[0.25, 2.0 / 3.0, 0.0]).unwrap().indices, rows.collect::<Vec<_>>());
}

#[test]
fn the_finest_level_is_as_asked() {
    let config = Config::new(3).with_levels(16).with_coarsest(16).with_finest(512).unwrap();
    // The paper's table 1 has growth 1.26 for these.
    assert!((config.growth - 1.26).abs() < 1e-3, "{}", config.growth);
    // As many corners as asked: a table that holds them all shows their number.
    for (coarsest, finest, levels) in
        [(16, 512, 16), (16, 64, 16), (16, 256, 8), (16, 128, 5), (7, 7, 3), (16, 300, 9), (5, 5, 1)]
    {
        let config = Config::new(2).with_levels(levels).with_coarsest(coarsest).with_most_rows(1 << 20);
        let config = config.with_finest(finest).unwrap();
        assert_eq!(
            config.tables().unwrap().last(),
            Some(&(finest * finest)),
            "{coarsest} to {finest} in {levels} levels"
        );
    }
    let one = Config::new(2).with_levels(1).with_coarsest(8).with_finest(9).unwrap_err().to_string();
    assert!(one.contains("wanted 8, the side of the only level, found 9"), "{one}");
    let error = config.with_finest(15).unwrap_err();
    assert_eq!(
        error.to_string(),
        "grid, finest: wanted at least the coarsest level's 16, found 15; change the grid's configuration"
    );
}

/// The loss is the inner product of outputs and fixed gradients: d-linear along each coordinate within a cell.
fn loss(table: &mut dyn Lookup, grid: &mut CpuGrid, points: &[f32], grads: &[f32]) -> f64 {
    let outputs = table.forward(grid.bags(points).unwrap(), Mode::Frozen).unwrap();
    outputs.iter().zip(grads).map(|(x, g)| f64::from(*x) * f64::from(*g)).sum()
}

#[test]
fn gradients_of_coordinates_are_the_differences() {
    let mut source = StdRng::seed_from_u64(seed_for("coordinates of a grid"));
    for (turn, config) in configs().enumerate() {
        // Few cells, so that both ends of a difference lie in one cell; no row moves.
        let config = config.with_levels(2).with_coarsest(4).with_features([1, 2, 4, 8][turn % 4]);
        let mut grid = CpuGrid::new(config.clone()).unwrap();
        let init = Init::Uniform { low: -1.0, high: 1.0 };
        let mut table: Box<dyn Lookup> = match turn % 2 {
            0 => Box::new(CpuGroup::new(config.group().unwrap().with_init(init)).unwrap()),
            _ => {
                let array = config.array().unwrap().with_init(init).with_precision(Precision::Int8);
                Box::new(CpuSharedGroup::new(array).unwrap())
            }
        };
        let points = random_points(&mut source, 40 * config.dims);
        let bags = grid.bags(&points).unwrap();
        let outputs = table.forward(bags, Mode::Train).unwrap();
        let grads: Vec<f32> = outputs.iter().map(|_| source.random_range(-1.0..1.0)).collect();
        let slopes = table.weight_gradient(bags, &grads).unwrap();
        // A loss that is linear in the weights is their inner product with its gradient.
        let inner: f64 = bags.weights.unwrap().iter().zip(&slopes).map(|(w, s)| f64::from(*w) * f64::from(*s)).sum();
        let indices = bags.indices.to_vec();
        let whole = loss(&mut *table, &mut grid, &points, &grads);
        assert!((inner - whole).abs() < 1e-4, "{inner} for {whole}");
        let found = grid.coordinate_gradient(&points, &slopes).unwrap();
        let (mut compared, mut wrong) = (0, 0);
        for i in 0..points.len() {
            let step = 1.0 / 1024.0;
            let ends = [-step, step].map(|step| {
                let mut moved = points.clone();
                moved[i] += step;
                (grid.bags(&moved).unwrap().indices.to_vec(), loss(&mut *table, &mut grid, &moved, &grads))
            });
            let kept = ends.iter().all(|(moved, _)| *moved == indices);
            let inside = (0.01..0.99).contains(&points[i]) || config.outside == Outside::Wrap;
            if !inside && !(-0.01..1.01).contains(&points[i]) {
                assert_eq!(found[i], 0.0, "a clamped coordinate");
            } else if kept && inside {
                let wanted = (ends[1].1 - ends[0].1) / f64::from(2.0 * step);
                compared += 1;
                assert!((f64::from(found[i]) - wanted).abs() < 0.01, "{config:?}: {} for {wanted}", found[i]);
                wrong += u32::from((f64::from(found[i]) * 1.1 - wanted).abs() < 0.01);
            }
        }
        // In a table of one row every point has the same value.
        assert!(
            compared > 20 && (wrong < compared / 2 || config.most_rows == 1),
            "{compared} compared, {wrong} that cannot tell"
        );
    }
}

#[test]
fn bad_input_is_refused_by_name() {
    let refused = |config: Config, wanted: &str| {
        let error = CpuGrid::new(config.clone()).map(drop).unwrap_err();
        assert!(error.to_string().starts_with(wanted), "{error}");
        assert_eq!(config.group().unwrap_err(), error);
        assert_eq!(config.array().unwrap_err(), error);
    };
    let config = Config::new(2);
    refused(Config::new(4), "grid, dims: wanted 2 or 3, found 4;");
    refused(config.clone().with_levels(0), "grid, levels: wanted 1 to 32, found 0;");
    refused(config.clone().with_levels(33), "grid, levels: wanted 1 to 32, found 33;");
    refused(config.clone().with_features(3), "grid, features: wanted 1, 2, 4 or 8, found 3;");
    refused(config.clone().with_coarsest(1), "grid, coarsest: wanted at least 2, found 1;");
    refused(config.clone().with_growth(0.5), "grid, growth: wanted at least 1, found 0.5;");
    refused(config.clone().with_growth(f32::NAN), "grid, growth: wanted at least 1, found NaN;");
    refused(config.clone().with_most_rows(1000), "grid, most_rows: wanted a power of two, found 1000;");
    refused(
        config.clone().with_growth(4.0),
        "grid, levels: wanted a finest resolution of at most 1048576, found 17179869184;",
    );
    let many = config.clone().with_levels(4).with_coarsest(1 << 17).with_growth(1.0).with_most_rows(1 << 31);
    refused(many, "grid, most_rows: wanted levels of fewer than 2^32 rows together, found 8589934592;");

    let mut grid = CpuGrid::new(config.with_levels(2)).unwrap();
    let error = grid.bags(&[0.5, 0.5, 0.1, f32::NAN]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "grid, coordinates: wanted finite numbers, found NaN on axis 1 of point 1; leave the point out"
    );
    refuses!(grid.bags(&[0.5]), Error::Length { what: "coordinates", wanted: 2, found: 1 });
    let wrong = grid.coordinate_gradient(&[0.5, 0.5], &[0.0; 7]);
    assert!(matches!(wrong, Err(Error::Length { what: "grad_weights", wanted: 8, found: 7 })), "{wrong:?}");
    assert_eq!(grid.coordinate_gradient(&[f32::INFINITY, 0.5], &[1.0; 8]), Ok(vec![0.0; 2]));
    assert_eq!(grid.bags(&[]).unwrap().offsets, [0]);
    assert!("mirror".parse::<Outside>().is_err() && "wrap".parse() == Ok(Outside::Wrap));
}
