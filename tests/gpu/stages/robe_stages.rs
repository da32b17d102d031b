//! The stages of parameter-shared tables.

use bytemuck::{cast_slice, cast_slice_mut};
use hotrow::{
    AddBody, GroupConfig, Optimizer, Pooling, Precision, RankBody, Rounding, ScalerState,
    internals::layout::{NONE, Params, Robe, Target, count},
    internals::stages,
    robe::hash::{PRIME, chunk_start, row_hash, row_place},
};
use hotrow_harness::device::{again, options, with_gpu};
use rand::RngExt as _;
use rand_pcg::Pcg64;

use super::{
    Case, FROZEN, Like, ROWS, TRAIN,
    backward::{CHUNK, LENGTHS, lengths},
    check, each, each_on, floats, gradients, gradients_of, guarded, junk, layout_of,
    lookup::{access, as_floats, offsets, pooled, weights},
    of, one_of, params, rate, read,
    robe::{
        SHAPES, SOME, Sorted, alike, alike_states, cut, few, hashes, kept, lanes, packed, robe, some_lengths, states,
        with_states,
    },
    step, tables, words,
};

const POOLINGS: [Pooling; 3] = [Pooling::Sum, Pooling::Mean, Pooling::None];

/// Many rows next to multiples of the prime and to the ends of 32 bits, where the product comes closest to its bounds.
#[test]
pub(crate) fn robe_hash() {
    each("robe_hash", [6, 3, 3, 2], |case, mut source, [n, mode, direct, empty]| {
        let n = [0usize, 1, 255, 256, 257, 5000][n];
        let (active, rows) = (empty == 0, [1, 3_000_000_000, 1_294_967_290]);
        let config = GroupConfig::new(&rows, 4);
        let key = |_| match source.random_range(0..5) {
            0 => NONE,
            1 => PRIME.wrapping_sub(3).wrapping_add(source.random_range(0..6)),
            2 => one_of(&mut source, &[0, 1, 2 * PRIME - 1, 2 * PRIME, u32::MAX - 1]),
            _ => source.random_range(0..u32::MAX - 1),
        };
        let keys: Vec<u32> = (0..n).map(key).collect();
        // One in three addresses its rows directly.
        let robe = Robe { stride: [0, 0, 12][direct], ..Robe::default() };
        let params = params(&config, &layout_of(&config), [TRAIN, FROZEN, ROWS][mode], 0);
        let bindings = [
            words(&Params { indices: n as u32, ..params }),
            words(&robe),
            words(&step(&mut source, 9, &[(count::INDICES, if active { n as u32 } else { 0 })])),
            guarded(&keys),
            guarded(&junk(&mut source, n)),
            guarded(&tables(&mut source, &rows, 9)),
        ];
        let groups = n.div_ceil(256) as u32;
        let run = check(case, "robe_hash", &bindings, groups, &[], |[params, robe, step, keys, hashes, tables]| {
            stages::robe_hash(&read(params), &read(robe), of(step), keys, hashes, tables);
        });
        // Checked without the mirror, by the hash of the library.
        for (i, &key) in keys.iter().enumerate() {
            let wanted = if key == NONE || !active { NONE } else { row_place(key, robe.stride) };
            assert_eq!(run.found[4][i], wanted, "{case}: row {key}");
            let other = key != NONE && active && robe.stride != 0 && row_hash(key) != key.wrapping_mul(12);
            assert!(!other || run.found[4][i] != row_hash(key), "{case}: row {key} is hashed");
        }
    });
}

