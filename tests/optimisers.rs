//! The optimisers with moments: known answers, and how the moments age in records of 16 bits.

use std::sync::Arc;

use hotrow::{
    Bags, CpuGroup, FileStore, GroupConfig, Init, Mode, Optimizer, Precision, RandomBits, Rounding, StatePrecision,
    checkpoint, internals::codec, prelude::*, rules::State,
};
use hotrow_harness::own;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

const DIM: usize = 3;

/// What a second program does in FP64 for one group of rows, written from the definitions and not from this crate.
struct Torch {
    weights: Vec<[f64; DIM]>,
    m: Vec<[f64; DIM]>,
    v: Vec<[f64; DIM]>,
    t: i32,
    /// Rows without a gradient take part with a gradient of zero.
    dense: bool,
    /// The factor of decoupled decay.
    decay: f64,
}

impl Torch {
    const LR: f64 = 0.05;

    fn new(weights: &[f32], dense: bool, decay: f64) -> Self {
        let weights: Vec<_> = weights.chunks(DIM).map(|row| [0, 1, 2].map(|e| f64::from(row[e]))).collect();
        let zeros = vec![[0.0; DIM]; weights.len()];
        Self { m: zeros.clone(), v: zeros, weights, t: 0, dense, decay }
    }

    /// The step of torch 2.9's `SparseAdam` (`_functional.sparse_adam`): the correction stands in the step size, and eps is added to the
    /// root before it. With `dense`, of `torch.optim.AdamW`, whose denominator is the corrected root and eps.
    fn step(&mut self, gradients: &[(usize, [f64; DIM])]) {
        self.t += 1;
        let [fix1, fix2] = [f64::from(0.9f32), f64::from(0.999f32)].map(|beta| 1.0 - beta.powi(self.t));
        for row in 0..self.weights.len() {
            let given = gradients.iter().find(|(at, _)| *at == row);
            let Some(g) = given.map(|(_, g)| *g).or(self.dense.then_some([0.0; DIM])) else { continue };
            for (e, &g) in g.iter().enumerate() {
                let (m, v) = (&mut self.m[row][e], &mut self.v[row][e]);
                let w = &mut self.weights[row][e];
                *w *= 1.0 - Self::LR * self.decay;
                *m = f64::from(0.9f32) * *m + (1.0 - f64::from(0.9f32)) * g;
                *v = f64::from(0.999f32) * *v + (1.0 - f64::from(0.999f32)) * g * g;
                *w -= if self.dense {
                    Self::LR / fix1 * *m / ((*v / fix2).sqrt() + 1e-8)
                } else {
                    Self::LR * fix2.sqrt() / fix1 * *m / (v.sqrt() + 1e-8)
                };
            }
        }
    }

    /// The largest distance of a group's weights from these.
    fn distance(&self, group: &mut CpuGroup) -> f64 {
        let rows: Vec<u32> = (0..self.weights.len() as u32).collect();
        let found = group.read_rows(&rows).unwrap();
        self.weights.iter().flatten().zip(&found).map(|(w, x)| (w - f64::from(*x)).abs()).fold(0.0, f64::max)
    }
}

/// Trains 7 rows for 80 steps and returns the largest distance from the second program's weights. `all` rows have a gradient in each step, or else only
/// some. No gradient is near 0, where torch's `SparseAdam` differs: it adds eps before the correction.
fn distance(optimizer: Optimizer, all: bool, dense: bool, decay: f64, cache_rows: u32) -> f64 {
    let mut config = GroupConfig::new(&[7], DIM as u32).with_precision(Precision::Fp32).with_optimizer(optimizer);
    (config.init, config.cache_rows) = (Init::Uniform { low: -1.0, high: 1.0 }, cache_rows);
    let mut group = CpuGroup::new(config).unwrap();
    let start = group.read_rows(&[0, 1, 2, 3, 4, 5, 6]).unwrap();
    let mut torch = Torch::new(&start, dense, decay);
    let mut source = StdRng::seed_from_u64(hotrow_harness::seed_for("optimisers"));
    for _ in 0..80 {
        let rows: Vec<u32> = (0..7).filter(|_| all || source.random_bool(0.3)).collect();
        if rows.is_empty() {
            continue;
        }
        let mut gradient = || source.random_range(0.02..2.0) * [1.0, -0.5][usize::from(source.random::<bool>())];
        let grads: Vec<f32> = (0..rows.len() * DIM).map(|_| gradient()).collect();
        let offsets: Vec<u32> = (0..=rows.len() as u32).collect();
        group.forward(Bags::new(&rows, &offsets), Mode::Train).unwrap();
        group.backward(&grads).unwrap();
        let gradients: Vec<_> = rows
            .iter()
            .zip(grads.chunks(DIM))
            .map(|(&row, g)| (row as usize, [0, 1, 2].map(|e| f64::from(g[e]))))
            .collect();
        torch.step(&gradients);
    }
    torch.distance(&mut group)
}

