use bytemuck::cast_slice;
use hotrow::{
    Context, GroupConfig, Optimizer, Pooling, Precision, Rounding,
    internals::layout::{Params, Robe},
    internals::stages,
};
use rand::RngExt as _;

use hotrow_harness::device::share;

use super::{
    Like, TRAIN, check, floats, gradients, gradients_of, guarded, layout_of,
    merge::{CHUNK, lengths},
    on_each, params, rate, read, rng,
    robe::{SHAPES, alike, alike_states, chunks, cut, kept, lanes, packed, robe, states, with_states},
    tables, words,
};

pub(super) struct Case<'a> {
    pub(super) precision: Precision,
    /// Bits of a state.
    pub(super) state: u32,
    pub(super) rounding: Rounding,
    pub(super) lengths: &'a [u32],
    pub(super) shape: [u32; 3],
    pub(super) dense: bool,
    pub(super) optimizer: Optimizer,
    /// Whether some gradients are not finite.
    pub(super) broken: bool,
    /// Number of windows of the array. Each window is a dispatch.
    pub(super) windows: u32,
}

/// Runs one case. Returns the number of words that changed, and the weights, states and counters that the kernel left.
pub(super) fn run(context: &Context, seed: u64, case: &Case<'_>) -> (usize, [Vec<u32>; 3]) {
    let &Case { precision, state, rounding, lengths, shape, dense, optimizer, broken, windows } = case;
    let mut source = rng(seed);
    let (bits, block) = (precision.bits(), [64, 16, 256, 32][seed as usize % 4]);
    let mut robe =
        packed(precision, block, Robe { dense_from: if dense { 0 } else { robe(shape).dense_from }, ..robe(shape) });
    cut(bits, &mut robe, windows);
    let robe = with_states(state, optimizer, robe);
    let outputs = source.random_range(1..20);
    let half = source.random_bool(0.4);
    let mut sorted = chunks(&mut source, &robe, lengths, outputs);
    (sorted.targets[0].start, sorted.targets[0].end) = (seed as u32, 0.5f32.to_bits());
    let pooling = [Pooling::Sum, Pooling::None, Pooling::Mean][source.random_range(0..3)];
    let config = GroupConfig::new(&[7, 1500], robe.dim)
        .with_precision(precision)
        .with_rounding(rounding)
        .with_pooling(pooling)
        .with_optimizer(optimizer);
    let width = robe.reach + 1;
    let tiles = (sorted.segment.len() as u32).div_ceil(CHUNK);
    let mut scratch = floats(&mut source, (2 * tiles * width) as usize, 1.0);
    // The word behind a partial row's sums says whether any of its chunks reaches the last weight.
    scratch.chunks_exact_mut(width as usize).for_each(|row| row[width as usize - 1] = source.random_range(0..2) as f32);
    let mut grads = floats(&mut source, (outputs * robe.dim) as usize, 1.0);
    if broken {
        grads.iter_mut().for_each(|g| {
            if source.random_bool(0.05) {
                *g = [f32::NAN, f32::INFINITY, 3e38, -3e38][source.random_range(0..4)];
            }
        });
    }
    let memory = kept(&mut source, bits, &robe);
    let states = states(&mut source, optimizer, &robe);
    let mut counters = guarded(&tables(&mut source, &config.tables, 3));
    let params = Params {
        dim: width,
        lanes: lanes(width),
        weighted: source.random_range(0..2),
        half_grads: u32::from(half),
        ..params(&config, &layout_of(&config), TRAIN, 2)
    };
    // SGD at a power of two without decay rounds once, at the end, so the bits show the order of the sums. The other cases have some
    // hundred terms below 4, and a division.
    let exact = optimizer == Optimizer::sgd(0.5);
    let plain = precision == Precision::Fp32;
    let like = match (plain, exact) {
        (true, true) => Like::Bits,
        (true, false) => Like::Within(f32::EPSILON * 128.0 * 512.0),
        (false, _) => Like::Elsewhere,
    };
    let what = format!("{precision:?}, {rounding:?}, seed {seed}, {lengths:?}, {robe:?}, {optimizer:?}, half {half}");
    let units = robe.weights.div_ceil(16) + 2;
    let items =
        if dense { robe.weights } else { sorted.targets[0].row * robe.reach * if plain { 1 } else { units.min(64) } };
    let groups = [1, items.div_ceil(256).clamp(1, 300)][source.random_range(0..2)];
    let state_words = robe.window as usize * robe.state_words as usize / robe.block as usize;
    let (mut changed, mut left) = (0, [Vec::new(), Vec::new()]);
    for (k, memory) in (0..).zip(memory.chunks(robe.window_words as usize)) {
        // Without states there is a dummy.
        let window = (k as usize * state_words).min(states.len());
        let states = if state_words == 0 { &states } else { &states[window..states.len().min(window + state_words)] };
        let robe = Robe { first: k * robe.window, ..robe };
        let bindings = [
            words(&params),
            words(&robe),
            guarded(&sorted.targets),
            guarded(&sorted.accesses),
            gradients(&grads, half),
            guarded(&scratch),
            guarded(memory),
            guarded(states),
            counters,
            words(&rate(&config)),
        ];
        let stage = if plain { "robe_update" } else { "robe_blocks" };
        let run = check(context, stage, &what, &bindings, groups, &[("memory", like), ("states", like)], |b| {
            let [params, robe, targets, accesses, grad_outputs, scratch, memory, states, tables, rate] = b else {
                unreachable!()
            };
            let (targets, accesses, scratch) = (cast_slice(targets), cast_slice(accesses), cast_slice(scratch));
            let params = read(params);
            let grads = gradients_of(grad_outputs, &params);
            let mirror = if plain { stages::robe_update } else { stages::robe_blocks };
            mirror(&params, &read(robe), targets, accesses, grads, scratch, memory, states, tables, &read(rate));
        });
        if !plain {
            let every = if exact { 10_000 } else { 200 };
            let sides = |binding: usize| [&run.found[binding][..], &run.wanted[binding][..]];
            let [found, wanted] = sides(6);
            alike(bits, &robe, found, wanted, every).unwrap_or_else(|error| panic!("{what}: weights, {error}"));
            let [found, wanted] = sides(7);
            let halves = Robe { block_words: robe.state_words.max(1), ..robe };
            let same = match robe.state_bits {
                8 => alike_states(
                    &robe,
                    optimizer.kind.has_moments(),
                    &found[..states.len()],
                    &wanted[..states.len()],
                    every,
                ),
                _ => alike(16, &halves, found, wanted, every),
            };
            same.unwrap_or_else(|error| panic!("{what}: states, {error}"));
        }
        changed += run.changed;
        left[0].extend_from_slice(&run.found[6][..memory.len()]);
        if state_words > 0 {
            left[1].extend_from_slice(&run.found[7][..states.len()]);
        }
        counters = run.found[8].clone();
    }
    let [memory, states] = left;
    (changed, [memory, states, counters])
}

