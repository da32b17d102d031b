//! Shapes, arrays and chunks for the tests of the stages of parameter-shared tables.

use hotrow::{
    GroupConfig, Optimizer, OptimizerKind, Pooling, Precision,
    internals::layout::{NONE, Params, Robe, Target},
};
use rand::RngExt as _;
use rand_pcg::Pcg64;

use super::{
    TRAIN,
    backward::{CHUNK, LENGTHS, lengths},
    floats, gradients, guarded, layout_of, one_of, params, words,
};

/// Dim, chunk and weights: rows of one chunk and of several, with and without a shorter last chunk; arrays that one chunk fills.
pub(super) const SHAPES: [[u32; 3]; 9] = [
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

pub(crate) fn robe([dim, chunk, weights]: [u32; 3]) -> Robe {
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
    }
}

/// `robe` with its weights packed in blocks.
pub(crate) fn packed(precision: Precision, block: u32, robe: Robe) -> Robe {
    let bits = precision.bits();
    let block_words = block * bits / 32 + if precision.is_integer() { 2 } else { 0 };
    let mut robe = Robe { block, block_words, ..robe };
    cut(bits, &mut robe, 1);
    robe
}

/// Cuts the array into at most `windows` windows.
pub(super) fn cut(bits: u32, robe: &mut Robe, windows: u32) {
    let (block, words) = if bits == 32 { (1, 1) } else { (robe.block, robe.block_words) };
    robe.window = robe.weights.div_ceil(windows).next_multiple_of(block);
    robe.window_words = robe.window / block * words;
}

/// Words of the array.
fn words_of(bits: u32, robe: &Robe) -> usize {
    match bits {
        32 => robe.weights as usize,
        _ => (robe.weights.div_ceil(robe.block) * robe.block_words) as usize,
    }
}

/// The same array with states of `bits` bits for `optimizer`.
pub(crate) fn with_states(bits: u32, optimizer: Optimizer, robe: Robe) -> Robe {
    let each = states_each(optimizer);
    let header = u32::from(bits == 8 && each > 0);
    let marks = u32::from(optimizer.weight_decay != 0.0 || optimizer.kind.has_moments());
    let state_bits = if each > 0 { bits } else { 0 };
    Robe { state_bits, state_words: header + each * robe.block * bits / 32, marks, ..robe }
}

/// States of a weight.
pub(super) fn states_each(optimizer: Optimizer) -> u32 {
    match optimizer.kind {
        OptimizerKind::Sgd => 0,
        OptimizerKind::Adam => 2,
        _ => 1,
    }
}

/// Words of the states of an array: values that a step may meet.
pub(super) fn states(source: &mut Pcg64, optimizer: Optimizer, robe: &Robe) -> Vec<u32> {
    let (each, moments) = (states_each(optimizer), optimizer.kind.has_moments());
    let blocks = robe.weights.div_ceil(robe.block);
    // The k-th state of a weight.
    let float = |source: &mut Pcg64, k: u32| {
        let x: f32 = source.random_range(0.5..2.0);
        if moments && k == 0 && source.random_bool(0.5) { -x } else { x }
    };
    match robe.state_bits {
        0 => vec![0; 4],
        32 => (0..robe.weights * each).map(|i| float(source, i % each).to_bits()).collect(),
        16 => {
            let half = |i: u32| {
                let x = float(source, i % each);
                match (i / each < robe.weights, moments) {
                    (false, _) => 0,
                    (true, false) => half::f16::from_f32(x).to_bits(),
                    (true, true) => (x.to_bits() >> if i.is_multiple_of(each) { 16 } else { 15 }) as u16,
                }
            };
            let halves: Vec<u16> = (0..blocks * robe.block * each).map(half).collect();
            bytemuck::cast_slice(&halves).to_vec()
        }
        _ => {
            // The largest values of a block are about 2, 64 or 2^-20.
            let mut words = vec![0; (blocks * robe.state_words) as usize];
            for (block, words) in (0..).zip(words.chunks_exact_mut(robe.state_words as usize)) {
                words[0] = one_of(source, &[903 << 16 | 769, 943 << 16 | 809, 735 << 16 | 601]);
                let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words[1..]);
                for (i, byte) in (0..).zip(bytes) {
                    let code = if block * robe.block + i % robe.block < robe.weights { source.random() } else { 0 };
                    // Zero has no sign.
                    *byte = if moments && i < robe.block && code == 128 { 0 } else { code };
                }
            }
            words
        }
    }
}

/// A number of values, and how many of them are neighbours of the wanted ones.
type Apart = (usize, usize);