#[test]
fn adam_is_sparse_adam() {
    let mut adam = Optimizer::adam(0.05);
    for cache_rows in [0, 7] {
        let found = distance(adam, false, false, 0.0, cache_rows);
        assert!(found < 2e-5, "{found}");
    }
    // Dense Adam moves rows without a gradient, so it is another program unless each step has each row.
    assert!(distance(adam, false, true, 0.0, 0) > 1e-2);
    let found = distance(adam, true, true, 0.0, 7);
    assert!(found < 2e-5, "{found}");
    // Decoupled decay is AdamW's, and L2 is not.
    adam = adam.with_weight_decay(0.1).with_decoupled(true);
    let found = distance(adam, true, true, f64::from(0.1f32), 0);
    assert!(found < 2e-5, "{found}");
    assert!(distance(adam.with_decoupled(false), true, true, f64::from(0.1f32), 0) > 1e-3);
    // A row's own count is the group's where each step has each row, and only there.
    let counts = Optimizer::adam(0.05).with_own_count(true);
    assert!(distance(counts, true, true, 0.0, 0) < 2e-5);
    assert!(distance(counts, false, false, 0.0, 0) > 1e-3);
}

/// FTRL by the published rule, whose state is z, in FP64: 500 steps of 40 weights, some of which are 0 at the end.
#[test]
fn ftrl_is_the_published_rule() {
    let mut source = StdRng::seed_from_u64(hotrow_harness::seed_for("ftrl"));
    let far = |optimizer: Optimizer, source: &mut StdRng| {
        let Optimizer { lr, l1, l2, beta, .. } = optimizer;
        let [lr, l1, l2, beta] = [lr, l1, l2, beta].map(f64::from);
        let mut config = GroupConfig::new(&[1], 400).with_optimizer(optimizer.with_l2(0.25)).with_cache_rows(1);
        (config.precision, config.init) = (Precision::Fp32, Init::Uniform { low: -1.0, high: 1.0 });
        let mut group = CpuGroup::new(config).unwrap();
        let mut all: Vec<[f64; 3]> =
            group.read_rows(&[0]).unwrap().into_iter().map(|w| [f64::from(w), 0.0, 0.0]).collect();
        for [w, _, z] in &mut all {
            *z = -(*w * (beta / lr + l2) + l1.copysign(*w));
        }
        for _ in 0..500 {
            let grads: Vec<f32> = (0..400).map(|e| source.random_range(-1.0..1.0) + [0.0, 0.02][e % 2]).collect();
            group.forward(Bags::new(&[0], &[0, 1]), Mode::Train).unwrap();
            group.backward(&grads).unwrap();
            for ([w, n, z], g) in all.iter_mut().zip(grads.into_iter().map(f64::from)) {
                let next = *n + g * g;
                *z += g - (next.sqrt() - n.sqrt()) / lr * *w;
                *n = next;
                *w = if z.abs() <= l1 { 0.0 } else { -(*z - l1.copysign(*z)) / ((beta + n.sqrt()) / lr + l2) };
            }
        }
        let found = group.read_rows(&[0]).unwrap();
        let zeros = found.iter().filter(|w| **w == 0.0).count();
        (all.iter().zip(found).map(|([w, ..], found)| (w - f64::from(found)).abs()).fold(0.0, f64::max), zeros)
    };
    let rule = Optimizer::ftrl(0.1).with_l2(0.25).with_l1(6.0);
    let (error, zeros) = far(rule, &mut source);
    assert!(error < 1e-5 && (1..400).contains(&zeros), "{error} {zeros}");
    assert!(far(rule.with_l2(5.0), &mut source).0 > 1e-3, "another rule");
}

