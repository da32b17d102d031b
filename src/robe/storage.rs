//! The layout of the shared array in memory: FP32, one weight a word; FP16, two weights a word; integers in blocks, each of which is a
//! record of SPEC 2 with the block as its row. The optimiser's states are a second array, the states of a weight side by
//! side: FP32 or 16 bits; or INT8, for each block a word of scales, then the codes of the first states, then of the second.

use crate::{
    config::{OptimizerKind, Precision, StatePrecision},
    error::Error,
    record::{
        codec::{self, Noise},
        rows, state_code,
    },
    table::{
        abi::Robe,
        row::{RowLayout, STATE_MOMENT, STATE_SIGNED},
    },
};

/// The smallest and the largest block, in weights. A block is a power of two.
pub(crate) const BLOCKS: [u32; 2] = [16, 256];

/// The layout of an array's weights and states. Random bits take the block's number as the row.
#[derive(Clone, Debug)]
pub struct Storage {
    weights: u32,
    block: u32,
    /// Layout of a block's weights.
    records: RowLayout,
    /// Layout of a block's sums of squares, where they are FP16.
    halves: RowLayout,
    /// States of a weight.
    each: u32,
    /// Their facts, as in [`RowLayout::facts`].
    facts: u32,
    /// Bits of a state; 0 without states.
    state_bits: u32,
    /// Words of a block's states.
    state_words: u32,
}

/// Words of an array and of its states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Words {
    pub(crate) memory: usize,
    pub(crate) states: usize,
}

/// Words of a block of `block` weights.
pub(crate) const fn block_words(precision: Precision, block: u32) -> u32 {
    RowLayout::new(block, precision, OptimizerKind::Sgd).record_words
}

/// Words of the states of a block of `block` weights that have `states` states each.
pub(crate) const fn state_words(precision: StatePrecision, states: u32, block: u32) -> u32 {
    match precision {
        _ if states == 0 => 0,
        StatePrecision::Fp32 => states * block,
        StatePrecision::Fp16 => states * block / 2,
        StatePrecision::Int8 => 1 + states * block / 4,
    }
}

impl Storage {
    /// The storage of `robe`'s weights in `precision`, and of their states, `each` a weight. A block is packed as a row without a state.
    #[must_use]
    pub fn new(precision: Precision, robe: &Robe, each: u32, facts: u32) -> Self {
        let block = |precision| RowLayout::new(robe.block, precision, OptimizerKind::Sgd);
        let &Robe { weights, block: width, state_bits, state_words, .. } = robe;
        let (records, halves) = (block(precision), block(Precision::Fp16));
        Self { weights, block: width, records, halves, each, facts, state_bits, state_words }
    }

    /// States of a weight.
    pub(crate) const fn states_each(&self) -> usize {
        self.each as usize
    }

    /// Whether each weight is a word of its own.
    pub(crate) fn plain(&self) -> bool {
        self.records.precision == Precision::Fp32
    }

    pub(crate) const fn block(&self) -> u32 {
        self.block
    }

    /// The word at which weight `first` begins, or the end of the array. In packed arrays `first` begins a block.
    pub(crate) fn word(&self, first: u32) -> usize {
        if self.plain() { first as usize } else { self.words(first.div_ceil(self.block)).memory }
    }

    /// Words of `blocks` blocks.
    pub(crate) fn words(&self, blocks: u32) -> Words {
        let [memory, states] =
            [self.records.record_words, self.state_words].map(|words| blocks as usize * words as usize);
        Words { memory, states }
    }

    /// Words of `weights` weights that begin and end at a block's border, or at the array's end.
    pub(crate) fn words_of(&self, weights: u32) -> Words {
        let states = match self.plain() {
            true => weights as usize * self.states_each(),
            false => self.words(weights.div_ceil(self.block)).states,
        };
        Words { memory: self.word(weights), states }
    }

    /// Number of neighbouring weights that share words, so that only one invocation may write them.
    pub(crate) fn neighbours(&self) -> u32 {
        match self.records.precision {
            Precision::Fp32 => 1,
            Precision::Fp16 if self.state_bits != 8 => 2,
            _ => self.block,
        }
    }

    /// Words of the whole array, and of its states.
    pub(crate) fn all(&self) -> Words {
        self.words_of(self.weights)
    }

