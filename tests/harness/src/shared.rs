//! A second implementation of parameter-shared tables: it computes each weight from the formula, in FP64, with maps instead of sorts.

use std::collections::BTreeMap;

use hotrow::{
    Init, Lookup, Optimizer, OptimizerKind, OutOfRange, Pooling, Precision, Rounding,
    robe::{Addressing, Backward, Config, RobeSnapshot},
};
use rand::{RngExt, SeedableRng};

/// The indices, offsets and weights of a batch.
#[derive(Clone, Debug)]
pub struct Bags {
    pub indices: Vec<u32>,
    pub offsets: Vec<u32>,
    pub weights: Option<Vec<f32>>,
}

/// The weight of element `e` of a linear row, by the formula in wide integers.
pub fn place(config: &Config, row: u64, e: u32) -> usize {
    if config.addressing == Addressing::Direct {
        return row as usize * config.dim as usize + e as usize;
    }
    let (row, chunk, e) = (u128::from(row), u128::from(config.chunk), u128::from(e));
    let hash = (row * 871_205_356 + e / chunk * 1_825_252_241 + 634_329_019) % 2_038_074_743;
    (hash % (u128::from(config.weights) - chunk + 1) + e % chunk) as usize
}

/// For each index its output row, its linear row (`None` if it is left out) and its coefficient.
pub fn terms(config: &Config, bags: &Bags) -> Vec<(usize, Option<u64>, f64)> {
    let per_feature = ((bags.offsets.len() - 1) / config.tables.len().max(config.features.len())).max(1);
    let mut terms = Vec::new();
    for (bag, range) in bags.offsets.windows(2).enumerate() {
        let range = range[0] as usize..range[1] as usize;
        let feature = bag / per_feature;
        let table = if config.features.is_empty() { feature } else { config.features[feature] as usize };
        let base: u64 = config.tables[..table].iter().map(|&rows| u64::from(rows)).sum();
        let linear = |i: usize| {
            let (index, rows) = (bags.indices[i], config.tables[table]);
            match (index < rows, config.out_of_range) {
                (true, _) => Some(base + u64::from(index)),
                (false, OutOfRange::Clamp) => Some(base + u64::from(rows) - 1),
                _ => None,
            }
        };
        let valid = range.clone().filter(|&i| linear(i).is_some()).count().max(1);
        for i in range {
            let weight = bags.weights.as_ref().map_or(1.0, |weights| f64::from(weights[i]));
            let share = if config.pooling == Pooling::Mean { 1.0 / valid as f64 } else { 1.0 };
            let output = if config.pooling == Pooling::None { i } else { bag };
            terms.push((output, linear(i), weight * share));
        }
    }
    terms
}

/// For each value the sum, and the size of its terms.
pub type Sums = Vec<(f64, f64)>;

/// The outputs of a batch, by output row and element.
pub fn outputs(config: &Config, memory: &[f32], bags: &Bags) -> Sums {
    let dim = config.dim as usize;
    let rows = if config.pooling == Pooling::None { bags.indices.len() } else { bags.offsets.len() - 1 };
    let mut outputs = vec![(0.0, 0.0); rows * dim];
    for (output, row, coefficient) in terms(config, bags) {
        let Some(row) = row else { continue };
        for e in 0..dim {
            let term = coefficient * f64::from(memory[place(config, row, e as u32)]);
            let sum = &mut outputs[output * dim + e];
            *sum = (sum.0 + term, sum.1 + term.abs());
        }
    }
    outputs
}

/// The gradient of each index's own weight.
pub fn weight_gradients(config: &Config, memory: &[f32], bags: &Bags, grads: &[f32]) -> Sums {
    let dim = config.dim as usize;
    let plain = Bags { weights: None, indices: bags.indices.clone(), offsets: bags.offsets.clone() };
    let of = |(output, row, scale): (usize, Option<u64>, f64)| {
        let Some(row) = row else { return (0.0, 0.0) };
        let term = |e| scale * f64::from(memory[place(config, row, e as u32)]) * f64::from(grads[output * dim + e]);
        (0..dim).map(term).fold((0.0, 0.0), |sum, term| (sum.0 + term, sum.1 + term.abs()))
    };
    terms(config, &plain).into_iter().map(of).collect()
}