/// One value in `every`, and twelve more, may be the neighbouring one: if one in five times as many is, the chance of an alarm is below 10^-9.
pub(super) fn few((all, others): Apart, every: usize) -> Result<(), String> {
    if others > all / every + 12 { Err(format!("{others} of {all} values")) } else { Ok(()) }
}

/// Compares INT8 states by value.
pub(crate) fn alike_states(robe: &Robe, moments: bool, found: &[u32], wanted: &[u32]) -> Result<Apart, String> {
    if found.len() != wanted.len() {
        return Err(format!("{} words for {}", found.len(), wanted.len()));
    }
    let (mut states, mut others) = (0, 0);
    let blocks = found.chunks_exact(robe.state_words as usize).zip(wanted.chunks_exact(robe.state_words as usize));
    for (k, blocks) in blocks.enumerate() {
        let [found, wanted] = [blocks.0, blocks.1].map(|words| {
            let bytes: &[u8] = bytemuck::cast_slice(&words[1..]);
            let value = |(i, &byte): (usize, &u8)| {
                let signed = moments && i < robe.block as usize;
                let base = if signed { words[0] >> 16 } else { words[0] & 0xffff };
                let (magnitude, sign) = if signed { (byte & 127, byte >> 7) } else { (byte, 0) };
                let [value, step] = [u32::from(magnitude), 1].map(|code| f32::from_bits((base + code) << 20));
                (if magnitude == 0 { 0.0 } else { value * [1.0, -1.0][usize::from(sign)] }, step)
            };
            bytes.iter().enumerate().map(value).collect::<Vec<_>>()
        });
        for (i, (&(a, step), &(b, _))) in found.iter().zip(&wanted).enumerate() {
            if (a - b).abs() > (a.abs().max(b.abs()) / 8.0).max(step) {
                return Err(format!("block {k}, state {i}: {a} for {b}"));
            }
            states += 1;
            others += usize::from(a != b);
        }
    }
    Ok((states, others))
}

/// Stored weights, with scales and values that neither unpacking nor a step by a power of two rounds.
pub(super) fn kept(source: &mut Pcg64, bits: u32, robe: &Robe) -> Vec<u32> {
    let n = words_of(bits, robe);
    match bits {
        32 => floats(source, n, 1.0).iter().map(|x| x.to_bits()).collect(),
        16 => {
            // Zeros fill the words behind the array's end.
            let half =
                |i| if i < robe.weights { half::f16::from_f32(source.random_range(-1.0..1.0)).to_bits() } else { 0 };
            let halves: Vec<u16> = (0..2 * n as u32).map(half).collect();
            bytemuck::cast_slice(&halves).to_vec()
        }
        _ => {
            let mut words = super::junk(source, n);
            for (k, record) in (0..).zip(words.chunks_exact_mut(robe.block_words as usize)) {
                record[0] = [2f32.powi(-9), 2f32.powi(-7), 0.0][source.random_range(0..9usize) / 4].to_bits();
                record[1] = (source.random_range(-256..256) as f32 / 256.0 + 0.0).to_bits();
                // Zeros fill the words behind the array's end.
                let rest = (robe.weights - k * robe.block).min(robe.block) * bits;
                let whole = 2 + rest as usize / 32;
                if rest < robe.block * bits {
                    record[whole] &= (1 << (rest % 32)) - 1;
                    record[whole + 1..].fill(0);
                }
            }
            words
        }
    }
}

/// Compares packed words. Scales and biases must be close.
pub(crate) fn alike(bits: u32, robe: &Robe, found: &[u32], wanted: &[u32]) -> Result<Apart, String> {
    let header = if bits <= 8 { 2 } else { 0 };
    let mask = (1u32 << bits) - 1;
    let (mut codes, mut others) = (0, 0);
    if found.len() != wanted.len() {
        return Err(format!("{} words for {}", found.len(), wanted.len()));
    }
    let records = found.chunks(robe.block_words as usize).zip(wanted.chunks(robe.block_words as usize));
    for (k, (a, b)) in records.enumerate() {
        let close = |i: usize| super::close(a[i], b[i], 1e-5);
        if a.len() == robe.block_words as usize && !(0..header).all(close) {
            return Err(format!("block {k}: {:?} for {:?}", &a[..2], &b[..2]));
        }
        for (i, (a, b)) in a.iter().zip(b).enumerate().skip(header) {
            for at in (0..32).step_by(bits as usize) {
                let [a, b] = [a, b].map(|word| (word >> at) & mask);
                // Halves of both signs about zero are neighbours, too.
                let apart = if bits == 16 && (a ^ b) >> 15 == 1 { (a & 0x7fff) + (b & 0x7fff) } else { a.abs_diff(b) };
                if apart > 1 {
                    return Err(format!("block {k}, word {i}: {a} for {b}"));
                }
                codes += 1;
                others += usize::from(a != b);
            }
        }
    }
    Ok((codes, others))
}