/// Runs a case dense and sparse, in one window and in several, which must give the same bits.
pub(super) fn ways(
    context: &Context,
    seed: u64,
    (precision, state): (Precision, u32),
    lengths: &[u32],
    shape: [u32; 3],
    optimizer: Optimizer,
    broken: bool,
) -> usize {
    let rounding = [Rounding::Nearest, Rounding::Stochastic][seed as usize / 3 % 2];
    let run = |dense, windows| {
        run(context, seed, &Case { precision, state, rounding, lengths, shape, dense, optimizer, broken, windows })
    };
    let (changed, dense) = run(true, 1);
    for (ways, windows) in [(false, 1), (true, 3), (false, 2)] {
        assert!(
            run(ways, windows).1 == dense,
            "{precision:?}, states of {state} bits, seed {seed}: dense {ways}, {windows} windows differ"
        );
    }
    changed
}

/// Every rule that a shared array takes, in turn.
pub(super) fn rule(seed: u64) -> Optimizer {
    let adamw = Optimizer::adam(0.1).with_decoupled(true).with_weight_decay(0.1);
    let rules = [
        Optimizer::sgd(0.5),
        Optimizer::adagrad(0.1),
        Optimizer::adam(0.1),
        Optimizer::adagrad(0.1).with_weight_decay(0.1),
        Optimizer::momentum(0.1).with_clip_value(Some(0.5)),
        adamw,
        Optimizer::sgd(0.1).with_decoupled(true).with_weight_decay(0.1),
    ];
    rules[seed as usize % rules.len()]
}

#[test]
pub(super) fn matches_the_mirror_dense_and_sparse() {
    on_each(|context| {
        let (mut changed, mut seed) = (0, 0);
        for lengths in lengths(&mut rng(1)) {
            // The last two shapes have too large an array for this test.
            for shape in &SHAPES[..7] {
                seed += 1;
                let broken = seed % 5 == 0;
                changed += ways(context, seed, (Precision::Fp32, 32), &lengths, *shape, rule(seed), broken);
            }
        }
        assert!(changed > 0);
    });
}

/// More starts than a workgroup takes at once, in arrays that their chunks would cover and in larger ones: a sparse update visits all
/// weights of the first, and only covered weights of the second.
#[test]
pub(super) fn many_starts_match_the_mirror() {
    on_each(|context| {
        let shapes = [([4, 1, 2000], 700), ([6, 3, 4000], 600), ([100, 7, 5000], 400), ([64, 32, 20_000], 300)];
        let cases = (40..).zip(shapes).flat_map(|(seed, ([dim, chunk, weights], starts))| {
            [(seed, weights), (seed + 4, weights), (seed + 8, starts * chunk)]
                .map(|(seed, weights)| (seed, [dim, chunk, weights], starts))
        });
        // Several precisions take part in each shape and each size of the array.
        let packed = |seed| Precision::ALL[1 + (seed + seed / 4) as usize % 4];
        let plain = cases.clone().map(|case| (Precision::Fp32, case));
        for (precision, (seed, shape, starts)) in plain.chain(share(cases.map(|case| (packed(case.0), case)))) {
            let mut lengths = vec![1; starts as usize];
            (lengths[3], lengths[starts as usize - 2]) = (5, 300);
            // The array has room for all chunks side by side, so no start is dropped.
            assert!(starts * shape[1] <= shape[2]);
            let optimizer = [Optimizer::sgd(0.5), Optimizer::adagrad(0.1), Optimizer::adam(0.1)][seed as usize % 3];
            let state = if precision == Precision::Fp32 { 32 } else { [16, 8][seed as usize % 2] };
            assert!(ways(context, seed, (precision, state), &lengths, shape, optimizer, false) > 0);
        }
    });
}