/// Lion moves each weight by the rate, in the direction of its formula, and not at all where that is 0.
#[test]
fn lion_goes_by_the_rate() {
    let mut group =
        CpuGroup::new(GroupConfig::new(&[1], 4).with_precision(Precision::Fp32).with_optimizer(Optimizer::lion(0.25)))
            .unwrap();
    let (mut w, mut m) = ([0.0f32; 4], [0.0f32; 4]);
    for grads in [[1.0f32, -1e-30, 0.0, 5.0], [-0.2, -2.0, 0.0, -44.0], [-1.0, 3.0, f32::MIN_POSITIVE, 0.0]] {
        group.forward(Bags::new(&[0], &[0, 1]), Mode::Train).unwrap();
        group.backward(&grads).unwrap();
        for e in 0..4 {
            let c = m[e] + (1.0 - 0.9f32) * (grads[e] - m[e]);
            w[e] -= 0.25 * if c.is_normal() { c.signum() } else { 0.0 };
            m[e] += (1.0 - 0.99f32) * (grads[e] - m[e]);
        }
        assert_eq!(group.read_rows(&[0]).unwrap(), w, "{grads:?}");
    }
    assert_eq!(w[2], 0.0, "the last gradient's tenth is subnormal");
}

/// The types of a record's weights and states.
type Stored = (Precision, Option<StatePrecision>);

const CODED: Option<StatePrecision> = Some(StatePrecision::Int8);

/// A table without a cache, so that each step reads and writes its records, and steps that give each weight of a row the same gradient.
struct Records {
    group: CpuGroup,
    rows: Vec<u32>,
}

impl Records {
    fn new(optimizer: Optimizer, (precision, state): Stored, rounding: Rounding, rows: u32) -> Self {
        let mut config =
            GroupConfig::new(&[rows], 4).with_optimizer(optimizer).with_precision(precision).with_state(state);
        (config.rounding, config.random_bits) = (rounding, RandomBits::TwentyFour);
        Self { group: CpuGroup::new(config).unwrap(), rows: (0..rows).collect() }
    }

    fn step(&mut self, gradient: f32) {
        let offsets: Vec<u32> = (0..=self.rows.len() as u32).collect();
        self.group.forward(Bags::new(&self.rows, &offsets), Mode::Train).unwrap();
        self.group.backward(&vec![gradient; 4 * self.rows.len()]).unwrap();
    }

    fn weights(&mut self) -> Vec<f32> {
        self.group.read_rows(&self.rows).unwrap()
    }

    /// The mean of a number of the rows' states.
    fn mean(&mut self, element: u32) -> f64 {
        let layout = self.group.layout().row;
        let records = self.group.snapshot().unwrap().records;
        let states = records.chunks(layout.record_words as usize).map(|record| codec::state(&layout, record, element));
        states.map(f64::from).sum::<f64>() / self.rows.len() as f64
    }
}

#[test]
fn zero_gradients_after_large_ones_move_no_weight_far() {
    for rounding in [Rounding::Nearest, Rounding::Stochastic] {
        for stored in
            [(Precision::Fp32, None), (Precision::Fp16, None), (Precision::Int8, None), (Precision::Fp16, CODED)]
        {
            for optimizer in
                [Optimizer::adam(0.01), Optimizer::adam(0.01).with_own_count(true), Optimizer::row_wise_adam(0.01)]
            {
                for size in [1e-12, 1e-6, 1.0, 1e6, 1e15] {
                    let mut records = Records::new(optimizer, stored, rounding, 50);
                    (0..5).for_each(|_| records.step(size));
                    let before = records.weights();
                    (0..1500).for_each(|_| records.step(0.0));
                    let after = records.weights();
                    // The rule itself goes on by 8.3 lr; the roundings of 20 coded moments spread that by a tenth.
                    let most = if stored.1.is_some() { 13.0 } else { 10.0 };
                    let ways: Vec<f32> = before.iter().zip(&after).map(|(a, b)| (a - b).abs()).collect();
                    let far = ways.iter().copied().fold(0.0, f32::max);
                    let mean = ways.iter().sum::<f32>() / ways.len() as f32;
                    assert!(
                        mean < 10.0 * 0.01,
                        "{rounding:?} {stored:?} {:?} {size}: {mean} in the mean",
                        optimizer.kind
                    );
                    assert!(far < most * 0.01, "{rounding:?} {stored:?} {:?} {size}: {far}", optimizer.kind);
                    assert!(size < 1e-7 || far > 0.02, "the first moment goes on: {far}");
                }
            }
        }
    }
}