#[test]
pub(crate) fn robe_keys() {
    each("robe_keys", [10, 4], |case, mut source, [shape, n]| {
        // In the last shape a row has so many chunks that the product with a chunk's number exceeds P many times.
        let shape = *SHAPES.get(shape).unwrap_or(&[1 << 16, 1, 5000]);
        let most = (1 << 18) / shape[0] as usize;
        let n = [one_of(&mut source, &[0, 1]), 3, 100.min(most), 300.min(most)][n];
        let robe = robe(shape);
        let config = GroupConfig::new(&[1500], robe.dim);
        let chunks = n * robe.chunks as usize;
        let access: Vec<[u32; 2]> = (0..n).map(|_| [source.random_range(0..1000), source.random()]).collect();
        let bindings = [
            words(&Params { indices: n as u32, ..params(&config, &layout_of(&config), TRAIN, 0) }),
            words(&robe),
            words(&step(&mut source, 9, &[(count::INDICES, n as u32)])),
            guarded(&hashes(&mut source, n)),
            guarded(&access),
            guarded(&junk(&mut source, chunks)),
            guarded(&junk(&mut source, 2 * chunks)),
        ];
        let groups = chunks.div_ceil(256).max(1) as u32;
        let run = check(case, "robe_keys", &bindings, groups, &[], |b| {
            let [params, robe, step, hashes, access, keys, chunk_access] = b;
            let (access, chunk_access) = (cast_slice(access), cast_slice_mut(chunk_access));
            stages::robe_keys(&read(params), &read(robe), of(step), hashes, access, keys, chunk_access);
        });
        // Checked without the mirror: the chunks of one index follow those of the index before.
        for (k, &key) in run.found[5][..chunks].iter().enumerate() {
            let (hash, j) = (bindings[3][k / robe.chunks as usize], k as u32 % robe.chunks);
            let wanted = if hash == NONE { NONE } else { chunk_start(hash, j, robe.starts) };
            assert_eq!(key, wanted, "{case}: chunk {k}");
        }
    });
}

/// An array in blocks of any size, its group, and the lanes of a row.
fn array(source: &mut Pcg64, precision: Precision, shape: [u32; 3], pooling: Pooling) -> (Robe, GroupConfig) {
    let robe = packed(precision, one_of(source, &[16, 64, 256]), robe(shape));
    (robe, GroupConfig::new(&[1500], robe.dim).with_precision(precision).with_pooling(pooling))
}

#[test]
pub(crate) fn robe_gather_and_robe_decode() {
    // The last shape has too large an array for this test.
    each("robe_gather", [5, 3, 3, 8, 4], |case, mut source, [precision, pooling, weighting, shape, size]| {
        let (precision, pooling) = (Precision::ALL[precision], POOLINGS[pooling]);
        // With products that are exact the bits of a sum show its order.
        let (weighted, exact) = [(false, true), (true, true), (true, false)][weighting];
        let (indices, bags) = [(0, 1), (1, 1), (7, 9), (300, 4)][size];
        let (robe, config) = array(&mut source, precision, SHAPES[shape], pooling);
        let lanes = lanes(robe.dim);
        let params = Params {
            indices,
            bags,
            lanes,
            weighted: u32::from(weighted),
            ..params(&config, &layout_of(&config), TRAIN, 0)
        };
        let n = indices as usize;
        let weights = weights(&mut source, n, exact);
        let offsets = offsets(&mut source, bags, indices);
        let rows = if pooling == Pooling::None { indices } else { bags };
        let bindings = [
            words(&params),
            words(&robe),
            guarded(&offsets),
            guarded(&hashes(&mut source, n)),
            guarded(&weights),
            guarded(&kept(&mut source, precision.bits(), &robe)),
            guarded(&junk(&mut source, 2 * n)),
            guarded(&junk(&mut source, (rows * robe.dim) as usize)),
        ];
        let rules = pooled(&offsets, indices, exact, pooling == Pooling::Mean);
        let groups = rows.div_ceil(256 / lanes * if pooling == Pooling::None { 4 } else { 1 }) + 1;
        let stage = if precision == Precision::Fp32 { "robe_gather" } else { "robe_decode" };
        check(case, stage, &bindings, groups, &rules, |b| {
            let [params, robe, offsets, hashes, weights, memory, access, outputs] = b;
            let (access, outputs, weights) = (cast_slice_mut(access), cast_slice_mut(outputs), cast_slice(weights));
            stages::robe_gather(&read(params), &read(robe), offsets, hashes, weights, memory, access, outputs);
        });
    });
}

