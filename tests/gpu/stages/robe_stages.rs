//! The integer stages of parameter-shared tables, and those of a sorted backward that only add. The others round, and run in `robe.rs` and
//! `robe_atomic.rs`: against the FP64 model, and bit for bit with the CPU.

use bytemuck::{cast_slice, cast_slice_mut};
use hotrow::{
    GroupConfig, Pooling, Precision, StatePrecision,
    internals::layout::{NONE, Params, Rate, Robe, Target, count},
    internals::stages,
    robe::hash::{PRIME, chunk_start, row_hash, row_place},
};
use rand::RngExt as _;
use rand_pcg::Pcg64;

use super::{
    FROZEN, Like, ROWS, TRAIN,
    backward::{CHUNK, LENGTHS, lengths},
    check, each, facts_of, floats, gradients, gradients_of, guarded, junk, layout_of, of, one_of, params, read, step,
    tables, targets_of, words,
};

/// Dim, chunk and weights: rows of one chunk and of several, with and without a shorter last chunk; arrays that one chunk fills.
const SHAPES: [[u32; 3]; 9] = [
    [1, 1, 1],
    [4, 1, 50],
    [8, 3, 40],
    [17, 32, 90],
    [33, 33, 33],
    [64, 32, 1000],
    [100, 7, 5000],
    [128, 32, 300_000],
    [130, 50, 2_038_074_743],
];

fn robe([dim, chunk, weights]: [u32; 3]) -> Robe {
    let chunks = dim.div_ceil(chunk);
    let starts = weights - chunk + 1;
    let tail = dim - (chunks - 1) * chunk;
    let (block, block_words) = (64, 64);
    let reach = chunk.min(dim);
    let (window, window_words) = (weights, weights);
    Robe {
        dim,
        chunk,
        chunks,
        starts,
        weights,
        reach,
        tail,
        dense_from: weights / reach,
        block,
        block_words,
        window,
        window_words,
        first: 0,
        stride: 0,
        state_bits: 0,
        state_words: 0,
        marks: 0,
        rows: 0,
        given: 0,
    }
}

/// Number of invocations that share a row of `floats` floats.
fn lanes(floats: u32) -> u32 {
    [4, 8, 16, 32].into_iter().find(|&lanes| lanes >= floats).unwrap_or(32)
}

/// Hashes of rows; a tenth are NONE, for indices that are left out.
fn hashes(source: &mut Pcg64, n: usize) -> Vec<u32> {
    let hash = |_| if source.random_bool(0.1) { NONE } else { source.random_range(0..2_038_074_743) };
    (0..n).map(hash).collect()
}

/// A sorted backward: what its stages read.
struct Sorted {
    robe: Robe,
    params: Params,
    segment: Vec<u32>,
    targets: Vec<Target>,
    /// The first gradient and the coefficient of each chunk.
    accesses: Vec<[u32; 2]>,
    /// FP32 gradients of the outputs.
    grads: Vec<f32>,
    /// Partial sums, as `robe_merge` leaves them.
    scratch: Vec<f32>,
    half: bool,
}

impl Sorted {
    /// Chunks at distinct ascending starts, `lengths[i]` at the i-th start; fewer starts if the array lacks room. Coefficients are powers of
    /// two, so that the bits of a sum show its order.
    fn new(source: &mut Pcg64, lengths: &[u32], robe: Robe, half: bool) -> Self {
        let outputs = source.random_range(1..20);
        let side_by_side = robe.chunk * lengths.len() as u32;
        let mut starts: Vec<u32> = match robe.starts > side_by_side.max(1000) && source.random_bool(0.5) {
            true => lengths.iter().map(|_| source.random_range(0..robe.starts)).collect(),
            // Starts side by side, up to the end of the array.
            false => (robe.starts - robe.starts.min(lengths.len() as u32)..robe.starts).collect(),
        };
        starts.sort_unstable();
        starts.dedup();
        let rows: Vec<_> = starts.iter().map(|&start| (start, start)).collect();
        let (segment, mut targets) = targets_of(&lengths[..starts.len()], &rows);
        let inverse: f32 = one_of(source, &[1.0, 0.5, 2f32.powi(-10)]);
        targets[0].end = inverse.to_bits();
        let access = |_| {
            let coefficient: f32 = one_of(source, &[0.5, -1.0, 2.0, 4.0]);
            let first = source.random_range(0..outputs) * robe.dim + source.random_range(0..robe.chunks) * robe.chunk;
            [first, coefficient.to_bits()]
        };
        let accesses = segment.iter().map(access).collect();
        let pooling = one_of(source, &[Pooling::Sum, Pooling::None, Pooling::Mean]);
        let config = GroupConfig::new(&[1500], robe.dim).with_pooling(pooling);
        let width = robe.reach + 1;
        let params = Params {
            dim: width,
            lanes: lanes(width),
            weighted: source.random_range(0..2),
            half_grads: u32::from(half),
            ..params(&config, &layout_of(&config), TRAIN, 2)
        };
        let grads = floats(source, (outputs * robe.dim) as usize, 1.0 / inverse);
        let mut scratch = floats(source, (2 * (segment.len() as u32).div_ceil(CHUNK) * width) as usize, 1.0);
        // The word behind a partial row's sums says whether any of its chunks reaches the last weight.
        scratch
            .chunks_exact_mut(width as usize)
            .for_each(|row| row[width as usize - 1] = source.random_range(0..2) as f32);
        Self { robe, params, segment, targets, accesses, grads, scratch, half }
    }

