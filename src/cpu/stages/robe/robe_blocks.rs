//! CPU mirror of `shaders/robe/robe_blocks.wgsl`: `robe_update` for a packed array.

use std::ops::Range;

use crate::{
    config::GroupConfig,
    cpu::stages::{
        counters::{count, counter::SKIPPED_ROWS},
        robe::{
            robe_merge::Sum,
            robe_move::Mover,
            robe_weight_sums::{GradientSums, SHARE},
        },
    },
    record::codec::Noise,
    robe::storage::Storage,
    scaler::GradSlice,
    table::{
        abi::{Params, Robe, Target},
        rng::Purpose,
    },
};

/// `robe_update` for a packed array: the covered weights of a block move in FP32 and the block is packed again. If a
/// block cannot be packed, none of its weights move, and each one that should have is counted. A block of which no bit changes keeps its words.
/// `memory` and `states`
/// are one window of the array. Mirror of `shaders/robe/robe_blocks.wgsl`.
pub fn robe_blocks(
    rows: &GroupConfig,
    storage: &Storage,
    params: &Params,
    robe: &Robe,
    targets: &[Target],
    accesses: &[[u32; 2]],
    grad_outputs: GradSlice<'_>,
    scratch: &[f32],
    memory: &mut [u32],
    states: &mut [u32],
    tables: &mut [u32],
) {
    let gradients = GradientSums::new(params, robe, targets, accesses, grad_outputs, scratch);
    let (mover, storage, noise) =
        (Mover::new(rows, targets[0].start), storage, Noise::new(rows, Purpose::Update, targets[0].start));
    let all = Packed { gradients, mover, weights: robe.weights, storage, noise };
    let end = robe.weights.min(robe.first + robe.window);
    let blocks = robe.first / robe.block..end.div_ceil(robe.block);
    let words = all.storage.words(blocks.len() as u32);
    // Without states `states` is a dummy.
    let kept = Blocks { blocks, memory: &mut memory[..words.memory], states: &mut states[..words.states] };
    let skipped = if gradients.goes_over_all() { all.dense(kept) } else { all.sparse(0..gradients.starts.len(), kept) };
    count(tables, 0, SKIPPED_ROWS, skipped);
}

/// Neighbouring blocks and their words.
struct Blocks<'a> {
    blocks: Range<u32>,
    memory: &'a mut [u32],
    states: &'a mut [u32],
}

struct Packed<'a> {
    gradients: GradientSums<'a>,
    mover: Mover,
    /// Weights of the whole array.
    weights: u32,
    storage: &'a Storage,
    noise: Noise,
}

/// Buffers for one unpacked block.
#[derive(Default)]
struct Room {
    sums: Vec<Sum>,
    weights: Vec<f32>,
    states: Vec<f32>,
}

impl Packed<'_> {
    /// The last block that a chunk beginning at start `d` may reach.
    fn last(&self, d: usize) -> u32 {
        (self.gradients.starts[d].row + self.gradients.reach() - 1) / self.storage.block()
    }

    /// Splits the blocks into those before block `at`, and the rest.
    fn split<'b>(&self, kept: Blocks<'b>, at: u32) -> (Blocks<'b>, Blocks<'b>) {
        let Blocks { blocks, memory, states } = kept;
        let words = self.storage.words(at - blocks.start);
        let (low, high) = memory.split_at_mut(words.memory);
        let (low_states, high_states) = states.split_at_mut(words.states);
        let upper = Blocks { blocks: at..blocks.end, memory: high, states: high_states };
        (Blocks { blocks: blocks.start..at, memory: low, states: low_states }, upper)
    }

    fn dense(&self, mut kept: Blocks<'_>) -> u32 {
        let Range { start, end } = kept.blocks;
        if end - start > SHARE as u32 / self.storage.block() {
            let (low, high) = self.split(kept, start + (end - start) / 2);
            let (a, b) = rayon::join(|| self.dense(low), || self.dense(high));
            return a + b;
        }
        let from = start * self.storage.block();
        let mut first = self.gradients.starts.partition_point(|one| self.gradients.passed(one, from));
        let mut room = Room::default();
        (start..end).map(|block| self.block(block, &mut first, &mut kept, &mut room)).sum()
    }

    /// Start d moves the blocks after the last one that the previous start may reach, up to its own last one. So each
    /// block has one writer.
    fn sparse(&self, starts: Range<usize>, mut kept: Blocks<'_>) -> u32 {
        let reach = self.gradients.reach() as usize;
        if starts.len() > 1 && starts.len() * reach > SHARE {
            let middle = starts.start + starts.len() / 2;
            let at = (self.last(middle - 1) + 1).clamp(kept.blocks.start, kept.blocks.end);
            let (low, high) = self.split(kept, at);
            let (a, b) =
                rayon::join(|| self.sparse(starts.start..middle, low), || self.sparse(middle..starts.end, high));
            return a + b;
        }
        let mut room = Room::default();
        let mut skipped = 0;
        for d in starts {
            let behind = d.checked_sub(1).map_or(0, |before| self.last(before) + 1);
            let from = behind.max(self.gradients.starts[d].row / self.storage.block()).max(kept.blocks.start);
            for block in from..(self.last(d) + 1).min(kept.blocks.end) {
                skipped += self.block(block, &mut d.clone(), &mut kept, &mut room);
            }
        }
        skipped
    }

    /// Moves the covered weights of a block. Returns how many could not move. `first` is at most the first start that
    /// reaches the block.
    fn block(&self, block: u32, first: &mut usize, kept: &mut Blocks<'_>, room: &mut Room) -> u32 {
        let each = self.storage.block();
        let from = block * each;
        let len = each.min(self.weights - from) as usize;
        let Room { sums, weights, states } = room;
        sums.clear();
        for w in from..from + len as u32 {
            while self.gradients.starts.get(*first).is_some_and(|one| self.gradients.passed(one, w)) {
                *first += 1;
            }
            sums.push(self.gradients.sum_of(w, *first));
        }
        if sums.iter().all(|sum| sum.chunks == 0) {
            return 0;
        }
        let [at, words] = [block - kept.blocks.start, 1].map(|blocks| self.storage.words(blocks));
        let record = &mut kept.memory[at.memory..][..words.memory];
        let state_words = &mut kept.states[at.states..][..words.states];
        let each = self.storage.states_each();
        weights.resize(len, 0.0);
        self.storage.unpack_block(record, weights);
        states.resize(len * each, 0.0);
        if each > 0 {
            self.storage.unpack_states(state_words, states);
        }
        let covered = sums.iter().filter(|sum| sum.chunks > 0).count() as u32;
        let (mut skipped, mut changed) = (0, false);
        for (e, (sum, weight)) in sums.iter().zip(&mut *weights).enumerate().filter(|(_, (sum, _))| sum.chunks > 0) {
            let states = &mut states[e * each..][..each];
            let bits = |weight: f32, states: &[f32]| {
                [Some(&weight), states.first(), states.get(1)].map(|x| x.map(|x| x.to_bits()))
            };
            let before = bits(*weight, states);
            skipped += self.mover.weight(sum.value, weight, states);
            changed |= bits(*weight, states) != before;
        }
        if !changed {
            return skipped;
        }
        if !self.storage.pack_block(&self.noise, block, weights, record) {
            return covered;
        }
        if each > 0 {
            self.storage.pack_states(&self.noise, block, states, state_words);
        }
        skipped
    }
}