/// The gradient of each weight that the batch reads, and the size of its terms.
pub fn gradients(config: &Config, bags: &Bags, grads: &[f32]) -> BTreeMap<usize, (f64, f64)> {
    let dim = config.dim as usize;
    let mut sums = BTreeMap::new();
    for (output, row, coefficient) in terms(config, bags) {
        let Some(row) = row else { continue };
        for e in 0..dim {
            let term = coefficient * f64::from(grads[output * dim + e]);
            let sum: &mut (f64, f64) = sums.entry(place(config, row, e as u32)).or_default();
            *sum = (sum.0 + term, sum.1 + term.abs());
        }
    }
    sums
}

/// The weights of a snapshot, decoded.
pub fn weights(config: &Config, snapshot: &RobeSnapshot) -> Vec<f32> {
    snapshot.weights(config).unwrap_or_else(|error| panic!("{error}"))
}

/// The weights of an FP32 array.
pub fn fp32(snapshot: &RobeSnapshot) -> Vec<f32> {
    snapshot.weight_words.iter().map(|&word| f32::from_bits(word)).collect()
}

/// Adds to a weight of an FP32 array.
pub fn nudge(snapshot: &mut RobeSnapshot, w: usize, by: f32) {
    snapshot.weight_words[w] = (f32::from_bits(snapshot.weight_words[w]) + by).to_bits();
}

/// Checks that `after` follows from `before` and the batch's gradients. Returns the number of weights with a gradient.
pub fn moved(
    config: &Config,
    bags: &Bags,
    grads: &[f32],
    before: &RobeSnapshot,
    after: &RobeSnapshot,
) -> Result<usize, String> {
    // A sum has some thousand terms at most, each rounded a few times, and adds no more than 128 of them one after another.
    moved_within(2f64.powi(-20), config, bags, grads, before, after)
}

/// As [`moved`], for sums that may be wrong by `share` of the size of their terms.
pub fn moved_within(
    share: f64,
    config: &Config,
    bags: &Bags,
    grads: &[f32],
    before: &RobeSnapshot,
    after: &RobeSnapshot,
) -> Result<usize, String> {
    let sums = gradients(config, bags, grads);
    let Optimizer { kind, lr, eps, weight_decay, .. } = config.optimizer;
    let (lr, eps, weight_decay) = (f64::from(lr), f64::from(eps), f64::from(weight_decay));
    let states = [before, after].map(|snapshot| snapshot.states(config).unwrap_or_else(|error| panic!("{error}")));
    let (old_weights, new_weights) = (weights(config, before), weights(config, after));
    let packed = config.precision != Precision::Fp32;
    // The wanted value of each weight, and the largest error of FP32.
    let mut wanted: Vec<(f64, f64)> = old_weights.iter().map(|&old| (f64::from(old), 0.0)).collect();
    for (w, &old) in old_weights.iter().enumerate() {
        let Some(&(sum, size)) = sums.get(&w) else {
            if states[0].get(w).map(|x| x.to_bits()) != states[1].get(w).map(|x| x.to_bits()) {
                return Err(format!("state {w}, which no row reads, moved"));
            }
            continue;
        };
        let old = f64::from(old);
        let g = sum + weight_decay * old;
        let error = share * (size + (weight_decay * old).abs());
        let (by, slack) = if kind == OptimizerKind::Sgd {
            (lr * g, lr * error)
        } else {
            let state = f64::from(states[0][w]) + g * g;
            let found = f64::from(states[1][w]);
            let wide = 2.0 * g.abs() * error + error * error + 1e-6 * state;
            let rounded = if packed { half_step(config, state) } else { 0.0 };
            let kept = if packed { state.min(65504.0) } else { state };
            if (found - kept).abs() > wide + rounded + 1e-30 {
                return Err(format!("state {w}: {found} for {kept}"));
            }
            let by = |g: f64, state: f64| lr * g / (state.max(0.0).sqrt() + eps);
            let (one, other) = (by(g, state), by(g + error, (state - wide).max(0.0)));
            (one, (one - other).abs() + lr * error / (state.sqrt() + eps) + 1e-5 * one.abs())
        };
        wanted[w] = (old - by, slack + 1e-6 * (old.abs() + by.abs()));
    }
    let block = if config.precision.is_integer() { config.block as usize } else { 1 };
    for (k, wanted) in wanted.chunks(block).enumerate() {
        let weights = k * block..k * block + wanted.len();
        let same = |w: usize| old_weights[w].to_bits() == new_weights[w].to_bits();
        if weights.clone().all(|w| !sums.contains_key(&w)) {
            match weights.clone().find(|&w| !same(w)) {
                Some(w) => {
                    return Err(format!("weight {w}, which no row reads: {} is {}", old_weights[w], new_weights[w]));
                }
                None => continue,
            }
        }
        let far = wanted.iter().map(|(_, slack)| *slack).fold(0.0, f64::max);
        let step = if config.precision.is_integer() { scale(config, after, k, wanted, far)? } else { 0.0 };
        for (w, &(value, slack)) in weights.zip(wanted) {
            let rounded = match config.precision {
                Precision::Fp32 => 0.0,
                Precision::Fp16 => half_step(config, value),
                _ => step * (if config.rounding == Rounding::Nearest { 0.5 } else { 1.0 } + 1e-3) + far,
            };
            if (f64::from(new_weights[w]) - value).abs() > slack + rounded {
                return Err(format!("weight {w}: {} for {value}, within {slack} and {rounded}", new_weights[w]));
            }
        }
    }
    Ok(sums.len())
}