    /// Packs `weights`, whose first one begins block `first`. A block with values that cannot be stored keeps its
    /// words.
    ///
    /// # Errors
    /// [`Error::Source`] names the first weight of the first such block.
    pub(crate) fn pack(&self, noise: &Noise, first: u32, weights: &[f32], words: &mut [u32]) -> Result<(), Error> {
        use rayon::prelude::*;
        if self.plain() {
            words.copy_from_slice(bytemuck::cast_slice(weights));
            return Ok(());
        }
        let records = words.par_chunks_mut(self.records.record_words as usize);
        let blocks = weights.par_chunks(self.block as usize).zip(records).enumerate();
        let refused = blocks.find_map_first(|(k, (weights, record))| {
            let block = first + k as u32;
            (!self.pack_block(noise, block, weights, record)).then_some(block)
        });
        refused.map_or(Ok(()), |block| {
            Err(Error::Source {
                name: "weights".into(),
                row: block * self.block,
                wanted: format!("in {} weights finite values within {:e} of each other", self.block, f32::MAX),
                found: "others".into(),
                remedy: "correct them",
                source: None,
            })
        })
    }

    /// Packs a block's weights; the last block may have fewer. Returns false and leaves the record untouched if they
    /// cannot be stored.
    pub(crate) fn pack_block(&self, noise: &Noise, block: u32, weights: &[f32], record: &mut [u32]) -> bool {
        rows::pack(&self.records, noise, block, weights, &[], record)
    }

    /// Packs a block's states, which are finite; the states of a weight lie side by side. The last block may have fewer.
    pub(crate) fn pack_states(&self, noise: &Noise, block: u32, states: &[f32], words: &mut [u32]) {
        let each = self.states_each();
        if self.sums_in_halves() {
            let noise = Noise { purpose: noise.purpose + 1, ..*noise };
            let packed = rows::pack(&self.halves, &noise, block, states, &[], words);
            debug_assert!(packed, "what is finite can be stored");
            return;
        }
        words.fill(0);
        if self.state_bits == 32 {
            return words[..states.len()].copy_from_slice(bytemuck::cast_slice(states));
        }
        let random = |e: usize, k: usize| noise.of(block, e as u32 + k as u32 * self.block, true);
        if self.state_bits == 16 {
            for (i, &x) in states.iter().enumerate() {
                let (e, k) = (i / each, i % each);
                let half = match self.facts >> (2 * k) & STATE_MOMENT {
                    0 => codec::half_from_f32(x, noise.rounding, || random(e, k)),
                    _ => codec::moment_from_f32(x, self.is_signed(k), random(e, k)),
                };
                words[i / 2] |= half << (16 * (i % 2));
            }
            return;
        }
        let (head, codes) = words.split_at_mut(1);
        // States of one sign share a base.
        let mut largest = [0; 2];
        for (i, x) in states.iter().enumerate() {
            let most = &mut largest[usize::from(self.is_signed(i % each))];
            *most = (x.to_bits() & 0x7fff_ffff).max(*most);
        }
        for k in 0..each {
            let signed = self.is_signed(k);
            let base = state_code::base(largest[usize::from(signed)], signed);
            head[0] |= base << self.base_at(k);
            for (e, x) in states.iter().skip(k).step_by(each).enumerate() {
                let code = match signed {
                    true => state_code::signed(x.to_bits(), base, random(e, k)),
                    false => state_code::unsigned(x.to_bits(), base, random(e, k)),
                };
                codes[(k * self.block as usize + e) / 4] |= code << (8 * (e % 4));
            }
        }
    }

    /// Whether the states are sums of squares in FP16, one a weight.
    const fn sums_in_halves(&self) -> bool {
        self.state_bits == 16 && self.each == 1 && self.facts & STATE_MOMENT == 0
    }

    /// Whether state `k` of a weight may be negative.
    const fn is_signed(&self, k: usize) -> bool {
        self.facts >> (2 * k) & STATE_SIGNED != 0
    }

    /// The bit of a block's word of scales at which the base of state `k` begins.
    const fn base_at(&self, k: usize) -> usize {
        if self.is_signed(k) { 16 } else { 0 }
    }

    /// Unpacks the weights of a block.
    pub(crate) fn unpack_block(&self, record: &[u32], weights: &mut [f32]) {
        rows::unpack(&self.records, record, weights, &mut []);
    }

    /// Unpacks the states of a block; the states of a weight lie side by side.
    pub(crate) fn unpack_states(&self, words: &[u32], states: &mut [f32]) {
        if self.sums_in_halves() {
            return rows::unpack(&self.halves, words, states, &mut []);
        }
        if self.state_bits == 32 {
            return states.copy_from_slice(bytemuck::cast_slice(&words[..states.len()]));
        }
        let each = self.states_each().max(1);
        for (i, x) in states.iter_mut().enumerate() {
            let (e, k) = (i / each, i % each);
            *x = if self.state_bits == 8 {
                let code = words[1 + (k * self.block as usize + e) / 4] >> (8 * (e % 4)) & 0xff;
                state_code::value(code, words[0] >> self.base_at(k) & 0xffff, self.is_signed(k))
            } else {
                let half = words[i / 2] >> (16 * (i % 2)) & 0xffff;
                match self.facts >> (2 * k) & STATE_MOMENT {
                    0 => codec::f32_from_half(half),
                    _ => codec::f32_from_moment(half, self.is_signed(k)),
                }
            };
        }
    }