#[test]
pub(crate) fn robe_weight_gradient() {
    // The last shape has too large an array for this test.
    each("robe_weight_gradient", [5, 3, 8, 3, 2], |case, mut source, [precision, pooling, shape, size, half]| {
        let (precision, pooling) = (Precision::ALL[precision], POOLINGS[pooling]);
        let (indices, bags) = [(0, 1), (7, 9), (300, 4)][size];
        let (robe, config) = array(&mut source, precision, SHAPES[shape], pooling);
        let lanes = lanes(robe.dim);
        let params =
            Params { indices, bags, lanes, half_grads: half as u32, ..params(&config, &layout_of(&config), TRAIN, 0) };
        let n = indices as usize;
        let offsets = offsets(&mut source, bags, indices);
        let access = access(&mut source, pooling, &offsets);
        let rows = if pooling == Pooling::None { indices } else { bags };
        let bindings = [
            words(&params),
            words(&robe),
            guarded(&offsets),
            guarded(&access),
            guarded(&hashes(&mut source, n)),
            guarded(&kept(&mut source, precision.bits(), &robe)),
            gradients(&floats(&mut source, (rows * robe.dim) as usize, 1.0), half == 1),
            guarded(&junk(&mut source, n)),
        ];
        // Products below 4, each rounded once, and once in each sum that it is part of.
        let rules = [("grad_weights", Like::Within(f32::EPSILON * (robe.dim as f32 + 4.0) * robe.dim as f32))];
        let groups = indices.div_ceil(256 / lanes) + 1;
        check(case, "robe_weight_gradient", &bindings, groups, &rules, |b| {
            let [params, robe, offsets, access, hashes, memory, grads, found] = b;
            let (access, params, found) = (cast_slice(access), &read(params), cast_slice_mut(found));
            let grads = as_floats(grads, params);
            stages::robe_weight_gradient(params, &read(robe), offsets, access, hashes, memory, &grads, found);
        });
    });
}

/// The stages of a sorted backward that only add. Gradients times powers of two, added in a given
/// order, have the same bits.
#[test]
pub(crate) fn robe_merge_to_robe_gradient() {
    each("robe_merge", [SOME, 9, 2], |case, mut source, [kind, shape, half]| {
        // A long row has hundreds of chunks.
        let lengths = if (kind, shape) == (4, 2) { vec![3, 100_000, 150] } else { some_lengths(&mut source, kind) };
        let sorted = Sorted::new(&mut source, &lengths, robe(SHAPES[shape]), half == 1);
        let (robe, n) = (sorted.robe, sorted.targets[0].row as usize);
        let [params, uniform, targets, accesses, grads, scratch] = sorted.bindings();
        let tiles = (sorted.segment.len() as u32).div_ceil(CHUNK);
        let some_groups = |source: &mut Pcg64, all: u32| one_of(source, &[1, all.max(1)]);

        let groups = some_groups(&mut source, (2 * tiles).div_ceil(256 / sorted.params.lanes));
        let [one, two, three] = [params.clone(), uniform.clone(), targets.clone()];
        let sums = guarded(&junk(&mut source, sorted.scratch.len()));
        let bindings = [one, two, three, guarded(&sorted.segment), accesses.clone(), grads.clone(), sums];
        check(case, "robe_merge", &bindings, groups, &[], |b| {
            let [params, robe, targets, segment, accesses, grads, scratch] = b;
            let (targets, accesses, scratch) = (cast_slice(targets), cast_slice(accesses), cast_slice_mut(scratch));
            let params = read(params);
            let grads = gradients_of(grads, &params);
            stages::robe_merge(&params, &read(robe), targets, segment, accesses, grads, scratch);
        });

        let (runs, blocks) = (guarded(&junk(&mut source, 2 * n)), guarded(&junk(&mut source, n.div_ceil(256))));
        let [one, two, three] = [params.clone(), uniform.clone(), targets.clone()];
        let bindings = [one, two, three, accesses.clone(), scratch.clone(), runs, blocks];
        let groups = some_groups(&mut source, (n as u32).div_ceil(256));
        let run = check(case, "robe_runs", &bindings, groups, &[], |b| {
            let [params, robe, targets, accesses, scratch, runs, blocks] = b;
            let (targets, accesses, scratch) = (cast_slice(targets), cast_slice(accesses), cast_slice(scratch));
            let runs = cast_slice_mut(runs);
            stages::robe_runs(&read(params), &read(robe), targets, accesses, scratch, runs, blocks);
        });
        // Checked without the mirror: a run begins at its start, ends at the next start at the latest, and is at most as long as the
        // longest chunk.
        let starts: &[Target] = &sorted.targets[1..];
        let runs: &[[u32; 2]] = cast_slice(&run.found[5][..2 * n]);
        for d in 0..n {
            let most = starts.get(d + 1).map_or(robe.reach, |next| (next.row - starts[d].row).min(robe.reach));
            assert!((most.min(robe.tail)..=most).contains(&runs[d][1]), "{case}, start {d}");
            let before: u32 = runs[d / 256 * 256..d].iter().map(|run| run[1]).sum();
            assert_eq!(runs[d][0], before, "{case}, start {d}");
        }

        let (runs, mut blocks) = (run.wanted[5].clone(), run.wanted[6].clone());
        let mut total = 0;
        blocks[..n.div_ceil(256)].iter_mut().for_each(|block| (*block, total) = (total, total + *block));
        let [places, sums] = [(); 2].map(|()| guarded(&junk(&mut source, total as usize)));
        let [one, two, three] = [params.clone(), uniform.clone(), targets.clone()];
        let bindings = [one, two, three, accesses.clone(), grads.clone(), scratch.clone(), runs, blocks, places, sums];
        let groups = some_groups(&mut source, (n as u32 * robe.reach).div_ceil(256));
        let run = check(case, "robe_covered", &bindings, groups, &[], |b| {
            let [params, robe, targets, accesses, grads, scratch, runs, blocks, places, sums] = b;
            let params = read(params);
            let (targets, accesses, scratch) = (cast_slice(targets), cast_slice(accesses), cast_slice(scratch));
            let (grads, runs, sums) = (gradients_of(grads, &params), cast_slice(runs), cast_slice_mut(sums));
            stages::robe_covered(&params, &read(robe), targets, accesses, grads, scratch, runs, blocks, places, sums);
        });
        let places = &run.found[8][..total as usize];
        assert!(places.is_sorted_by(|a, b| a < b) && places.iter().all(|&w| w < robe.weights), "{case}");

        // The last two shapes have too large an array for a gradient of every weight.
        if shape < 7 {
            let sums = guarded(&junk(&mut source, robe.weights as usize));
            let bindings = [params, uniform, targets, accesses, grads, scratch, sums];
            let groups = some_groups(&mut source, robe.weights.div_ceil(256));
            let run = check(case, "robe_gradient", &bindings, groups, &[], |b| {
                let [params, robe, targets, accesses, grads, scratch, sums] = b;
                let params = read(params);
                let (targets, accesses, scratch) = (cast_slice(targets), cast_slice(accesses), cast_slice(scratch));
                let (grads, sums) = (gradients_of(grads, &params), cast_slice_mut(sums));
                stages::robe_gradient(&params, &read(robe), targets, accesses, grads, scratch, sums);
            });
            // Checked without the mirror: without a start the gradient is 0.
            assert!(n > 0 || run.found[6][..robe.weights as usize].iter().all(|&sum| sum == 0), "{case}");
        }
    });
}