/// The largest error of rounding a value to FP16.
fn half_step(config: &Config, value: f64) -> f64 {
    let neighbours = (value.abs() * 2f64.powi(-10)).max(2f64.powi(-24)) * 1.001;
    if config.rounding == Rounding::Nearest { neighbours / 2.0 } else { neighbours }
}

/// The scale of a block of integers. An error if the range of `wanted` gives another scale.
fn scale(config: &Config, after: &RobeSnapshot, block: usize, wanted: &[(f64, f64)], far: f64) -> Result<f64, String> {
    let bits = config.precision.bits();
    let record = block * (2 + config.block * bits / 32) as usize;
    let scale = f64::from(f32::from_bits(after.weight_words[record]));
    let ends = wanted.iter().fold((f64::MAX, f64::MIN), |(low, high), (x, _)| (low.min(*x), high.max(*x)));
    let range = scale * f64::from((1 << bits) - 1);
    match (range - (ends.1 - ends.0)).abs() <= 2.0 * far + 1e-6 * (ends.0.abs() + ends.1.abs()) {
        true => Ok(scale),
        false => Err(format!("block {block}: a range of {range} for {ends:?}")),
    }
}

/// The largest error of sums in any order, as a share of their terms' size: one rounding for each term of the weight with the most terms,
/// and a few roundings of the terms themselves.
pub fn any_order(config: &Config, bags: &Bags) -> f64 {
    let mut terms_of = vec![0u32; config.weights as usize];
    for (_, row, _) in terms(config, bags) {
        let Some(row) = row else { continue };
        (0..config.dim).for_each(|e| terms_of[place(config, row, e)] += 1);
    }
    2f64.powi(-24) * (f64::from(terms_of.into_iter().max().unwrap_or(0)) + 8.0)
}

/// Checks that `found` equals `wanted` within the error of FP32 sums.
pub fn close(found: &[f32], wanted: &Sums) -> Result<(), String> {
    if found.len() != wanted.len() {
        return Err(format!("{} values for {}", found.len(), wanted.len()));
    }
    let wrong = (0..found.len()).find(|&i| {
        let (value, size) = wanted[i];
        let gap = (f64::from(found[i]) - value).abs();
        gap.is_nan() || gap > 2f64.powi(-20) * size
    });
    wrong.map_or(Ok(()), |i| Err(format!("value {i}: {} for {}", found[i], wanted[i].0)))
}