    /// The first bindings of the stages behind `robe_merge`: params, robe, targets, accesses, gradients, scratch.
    fn bindings(&self) -> [Vec<u32>; 6] {
        let (params, robe) = (words(&self.params), words(&self.robe));
        let (targets, accesses, scratch) = (guarded(&self.targets), guarded(&self.accesses), guarded(&self.scratch));
        [params, robe, targets, accesses, gradients(&self.grads, self.half), scratch]
    }
}

/// Number of kinds of [`some_lengths`].
const SOME: usize = LENGTHS + 3;

/// Lengths as cached tables have them, or many starts of one chunk.
fn some_lengths(source: &mut Pcg64, kind: usize) -> Vec<u32> {
    if kind < LENGTHS {
        return lengths(source, kind);
    }
    vec![1; [one_of(source, &[255, 256]), 257, 3000][kind - LENGTHS]]
}

/// Many rows next to multiples of the prime and to the ends of 32 bits, where the product comes closest to its bounds.
#[test]
pub(crate) fn robe_hash() {
    each("robe_hash", [6, 3, 4, 2], |case, mut source, [n, mode, whole, empty]| {
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
        // Hashed chunks, rows addressed directly, rows that a hash chooses.
        let robe = Robe { stride: [0, 0, 12, 12][whole], rows: [0, 0, 0, 7][whole], ..Robe::default() };
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
            let wanted = if key == NONE || !active { NONE } else { row_place(key, robe.stride, robe.rows) };
            assert_eq!(run.found[4][i], wanted, "{case}: row {key}");
            let other = key != NONE && active && robe.stride != 0 && row_hash(key) != wanted;
            assert!(!other || run.found[4][i] != row_hash(key), "{case}: row {key} is hashed");
            assert!(wanted == NONE || robe.rows == 0 || [wanted % 12, wanted / 84] == [0; 2], "{case}: row {key}");
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
            // Checked without the mirror: without a start the gradient is -0.0.
            assert!(n > 0 || run.found[6][..robe.weights as usize].iter().all(|&sum| sum == 0x8000_0000), "{case}");
        }
    });
}

/// States of a packed array with each combination of facts, over two steps whose states FP32 has exactly.
#[test]
pub(crate) fn robe_blocks_by_facts() {
    each("robe_blocks", [20, 2], |case, mut source, [rule, state]| {
        let (optimizer, facts) = facts_of(rule);
        let states = 1 + u32::from(rule >= 4);
        let state_words = [32 * states, 1 + 16 * states][state];
        let robe = Robe { state_bits: [16, 8][state], state_words, block_words: 32, ..robe([8, 8, 128]) };
        let mut sorted = Sorted::new(&mut source, &[1; 100], robe, false);
        sorted.grads.iter_mut().for_each(|x| *x = f32::from(source.random_range(1..9u8)) / 8.0);
        sorted.accesses.iter_mut().for_each(|access| access[1] = 1f32.to_bits());
        sorted.targets[0].end = 1f32.to_bits();
        let config = GroupConfig::new(&[16], 8).with_precision(Precision::Fp16).with_state(Some(StatePrecision::Int8));
        let config = config.with_optimizer(optimizer.with_beta1(0.5).with_beta2(0.5)).with_seed(source.random());
        let Params { dim, lanes, .. } = sorted.params;
        let of = |facts| Params { dim, lanes, facts, ..params(&config, &layout_of(&config), TRAIN, 2) };
        let (mut memory, mut kept) = (guarded(&[0u32; 64]), guarded(&vec![0u32; 2 * state_words as usize]));
        for t in 1..=2 {
            sorted.targets[0].start = t;
            let [_, uniform, targets, accesses, grads, scratch] = sorted.bindings();
            let [counts, rate] = [guarded(&tables(&mut source, &[16], t)), words(&Rate { lr: 0.5, ..Rate::default() })];
            let [first, second] = [memory.clone(), kept.clone()];
            let bindings = [words(&of(facts)), uniform, targets, accesses, grads, scratch, first, second, counts, rate];
            let run = |bindings: &[Vec<u32>; 10]| {
                check(case, "robe_blocks", bindings, 2, &[("memory", Like::Elsewhere)], |b| {
                    let [params, robe, targets, accesses, grads, scratch, memory, states, tables, rate] = b;
                    let (targets, accesses, scratch) = (cast_slice(targets), cast_slice(accesses), cast_slice(scratch));
                    let (params, rate) = (read(params), read(rate));
                    let grads = gradients_of(grads, &params);
                    let robe = &read(robe);
                    stages::robe_blocks(
                        &params, robe, targets, accesses, grads, scratch, memory, states, tables, &rate,
                    );
                })
            };
            let found = run(&bindings).found;
            // Other facts give other states: other signs other codes, another form other halves.
            let mut others = bindings;
            others[0] = words(&of([facts ^ 10, facts ^ 5][state]));
            assert_ne!(run(&others).found[7], found[7], "{case}");
            (memory, kept) = (found[6].clone(), found[7].clone());
        }
    });
}