/// What an update starts from.
struct Update {
    precision: Precision,
    /// Bits of a state.
    state: u32,
    rounding: Rounding,
    lengths: Vec<u32>,
    shape: [u32; 3],
    optimizer: Optimizer,
    /// Whether some gradients are not finite.
    broken: bool,
    half: bool,
}

/// Updates an array in `windows` windows, each a dispatch. Returns the weights, states and counters that the kernel left.
fn left(case: &Case<'_>, mut source: Pcg64, update: &Update, dense: bool, windows: u32) -> [Vec<u32>; 3] {
    let &Update { precision, state, rounding, ref lengths, shape, optimizer, broken, half } = update;
    let (bits, block) = (precision.bits(), one_of(&mut source, &[64, 16, 256, 32]));
    let all = robe(shape);
    let mut robe = packed(precision, block, Robe { dense_from: if dense { 0 } else { all.dense_from }, ..all });
    cut(bits, &mut robe, windows);
    let robe = with_states(state, optimizer, robe);
    let mut sorted = Sorted::new(&mut source, lengths, robe, half);
    (sorted.targets[0].start, sorted.targets[0].end) = (source.random(), 0.5f32.to_bits());
    let config = GroupConfig::new(&[7, 1500], robe.dim)
        .with_precision(precision)
        .with_rounding(rounding)
        .with_optimizer(optimizer);
    let Params { pooling, dim, lanes, weighted, half_grads, .. } = sorted.params;
    sorted.params =
        Params { pooling, dim, lanes, weighted, half_grads, ..params(&config, &layout_of(&config), TRAIN, 2) };
    sorted.grads = floats(&mut source, sorted.grads.len(), 1.0);
    if broken {
        for g in &mut sorted.grads {
            if source.random_bool(0.05) {
                *g = one_of(&mut source, &[f32::NAN, f32::INFINITY, 3e38, -3e38]);
            }
        }
    }
    let memory = kept(&mut source, bits, &robe);
    let states = states(&mut source, optimizer, &robe);
    let mut counters = guarded(&tables(&mut source, &config.tables, 3));
    // SGD at a power of two without decay rounds once, at the end, so the bits show the order of the sums. The other cases have some
    // hundred terms below 4, and a division.
    let exact = optimizer == Optimizer::sgd(0.5);
    let plain = precision == Precision::Fp32;
    let like = match (plain, exact) {
        (true, true) => Like::Bits,
        (true, false) => Like::Within(f32::EPSILON * 128.0 * 512.0),
        (false, _) => Like::Elsewhere,
    };
    let units = robe.weights.div_ceil(16) + 2;
    let items =
        if dense { robe.weights } else { sorted.targets[0].row * robe.reach * if plain { 1 } else { units.min(64) } };
    let groups = one_of(&mut source, &[1, items.div_ceil(256).clamp(1, 300)]);
    let state_words = robe.window as usize * robe.state_words as usize / robe.block as usize;
    let mut left = [Vec::new(), Vec::new()];
    for (k, memory) in (0..).zip(memory.chunks(robe.window_words as usize)) {
        // Without states there is a dummy.
        let window = (k as usize * state_words).min(states.len());
        let states = if state_words == 0 { &states } else { &states[window..states.len().min(window + state_words)] };
        let robe = Robe { first: k * robe.window, ..robe };
        let [params, _, targets, accesses, grads, scratch] = sorted.bindings();
        let (memory_in, states_in, rate) = (guarded(memory), guarded(states), words(&rate(&config)));
        let bindings = [params, words(&robe), targets, accesses, grads, scratch, memory_in, states_in, counters, rate];
        let stage = if plain { "robe_update" } else { "robe_blocks" };
        let rules = [("memory", like), ("states", like)];
        let run = check(case, stage, &bindings, groups, &rules, |b| {
            let [params, robe, targets, accesses, grads, scratch, memory, states, tables, rate] = b;
            let (targets, accesses, scratch) = (cast_slice(targets), cast_slice(accesses), cast_slice(scratch));
            let params = read(params);
            let grads = gradients_of(grads, &params);
            let mirror = if plain { stages::robe_update } else { stages::robe_blocks };
            mirror(&params, &read(robe), targets, accesses, grads, scratch, memory, states, tables, &read(rate));
        });
        if !plain {
            let every = if exact { 10_000 } else { 200 };
            let sides = |binding: usize| [&run.found[binding][..], &run.wanted[binding][..]];
            let [found, wanted] = sides(6);
            alike(bits, &robe, found, wanted)
                .and_then(|apart| few(apart, every))
                .unwrap_or_else(|error| panic!("{case}: weights, {error}"));
            let [found, wanted] = sides(7);
            let halves = Robe { block_words: robe.state_words.max(1), ..robe };
            let apart = match robe.state_bits {
                8 => {
                    let [found, wanted] = [found, wanted].map(|words| &words[..states.len()]);
                    alike_states(&robe, optimizer.kind.has_moments(), found, wanted)
                }
                _ => alike(16, &halves, found, wanted),
            };
            apart.and_then(|apart| few(apart, every)).unwrap_or_else(|error| panic!("{case}: states, {error}"));
        }
        left[0].extend_from_slice(&run.found[6][..memory.len()]);
        if state_words > 0 {
            left[1].extend_from_slice(&run.found[7][..states.len()]);
        }
        counters = run.found[8].clone();
    }
    let [memory, states] = left;
    [memory, states, counters]
}