/// A random configuration. Chunks have one element, all elements, or a number that does or does not divide dim. In some arrays all chunks
/// overlap, in others few; one in seven addresses its rows directly.
pub fn config(seed: u64) -> Config {
    let mut source = rand_pcg::Pcg64::seed_from_u64(seed);
    let pick = |source: &mut rand_pcg::Pcg64, of: &[u32]| of[source.random_range(0..of.len())];
    let dim = pick(&mut source, &[1, 3, 8, 17, 32, 40, 128]);
    let chunk = pick(&mut source, &[1, 2, 3, 8, 32, 50]);
    let weights = chunk + pick(&mut source, &[0, 1, 5, 60, 1000, 20_000]);
    let mut config = match seed % 7 {
        6 => Config::direct(&[300, 7, 5000], dim).unwrap(),
        _ => Config::new(&[300, 7, 5000], dim, weights, chunk),
    };
    if source.random_bool(0.3) {
        config.features = vec![2, 0, 2, 1];
    }
    config.pooling = [Pooling::Sum, Pooling::Mean, Pooling::None][source.random_range(0..3)];
    config.out_of_range = [OutOfRange::Clamp, OutOfRange::Skip][source.random_range(0..2)];
    config.optimizer = match source.random_bool(0.5) {
        true => Optimizer::sgd(0.1),
        false => Optimizer::adagrad(0.1),
    };
    config.optimizer.weight_decay = [0.0, 0.01][source.random_range(0..2)];
    config.init = Init::Uniform { low: -1.0, high: 1.0 };
    config.seed = seed as u32;
    config
}

/// The same configuration with a packed array: every precision below FP32 in turn, nearest and stochastic, blocks of several sizes.
pub fn packed(seed: u64) -> Config {
    let precision = Precision::ALL[1 + seed as usize % 4];
    let rounding = [Rounding::Nearest, Rounding::Stochastic][seed as usize / 4 % 2];
    let block = [16, 64, 256, 32][seed as usize / 8 % 4];
    config(seed).with_precision(precision).with_rounding(rounding).with_block(block)
}

/// A batch of up to `most` indices a bag. One index in four is the hottest row, and some indices are out of range.
pub fn bags(config: &Config, seed: u64, per_feature: usize, most: u32) -> Bags {
    let mut source = rand_pcg::Pcg64::seed_from_u64(seed ^ 0x5eed);
    let features = config.tables.len().max(config.features.len());
    let (mut indices, mut offsets) = (Vec::new(), vec![0]);
    for bag in 0..features * per_feature {
        let feature = bag / per_feature;
        let table = if config.features.is_empty() { feature } else { config.features[feature] as usize };
        for _ in 0..source.random_range(0..=most) {
            let beyond = config.out_of_range != OutOfRange::Error && source.random_bool(0.05);
            let rows = config.tables[table] + if beyond { 10 } else { 0 };
            indices.push(if source.random_bool(0.25) { 0 } else { source.random_range(0..rows) });
        }
        offsets.push(indices.len() as u32);
    }
    let weights = source.random_bool(0.4).then(|| indices.iter().map(|_| source.random_range(-2.0..2.0)).collect());
    Bags { indices, offsets, weights }
}

/// Gradients in [-1, 1).
pub fn random_grads(seed: u64, n: usize) -> Vec<f32> {
    let mut source = rand_pcg::Pcg64::seed_from_u64(seed ^ 0x6aad);
    (0..n).map(|_| source.random_range(-1.0..1.0)).collect()
}

/// Runs a forward of any table.
pub fn forward(table: &mut dyn Lookup, bags: &Bags) -> Vec<f32> {
    table.forward(&bags.indices, &bags.offsets, bags.weights.as_deref()).unwrap_or_else(|error| panic!("{error}"))
}

/// Both orders in which a backward visits the weights.
pub const WAYS: [Backward; 2] = [Backward::Dense, Backward::Sparse];