/// AdaGrad's sums beside every packed precision, rounded as the weights are, against the FP32 sum: FP32 states are that sum, FP16 ones are not.
#[test]
fn full_states_are_never_rounded() {
    let gradients = [0.1f32, 1e-5, 3.0, 300.0, 0.07, 1e-3];
    let sum = gradients.iter().fold(0.0f32, |sum, g| sum + g * g);
    for (precision, rounding) in Precision::ALL[1..].iter().flat_map(|&p| Rounding::ALL.map(|rounding| (p, rounding))) {
        let states = [Some(StatePrecision::Fp32), None].map(|state| {
            let mut records = Records::new(Optimizer::adagrad(0.01), (precision, state), rounding, 40);
            gradients.iter().for_each(|&g| records.step(g));
            let layout = records.group.layout().row;
            let words = records.group.snapshot().unwrap().records;
            let of = |record: &[u32]| [0, 1, 2, 3].map(|e| codec::state(&layout, record, e));
            words.chunks(layout.record_words as usize).flat_map(of).collect::<Vec<f32>>()
        });
        assert!(states[0].iter().all(|&state| state == sum), "{precision:?} {rounding:?}: {:?} for {sum}", states[0]);
        // 90,000 is beyond FP16.
        assert!(states[1].iter().all(|&state| state != sum), "{precision:?} {rounding:?}");
    }
}

#[test]
fn a_small_update_is_not_lost_on_average() {
    let cases = [(None, Rounding::Nearest, 2e-3), (None, Rounding::Stochastic, 2e-3), (CODED, Rounding::Nearest, 3e-2)];
    for (state, rounding, within) in cases {
        let mut records = Records::new(Optimizer::adam(0.0), (Precision::Fp16, state), rounding, 2000);
        records.step(1.0);
        let (mut m, mut v) = (0.1f64, 0.001f64);
        for _ in 0..600 {
            records.step(0.01);
            m += 0.1 * (0.01 - m);
            v += 0.001 * (0.0001 - v);
        }
        // v has lost nearly half of itself, by a thousandth a step: less than half of the least step of 8 bits.
        let (found_m, found_v) = (records.mean(0), records.mean(4));
        assert!((found_m / m - 1.0).abs() < within, "{rounding:?}: {found_m}, not {m}");
        assert!((found_v / v - 1.0).abs() < within, "{rounding:?}: {found_v}, not {v}");
        assert!((found_v / 0.001 - 1.0).abs() > 0.4, "a moment that stays would show");
    }
}

fn on_the_cpu(config: GroupConfig) -> CpuGroup {
    CpuGroup::new(config).unwrap()
}

#[test]
fn own_rules_have_the_bits_of_the_library() {
    own::own_rules_have_the_bits_of_the_library(on_the_cpu);
}

#[test]
fn wrong_own_rules_are_named() {
    own::wrong_rules_are_named(CpuGroup::new);
}

/// A step that fails is an error, and moves no row; the forward still waits for its backward.
#[test]
fn a_step_that_fails_moves_no_row() {
    for cache_rows in [0, 10] {
        let config = GroupConfig::new(&[10], 2).with_cache_rows(cache_rows).with_init(Init::Constant(1.0));
        let rule = own::Written { fails: true, ..own::sgd() };
        let mut group = CpuGroup::new(config.with_rule(Arc::new(rule))).unwrap();
        group.forward(Bags::new(&[3], &[0, 1]), Mode::Train).unwrap();
        let before = group.snapshot().unwrap();
        let error = group.backward(&[1.0, 2.0]).unwrap_err().to_string();
        assert_eq!(error, "rule my-sgd, step: wanted a step that succeeds, found as it was told; correct the rule");
        assert_eq!((group.snapshot().unwrap(), group.pending()), (before, true));
    }
}