/// Updates dense in one window, and in another way, which must give the same bits.
fn two_ways(case: &Case<'_>, source: &Pcg64, update: &Update, way: usize) {
    let left = |dense, windows| left(case, source.clone(), update, dense, windows);
    let (dense, windows) = [(false, 1), (true, 3), (false, 2)][way];
    assert!(left(dense, windows) == left(true, 1), "{case}: dense {dense}, {windows} windows differ");
}

/// Each precision with its bits of a state.
const STORED: [(Precision, u32); 9] = [
    (Precision::Fp32, 32),
    (Precision::Fp16, 16),
    (Precision::Fp16, 8),
    (Precision::Int8, 16),
    (Precision::Int8, 8),
    (Precision::Int4, 16),
    (Precision::Int4, 8),
    (Precision::Int2, 16),
    (Precision::Int2, 8),
];

/// Every rule that a shared array takes.
fn rules() -> [Optimizer; 7] {
    [
        Optimizer::sgd(0.5),
        Optimizer::adagrad(0.1),
        Optimizer::adam(0.1),
        Optimizer::adagrad(0.1).with_weight_decay(0.1),
        Optimizer::momentum(0.1).with_clip_value(Some(0.5)),
        Optimizer::adam(0.1).with_decoupled(true).with_weight_decay(0.1),
        Optimizer::sgd(0.1).with_decoupled(true).with_weight_decay(0.1),
    ]
}