    /// Returns `n` weights from `first` on. `room` holds those that must be unpacked.
    #[inline]
    pub(crate) fn read<'a>(&self, memory: &'a [u32], first: u32, n: usize, room: &'a mut [f32]) -> &'a [f32] {
        let first = first as usize;
        if self.plain() {
            return &bytemuck::cast_slice(memory)[first..first + n];
        }
        let room = &mut room[..n];
        if self.records.precision == Precision::Fp16 {
            let halves: &[u16] = bytemuck::cast_slice(memory);
            let halves = &halves[first..first + n];
            room.iter_mut().zip(halves).for_each(|(x, &half)| *x = codec::f32_from_half(u32::from(half)));
            return room;
        }
        let (block, stride) = (self.block as usize, self.records.record_words as usize);
        let mut done = 0;
        while done < n {
            let e = (first + done) % block;
            let take = (block - e).min(n - done);
            let record = &memory[(first + done) / block * stride..][..stride];
            for (e, x) in (e as u32..).zip(&mut room[done..done + take]) {
                *x = codec::weight(&self.records, record, e);
            }
            done += take;
        }
        room
    }

    /// Unpacks all weights from the words of the whole array.
    pub(crate) fn weights(&self, memory: &[u32]) -> Vec<f32> {
        let mut weights = vec![0.0; self.weights as usize];
        match self.plain() {
            true => weights.copy_from_slice(bytemuck::cast_slice(memory)),
            false => {
                let records = memory.chunks_exact(self.records.record_words as usize);
                let blocks = weights.chunks_mut(self.block as usize).zip(records);
                blocks.for_each(|(weights, record)| self.unpack_block(record, weights));
            }
        }
        weights
    }

    /// Unpacks all states; the states of a weight lie side by side. Empty if the optimiser has none.
    pub(crate) fn states(&self, words: &[u32]) -> Vec<f32> {
        if self.plain() || words.is_empty() {
            return bytemuck::cast_slice(words).to_vec();
        }
        if self.sums_in_halves() {
            return halves(words).take(self.weights as usize).collect();
        }
        let each = self.states_each();
        let mut states = vec![0.0; self.weights as usize * each];
        let blocks = states.chunks_mut(self.block as usize * each).zip(words.chunks_exact(self.state_words as usize));
        blocks.for_each(|(states, words)| self.unpack_states(words, states));
        states
    }

    /// Finds the first weight whose words do not stand for a finite value.
    pub(crate) fn not_finite(&self, memory: &[u32]) -> Option<(u32, f32)> {
        match self.records.precision {
            Precision::Fp32 => first_wrong(floats(memory)),
            Precision::Fp16 => first_wrong(halves(memory)),
            precision => {
                let top = ((1u32 << precision.bits()) - 1) as f32;
                let records = memory.chunks_exact(self.records.record_words as usize);
                // A scale or bias that is not finite makes the highest value not finite.
                let highest = records.map(|record| top * f32::from_bits(record[0]) + f32::from_bits(record[1]));
                first_wrong(highest).map(|(block, value)| (block * self.block, value))
            }
        }
    }

    /// Finds the first weight with a state that is not finite, and that state.
    pub(crate) fn state_not_finite(&self, words: &[u32]) -> Option<(u32, f32)> {
        let each = self.states_each().max(1) as u32;
        first_wrong(self.states(words).into_iter()).map(|(i, state)| (i / each, state))
    }
}

fn first_wrong(values: impl Iterator<Item = f32>) -> Option<(u32, f32)> {
    let mut values = (0..).zip(values);
    values.find(|(_, value)| !value.is_finite())
}

fn floats(words: &[u32]) -> impl Iterator<Item = f32> {
    words.iter().map(|&word| f32::from_bits(word))
}

/// Converts halves, also infinite and NaN ones, which no sound array holds.
fn halves(words: &[u32]) -> impl Iterator<Item = f32> {
    let halves: &[u16] = bytemuck::cast_slice(words);
    halves.iter().map(|&half| {
        let bits = codec::f32_from_half(u32::from(half)).to_bits();
        f32::from_bits(if half & 0x7c00 == 0x7c00 { bits | 0x7f80_0000 } else { bits })
    })
}
