//! A second implementation of parameter-shared tables: it computes each weight from the formula, in FP64, with maps instead of sorts.

use std::collections::BTreeMap;

use hotrow::{
    Init, Lookup, Mode, Optimizer, OptimizerKind, OutOfRange, Pooling, Precision, Rounding, StatePrecision,
    robe::{Addressing, Backward, Config, RobeSnapshot},
};
use rand::{RngExt, SeedableRng};

pub use crate::lockstep::Batch as Bags;
use crate::lockstep::random_state;

/// The weight of element `e` of a linear row, by the formula in wide integers.
pub fn place(config: &Config, row: u64, e: u32) -> usize {
    if config.addressing == Addressing::Direct {
        return row as usize * config.dim as usize + e as usize;
    }
    if config.addressing == Addressing::Rows {
        let row =
            (u128::from(row) * 871_205_356 + 634_329_019) % 2_038_074_743 % u128::from(config.weights / config.dim);
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
pub fn moved(config: &Config, bags: &Bags, grads: &[f32], states: [&RobeSnapshot; 2]) -> Result<usize, String> {
    // A sorted sum adds no more than 32 terms one after another, and then few sums of these; each addition rounds by at most 2^-24 of all terms' size.
    let share = if config.backward == Backward::Atomic { any_order(config, bags) } else { 2f64.powi(-16) };
    moved_within(share, config, bags, grads, states)
}

/// As [`moved`], for sums that may be wrong by `share` of the size of their terms.
pub fn moved_within(
    share: f64,
    config: &Config,
    bags: &Bags,
    grads: &[f32],
    [before, after]: [&RobeSnapshot; 2],
) -> Result<usize, String> {
    let sums = gradients(config, bags, grads);
    let states = [before, after].map(|snapshot| snapshot.states(config).unwrap_or_else(|error| panic!("{error}")));
    let (old_weights, new_weights) = (weights(config, before), weights(config, after));
    let each = states_each(config);
    // The wanted value of each weight, and the largest error of FP32; the same for its states.
    let mut wanted: Vec<Value> = old_weights.iter().map(|&old| (f64::from(old), 0.0)).collect();
    let mut wanted_states: Vec<Value> = states[0].iter().map(|&old| (f64::from(old), 0.0)).collect();
    for (&w, &(sum, size)) in &sums {
        let old = f64::from(old_weights[w]);
        let found = step(config, after.t, old, &wanted_states[w * each..][..each], (sum, share * size));
        wanted[w] = found[0];
        wanted_states[w * each..][..each].copy_from_slice(&found[1..=each]);
    }
    states_moved(config, &sums, &states, &wanted_states)?;
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

/// A value and the largest error of the FP32 arithmetic behind it.
type Value = (f64, f64);

/// States of a weight.
pub fn states_each(config: &Config) -> usize {
    match config.optimizer.kind {
        OptimizerKind::Sgd => 0,
        OptimizerKind::Adam | OptimizerKind::Ftrl => 2,
        _ => 1,
    }
}

/// A weight and its states after a step with number `t`, by the sum of its gradients. All values that FP32 may give lie within the errors.
fn step(config: &Config, t: u32, old: f64, states: &[Value], (sum, error): Value) -> Vec<Value> {
    let Optimizer { kind, lr, eps, weight_decay, decoupled, beta1, beta2, l1, l2, beta, clip_value, .. } =
        config.optimizer;
    let [lr, eps, decay, beta1, beta2] = [lr, eps, weight_decay, beta1, beta2].map(f64::from);
    let (added, shrink) = if decoupled { (0.0, decay) } else { (decay, 0.0) };
    let bound = clip_value.map_or(f64::INFINITY, f64::from);
    let fine = 2f64.powi(-20) * (added * old).abs();
    let g = [sum - error, sum + error].map(|g| g.clamp(-bound, bound) + added * old);
    let g = [g[0] - fine, g[1] + fine];
    let most = g[0].abs().max(g[1].abs());
    let squares = [if g[0] * g[1] <= 0.0 { 0.0 } else { g[0].abs().min(g[1].abs()).powi(2) }, most * most];
    let wide = |range: [f64; 2], by: f64| [range[0] - by, range[1] + by];
    let state = |k: usize| states[k].0;
    let ends = |values: &[f64]| values.iter().fold([f64::MAX, f64::MIN], |[low, high], x| [low.min(*x), high.max(*x)]);
    let middle = |[low, high]: [f64; 2]| ((low + high) / 2.0, (high - low) / 2.0);
    if kind == OptimizerKind::Ftrl {
        if most == 0.0 {
            return [old].into_iter().chain(states.iter().map(|state| state.0)).map(|x| (x, 0.0)).collect();
        }
        let [l1, l2, beta] = [l1, l2, beta].map(f64::from);
        let sum = wide(squares.map(|square| state(0) + square), 1e-6 * (state(0) + squares[1]));
        let roots = sum.map(|sum| sum.max(0.0).sqrt());
        let slack = 4e-6 * (state(1).abs() + lr * most + roots[1] * old.abs() + lr * l1);
        let y = roots.into_iter().flat_map(|root| g.map(|g| state(1) + lr * g - (root - state(0).sqrt()) * old));
        let y = wide(ends(&y.collect::<Vec<_>>()), slack);
        let moved = |y: f64, root: f64| -(y.abs() - lr * l1).max(0.0).copysign(y) / (beta + root + lr * l2);
        let mut moved: Vec<f64> = y.into_iter().flat_map(|y| roots.map(|root| moved(y, root))).collect();
        if g[0] * g[1] <= 0.0 {
            moved.push(old); // an element without a gradient rests
        }
        let (weight, error) = middle(ends(&moved));
        return vec![
            (weight, error + 1e-6 * weight.abs() + slack / (beta + roots[0] + lr * l2)),
            middle(sum),
            middle(y),
        ];
    }
    // What is divided, and by which square root.
    let (top, root, new): ([f64; 2], _, Vec<[f64; 2]>) = match kind {
        OptimizerKind::AdaGrad => {
            let sum = wide(squares.map(|square| state(0) + square), 1e-6 * (state(0) + squares[1]));
            (g, Some((sum, 1.0, 1.0)), vec![sum])
        }
        OptimizerKind::Momentum => {
            let m = wide(g.map(|g| beta1 * state(0) + g), 1e-6 * (state(0).abs() + most));
            (m, None, vec![m])
        }
        OptimizerKind::Lion => {
            let m = |beta: f64| wide(g.map(|g| beta * state(0) + (1.0 - beta) * g), 1e-6 * (state(0).abs() + most));
            // A sum that is 0 within its errors may have either sign.
            (m(beta1).map(|c| if c == 0.0 { 0.0 } else { c.signum() }), None, vec![m(beta2)])
        }
        OptimizerKind::Adam => {
            let m = wide(g.map(|g| beta1 * state(0) + (1.0 - beta1) * g), 1e-6 * (state(0).abs() + most));
            let v = squares.map(|square| beta2 * state(1) + (1.0 - beta2) * square);
            let v = wide(v, 1e-6 * (state(1) + squares[1]));
            let [fix1, fix2] = [beta1, beta2].map(|beta| 1.0 - beta.powf(f64::from(t)));
            (m, Some((v, fix1, fix2)), vec![m, v])
        }
        _ => (g, None, Vec::new()),
    };
    let moves = match root {
        None => top.map(|top| lr * top).to_vec(),
        Some((squares, fix1, fix2)) => squares
            .map(|square| fix1 * ((square.max(0.0) / fix2).sqrt() + eps))
            .into_iter()
            .flat_map(|under| top.map(|top| lr * top / under))
            .collect(),
    };
    let (by, slack) = middle(ends(&moves));
    let by = by + lr * shrink * old;
    let weight = (old - by, slack + 1e-5 * by.abs() + 1e-6 * old.abs());
    [weight].into_iter().chain(new.into_iter().map(middle)).collect()
}

/// Checks the states after a step: those of covered weights are as wanted, rounded; in INT8 the others of their block may be rounded again.
fn states_moved(
    config: &Config,
    sums: &BTreeMap<usize, (f64, f64)>,
    states: &[Vec<f32>; 2],
    wanted: &[Value],
) -> Result<(), String> {
    let each = states_each(config);
    let coded = config.state == Some(StatePrecision::Int8);
    let together = if coded { config.block as usize } else { 1 };
    for (first, wanted) in (0..).step_by(together).zip(wanted.chunks(together * each.max(1))) {
        let covered = (first..first + together).any(|w| sums.contains_key(&w));
        for (i, &(value, slack)) in wanted.iter().enumerate() {
            let (at, k) = (first * each + i, i % each);
            let found = f64::from(states[1][at]);
            if !covered && states[0][at].to_bits() != states[1][at].to_bits() {
                return Err(format!("state {at}, which no row reads, moved"));
            }
            let kind = config.optimizer.kind;
            let unsigned = match kind {
                OptimizerKind::AdaGrad => true,
                _ => k == 1 && kind != OptimizerKind::Ftrl,
            };
            let largest = wanted.iter().skip(k).step_by(each).map(|(x, slack)| x.abs() + slack).fold(0.0, f64::max);
            let (kept, rounded) = match (config.precision, coded, unsigned) {
                (Precision::Fp32, ..) => (value, 0.0),
                _ if config.state == Some(StatePrecision::Fp32) || kind == OptimizerKind::Ftrl => (value, 0.0),
                // Neighbours are an eighth apart, up to rounding of the value; the smallest code is 2^-31 or 2^-14 of the largest.
                (_, true, true) => (value, (value.abs() + slack) / 8.0 + largest * 2f64.powi(-30)),
                (_, true, false) => (value, (value.abs() + slack) / 8.0 + largest * 2f64.powi(-13)),
                (..) if config.optimizer.kind == OptimizerKind::AdaGrad => {
                    (value.min(65504.0), half_step(config, value))
                }
                (..) => (value, (value.abs() + slack) * 2f64.powi(if unsigned { -8 } else { -7 })),
            };
            if (found - kept).abs() > slack + rounded + 1e-30 {
                return Err(format!("state {at}: {found} for {kept}"));
            }
            // A second moment or sum of squares never becomes 0.
            if coded && unsigned && value > slack && found == 0.0 {
                return Err(format!("state {at}: 0 for {kept}"));
            }
        }
    }
    Ok(())
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

/// Checks that `found` equals `wanted` within the error of FP32 sums: up to 128 terms (a sorted sum has fewer), each addition wrong by at most 2^-24 of their size.
pub fn close(found: &[f32], wanted: &Sums) -> Result<(), String> {
    if found.len() != wanted.len() {
        return Err(format!("{} values for {}", found.len(), wanted.len()));
    }
    let wrong = (0..found.len()).find(|&i| {
        let (value, size) = wanted[i];
        let gap = (f64::from(found[i]) - value).abs();
        gap.is_nan() || gap > 2f64.powi(-17) * size
    });
    wrong.map_or(Ok(()), |i| Err(format!("value {i}: {} for {}", found[i], wanted[i].0)))
}

/// The seeds of `runs` runs of the test `name`, from a multiple of 64: [`config`] and [`packed`] pick by low bits, so that 64 seeds meet all.
pub fn seeds(name: &str, runs: u64) -> impl Iterator<Item = u64> + Clone + use<> {
    let first = crate::seed_for(name) & !63;
    crate::seed::held(name).chain(first..first + runs)
}

/// A random configuration. Chunks have one element, all elements, or a number that does or does not divide dim. In some arrays all chunks
/// overlap, in others few; one in seven addresses its rows directly, and one has whole hashed rows, few or many.
pub fn config(seed: u64) -> Config {
    let mut source = rand_pcg::Pcg64::seed_from_u64(seed);
    let pick = |source: &mut rand_pcg::Pcg64, of: &[u32]| of[source.random_range(0..of.len())];
    let dim = pick(&mut source, &[1, 3, 8, 17, 32, 40, 128]);
    let chunk = pick(&mut source, &[1, 2, 3, 8, 32, 50]);
    let weights = chunk + pick(&mut source, &[0, 1, 5, 60, 1000, 20_000]);
    let mut config = match seed % 7 {
        6 => Config::direct(&[300, 7, 5000], dim).unwrap(),
        5 => Config::new(&[300, 7, 5000], dim, dim * (1 + weights / 8), dim).with_addressing(Addressing::Rows),
        _ => Config::new(&[300, 7, 5000], dim, weights, chunk),
    };
    if source.random_bool(0.3) {
        config.features = vec![2, 0, 2, 1];
    }
    config.pooling = [Pooling::Sum, Pooling::Mean, Pooling::None][source.random_range(0..3)];
    config.out_of_range = [OutOfRange::Clamp, OutOfRange::Skip][source.random_range(0..2)];
    let ftrl = Optimizer::ftrl(0.1).with_l1(0.5).with_l2(0.1);
    let rules = [
        Optimizer::sgd(0.1),
        Optimizer::adagrad(0.1),
        Optimizer::adam(0.1),
        Optimizer::momentum(0.1),
        ftrl,
        Optimizer::lion(0.02),
    ];
    config.optimizer = rules[source.random_range(0..6)];
    config.optimizer.weight_decay = [0.0, 0.01][source.random_range(0..2)];
    // No new random number, so that a seed keeps its tables.
    config.optimizer.decoupled = seed % 3 == 1 && config.optimizer.kind != OptimizerKind::Ftrl;
    config.optimizer.clip_value = (seed % 5 == 4).then_some(0.5);
    config.init = Init::Uniform { low: -1.0, high: 1.0 };
    config.seed = seed as u32;
    config
}

/// A configuration whose bits are equal on every backend: sums without weights and SGD at a power of two leave a compiler nothing to fuse.
pub fn exact(seed: u64) -> Config {
    let pooling = [Pooling::Sum, Pooling::None][seed as usize % 2];
    config(seed).with_pooling(pooling).with_optimizer(Optimizer::sgd(0.5))
}

/// The same configuration with a packed array: every precision below FP32 in turn, nearest and stochastic, blocks of several sizes, states
/// of 16, 8 and 32 bits.
pub fn packed(seed: u64) -> Config {
    let precision = Precision::ALL[1 + seed as usize % 4];
    let rounding = [Rounding::Nearest, Rounding::Stochastic][seed as usize / 4 % 2];
    let block = [16, 64, 256, 32][seed as usize / 8 % 4];
    let state = random_state(precision, config(seed).optimizer.kind, seed as u32);
    let config = config(seed).with_precision(precision).with_rounding(rounding).with_block(block).with_state(state);
    config.with_write_rounding(Rounding::ALL[seed as usize / 5 % 2])
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
    table.forward(bags.bags(), Mode::Train).unwrap_or_else(|error| panic!("{error}"))
}

/// Both orders in which a backward visits the weights.
pub const WAYS: [Backward; 2] = [Backward::Dense, Backward::Sparse];