#[test]
pub(crate) fn robe_update_and_robe_blocks() {
    // The last two shapes have too large an array for this test.
    each("robe_update", [9, 7, LENGTHS, 7, 3, 2, 5, 2], |case, mut source, setting| {
        let [stored, rule, kind, shape, way, rounding, broken, half] = setting;
        let (precision, state) = STORED[stored];
        let update = Update {
            precision,
            state,
            rounding: [Rounding::Nearest, Rounding::Stochastic][rounding],
            lengths: lengths(&mut source, kind),
            shape: SHAPES[shape],
            optimizer: rules()[rule],
            broken: broken == 0,
            half: half == 1,
        };
        two_ways(case, &source, &update, way);
    });
}

/// More starts than a workgroup takes at once, in arrays that their chunks would cover and in larger ones: a sparse update visits all
/// weights of the first, and only covered weights of the second.
#[test]
pub(crate) fn many_starts() {
    each("many starts", [4, 2, 9, 3, 3], |case, source, [shape, small, stored, rule, way]| {
        let ([dim, chunk, weights], starts) =
            [([4, 1, 2000], 700), ([6, 3, 4000], 600), ([100, 7, 5000], 400), ([64, 32, 20_000], 300)][shape];
        // The array has room for all chunks side by side, so no start is dropped.
        let shape = [dim, chunk, if small == 1 { starts * chunk } else { weights }];
        let mut lengths = vec![1; starts as usize];
        (lengths[3], lengths[starts as usize - 2]) = (5, 300);
        let (precision, state) = STORED[stored];
        let (optimizer, rounding) = (rules()[rule], Rounding::Nearest);
        let update = Update { precision, state, rounding, lengths, shape, optimizer, broken: false, half: false };
        two_ways(case, &source, &update, way);
    });
}

/// With each body that adds.
#[test]
pub(crate) fn robe_scatter() {
    with_gpu(|context| {
        let narrow = again(&options().rank(RankBody::Portable).max_groups(3));
        let contexts = [context.clone(), narrow, again(&options().add(AddBody::Exchange))];
        // The last two shapes have too large an array for this test.
        each_on(
            &contexts,
            "robe_scatter",
            [5, 7, 3, 2, 2, 2],
            |case, mut source, [n, shape, pooling, exact, half, decay]| {
                let (n, exact) = ([0, 1, 3, 40, 300][n], exact == 1);
                let outputs = source.random_range(1..20);
                let optimizer = Optimizer::sgd(0.1).with_weight_decay([0.0, 0.1][decay]);
                let robe = with_states(32, optimizer, robe(SHAPES[shape]));
                let config =
                    GroupConfig::new(&[1500], robe.dim).with_pooling(POOLINGS[pooling]).with_optimizer(optimizer);
                let params = Params {
                    indices: n,
                    weighted: source.random_range(0..2),
                    half_grads: half as u32,
                    ..params(&config, &layout_of(&config), TRAIN, 0)
                };
                let coefficients = [0.5f32, -1.0, 2.0].map(f32::to_bits);
                let access: Vec<[u32; 2]> =
                    (0..n).map(|_| [source.random_range(0..outputs), one_of(&mut source, &coefficients)]).collect();
                let mut grads = floats(&mut source, (outputs * robe.dim) as usize, 2.0);
                if exact {
                    // Sums of whole numbers times powers of two have the same bits in any order.
                    grads.iter_mut().for_each(|g| *g = (*g * 8.0).round());
                }
                let mut rows = hashes(&mut source, n as usize);
                // Every other access goes to one row.
                let hot = rows.first().copied();
                rows.iter_mut().step_by(2).zip(hot.iter().cycle()).for_each(|(row, &hot)| *row = hot);
                let overflow = u32::from(source.random_bool(0.1));
                let bindings = [
                    words(&params),
                    words(&robe),
                    words(&ScalerState { inverse: 0.5, overflow, ..ScalerState::default() }),
                    guarded(&rows),
                    guarded(&access),
                    gradients(&grads, half == 1),
                    guarded(&vec![0.0f32; robe.weights as usize]),
                    guarded(&vec![0u32; robe.weights.div_ceil(32) as usize]),
                ];
                // A weight's sum has some 300 terms below 4: 300 roundings of numbers below 1200.
                let rules = [("sums", if exact { Like::Bits } else { Like::Within(0.03) })];
                let groups = one_of(&mut source, &[1, (n * robe.dim).div_ceil(256).max(1)]);
                check(case, "robe_scatter", &bindings, groups, &rules, |b| {
                    let [params, robe, scaler, hashes, access, grads, sums, covered] = b;
                    let params = read(params);
                    let (grads, access, sums) =
                        (gradients_of(grads, &params), cast_slice(access), cast_slice_mut(sums));
                    stages::robe_scatter(&params, &read(robe), &read(scaler), hashes, access, grads, sums, covered);
                });
            },
        );
    });
}