/// A checkpoint names the rule, and another one does not go on with it.
#[test]
fn a_checkpoint_goes_on_with_its_own_rule_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("own.safetensors");
    let config = GroupConfig::new(&[10], 2).with_cache_rows(4);
    let with = |change: fn(&mut own::Written)| {
        let mut rule = own::sgd();
        change(&mut rule);
        CpuGroup::new(config.clone().with_rule(Arc::new(rule))).unwrap()
    };
    checkpoint::save(&mut with(|_| {}), &path).unwrap();
    checkpoint::load(&mut with(|_| {}), &path).unwrap();
    let refused = |group: &mut CpuGroup| checkpoint::load(group, &path).unwrap_err().to_string();
    for change in [
        (|rule| rule.name = "other") as fn(&mut own::Written),
        |rule| rule.wgsl = "fn rule(e: Element, n: Numbers) -> Element { return e; }",
        |rule| rule.hyper = vec![("a", 1.0)],
    ] {
        let error = refused(&mut with(change));
        assert!(error.contains("rule"), "{error}");
    }
    assert!(refused(&mut CpuGroup::new(config.clone()).unwrap()).contains("wanted sgd, found own"));
    // A file has the rule's name, and not the rule.
    let (found, _) = checkpoint::contents(&path).unwrap();
    let error = CpuGroup::new(found.clone()).unwrap_err().to_string();
    assert!(error.contains("with_rule"), "{error}");
    checkpoint::load(&mut CpuGroup::new(found.with_rule(Arc::new(own::sgd()))).unwrap(), &path).unwrap();
}

/// A step of no row, or of padding alone, asks no rule; its backward succeeds.
#[test]
fn a_step_without_rows_asks_no_rule() {
    for cache_rows in [0, 4] {
        let config = GroupConfig::new(&[10], 2).with_cache_rows(cache_rows).with_padding(vec![Some(0)]);
        let mut group = CpuGroup::new(config.with_rule(Arc::new(own::sgd()))).unwrap();
        for indices in [&[1][..], &[0], &[], &[0, 1, 0]] {
            group.forward(Bags::new(indices, &[0, indices.len() as u32]), Mode::Train).unwrap();
            group.backward(&[1.0, 2.0]).unwrap();
        }
        assert!(group.read_rows(&[0]).unwrap() == [0.0; 2] && group.read_rows(&[1]).unwrap()[1] < -0.03);
    }
}

/// A table file is opened with the rule that it was made for: another form of states would read the same bytes as other numbers.
#[test]
fn a_table_file_names_its_own_rule() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("own.hotrow");
    let with = |change: fn(&mut own::Written)| {
        let mut rule = own::adagrad();
        change(&mut rule);
        GroupConfig::new(&[10], 4).with_rule(Arc::new(rule))
    };
    hotrow::store::fill(&mut FileStore::create(&path, &with(|_| {})).unwrap(), &with(|_| {}), None).unwrap();
    drop(FileStore::open(&path, &with(|_| {})).unwrap());
    for change in [
        (|rule| rule.states = vec![State::SignedMoment]) as fn(&mut own::Written),
        |rule| rule.name = "other",
        |rule| rule.hyper = vec![("other", 1e-8)],
    ] {
        let error = FileStore::open(&path, &with(change)).unwrap_err().to_string();
        assert!(error.contains("hash of the rule"), "{error}");
    }
}

/// Refusals say the field, what is wanted and what was found, and refuse nothing beside it.
#[test]
fn refused_numbers_are_told() {
    let told = |tables: &[u32], optimizer| {
        let found = GroupConfig::new(tables, 4).with_optimizer(optimizer).check();
        found.err().map(|error| error.to_string().replace("; change the group's configuration", ""))
    };
    for (optimizer, wanted) in [
        (Optimizer::sgd(-0.1), None),
        (Optimizer::ftrl(-0.1), Some("lr: wanted 0 or more with ftrl, found -0.1")),
        (Optimizer::ftrl(0.1).with_l2(-1.0), Some("l2: wanted a finite number, 0 or more, found -1")),
        (Optimizer::adagrad(0.1).with_eps(0.0), Some("eps: wanted a number above 0, found 0")),
        (Optimizer::sgd(0.1).with_eps(0.0), None),
    ] {
        assert_eq!(told(&[5], optimizer).as_deref(), wanted);
    }
    let empty = told(&[5, 0, 3], Optimizer::sgd(0.1));
    assert_eq!(empty.unwrap(), "tables: wanted at least one row a table, found table 1 with 0 rows");
    let four = own::Written { hyper: vec![("a", 0.0), ("b", 0.0), ("c", 0.0), ("d", 0.0)], ..own::sgd() };
    CpuGroup::new(GroupConfig::new(&[5], 4).with_rule(Arc::new(four))).unwrap();
}