/// Number of invocations that share a row of `floats` floats.
pub(super) fn lanes(floats: u32) -> u32 {
    [4, 8, 16, 32].into_iter().find(|&lanes| lanes >= floats).unwrap_or(32)
}

/// Hashes of rows; a tenth are NONE, for indices that are left out.
pub(super) fn hashes(source: &mut Pcg64, n: usize) -> Vec<u32> {
    let hash = |_| if source.random_bool(0.1) { NONE } else { source.random_range(0..2_038_074_743) };
    (0..n).map(hash).collect()
}

/// A sorted backward: what its stages read.
pub(super) struct Sorted {
    pub(super) robe: Robe,
    pub(super) params: Params,
    pub(super) segment: Vec<u32>,
    pub(super) targets: Vec<Target>,
    /// The first gradient and the coefficient of each chunk.
    pub(super) accesses: Vec<[u32; 2]>,
    /// FP32 gradients of the outputs.
    pub(super) grads: Vec<f32>,
    /// Partial sums, as `robe_merge` leaves them.
    pub(super) scratch: Vec<f32>,
    half: bool,
}

impl Sorted {
    /// Chunks at distinct ascending starts, `lengths[i]` at the i-th start; fewer starts if the array lacks room. Coefficients are powers of
    /// two, so that the bits of a sum show its order.
    pub(super) fn new(source: &mut Pcg64, lengths: &[u32], robe: Robe, half: bool) -> Self {
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
        let (segment, mut targets) = super::targets_of(&lengths[..starts.len()], &rows);
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
    pub(super) fn bindings(&self) -> [Vec<u32>; 6] {
        let (params, robe) = (words(&self.params), words(&self.robe));
        let (targets, accesses, scratch) = (guarded(&self.targets), guarded(&self.accesses), guarded(&self.scratch));
        [params, robe, targets, accesses, gradients(&self.grads, self.half), scratch]
    }
}

/// Number of kinds of [`some_lengths`].
pub(super) const SOME: usize = LENGTHS + 3;

/// Lengths as cached tables have them, or many starts of one chunk.
pub(super) fn some_lengths(source: &mut Pcg64, kind: usize) -> Vec<u32> {
    if kind < LENGTHS {
        return lengths(source, kind);
    }
    vec![1; [one_of(source, &[255, 256]), 257, 3000][kind - LENGTHS]]
}

#[test]
fn other_codes_are_noticed() {
    let mut source = super::rng(1);
    for (precision, block) in [(Precision::Fp16, 16), (Precision::Int8, 64), (Precision::Int2, 16)] {
        let bits = precision.bits();
        let robe = packed(precision, block, robe([8, 3, 1000]));
        let right = kept(&mut source, bits, &robe);
        let noticed = |change: &dyn Fn(&mut [u32])| {
            let mut wrong = right.clone();
            change(&mut wrong);
            alike(bits, &robe, &wrong, &right).and_then(|apart| few(apart, 10_000)).is_err()
        };
        assert!(!noticed(&|_| {}) && noticed(&|words| words[5] ^= 2) && noticed(&|words| words[7] ^= 0x0200_0000));
        assert!(!noticed(&|words| words[5] ^= 1), "a neighbour");
        assert!(noticed(&|words| words[2..40].iter_mut().for_each(|word| *word ^= 1)), "too many neighbours");
        assert!(noticed(&|words| words[0] = 2f32.to_bits() + 100));
        alike(bits, &robe, &right[1..], &right).unwrap_err();
    }
}

#[test]
fn other_states_are_noticed() {
    for optimizer in [Optimizer::adagrad(0.1), Optimizer::momentum(0.1), Optimizer::adam(0.1)] {
        let moments = optimizer.kind.has_moments();
        let robe = with_states(8, optimizer, packed(Precision::Fp16, 64, robe([64, 32, 1000])));
        let good = states(&mut super::rng(1), optimizer, &robe);
        let same = |found: &[u32]| alike_states(&robe, moments, found, &good).and_then(|apart| few(apart, 1000));
        same(&good).unwrap();
        // Two codes further; a neighbour in each word; another base; a word too few.
        let changes: [fn(usize, &mut u32); 3] = [
            |i, word| *word ^= if i == 3 { 0x20 } else { 0 },
            |i, word| *word ^= u32::from(i > 0),
            |i, word| *word += if i == 0 { 8 | 8 << 16 } else { 0 },
        ];
        for change in changes {
            let mut found = good.clone();
            found.iter_mut().enumerate().for_each(|(i, word)| change(i % robe.state_words as usize, word));
            same(&found).unwrap_err();
        }
        same(&good[1..]).unwrap_err();
    }
}