#[test]
pub(crate) fn robe_step() {
    each("robe_step", [7, 7], |case, mut source, [rule, shape]| {
        let decayed = |optimizer: Optimizer| optimizer.with_weight_decay(0.1);
        let (adagrad, adam) = (Optimizer::adagrad(0.1), Optimizer::adam(0.1));
        let (sgd, momentum) = (Optimizer::sgd(0.5), Optimizer::momentum(0.1));
        let adamw = decayed(adam).with_decoupled(true);
        let optimizer = [sgd, adagrad, adam, decayed(sgd), decayed(adagrad), momentum, adamw][rule];
        let robe = with_states(32, optimizer, robe(SHAPES[shape]));
        let weights = robe.weights as usize;
        let config = GroupConfig::new(&[7, 1500], robe.dim).with_optimizer(optimizer);
        let mut sums = floats(&mut source, weights, 1.0);
        for sum in &mut sums {
            match source.random_range(0..10) {
                0 => *sum = one_of(&mut source, &[f32::NAN, f32::INFINITY, -0.0, 1e-45]),
                1..5 => *sum = 0.0,
                _ => {}
            }
        }
        let some = |_| if source.random_bool(0.5) { 0 } else { source.random() };
        let marks: Vec<u32> = (0..weights.div_ceil(32)).map(some).collect();
        let memory = floats(&mut source, weights, 1.0);
        let bindings = [
            words(&params(&config, &layout_of(&config), TRAIN, 0)),
            words(&robe),
            guarded(&sums),
            guarded(&marks),
            guarded(&memory),
            guarded(&states(&mut source, optimizer, &robe)),
            guarded(&tables(&mut source, &config.tables, 3)),
            words(&rate(&config)),
        ];
        // SGD at a power of two without decay rounds once. The other optimisers round a few times and divide.
        let like = if optimizer == sgd { Like::Bits } else { Like::Within(f32::EPSILON * 16.0) };
        let groups = one_of(&mut source, &[1, robe.weights.div_ceil(256)]);
        let rules = [("memory", like), ("states", like)];
        let run = check(case, "robe_step", &bindings, groups, &rules, |b| {
            let [params, robe, sums, covered, memory, states, tables, rate] = b;
            let (sums, memory, states) = (cast_slice_mut(sums), cast_slice_mut(memory), cast_slice_mut(states));
            stages::robe_step(&read(params), &read(robe), sums, covered, memory, states, tables, &read(rate));
        });
        // Checked without the mirror: sums and marks are cleared, and only covered weights have changed.
        let marked = robe.marks == 1;
        assert!(run.found[2][..weights].iter().all(|&sum| sum == 0), "{case}");
        assert!(!marked || run.found[3][..marks.len()].iter().all(|&marks| marks == 0), "{case}");
        for w in 0..weights {
            let covered = if marked { marks[w / 32] >> (w % 32) & 1 == 1 } else { sums[w].to_bits() != 0 };
            assert!(covered || run.found[4][w] == memory[w].to_bits(), "{case}, weight {w}");
        }
    });
}
