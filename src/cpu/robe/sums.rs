//! The stages between the gradients of a batch's outputs and the last stage of its backward: they sort the chunks, so that they can be
//! summed.

use crate::{
    cpu::{
        robe::space::Space,
        share::{key, keyed, number},
        sort::Sorter,
        stages::{
            cached::{arrange, combine, gradients::CHUNK},
            robe::{robe_gradient, robe_keys, robe_merge},
        },
    },
    error::Error,
    host::alloc::zeroed,
    scaler::GradSlice,
    table::abi::{Params, Robe, ScalerState, Target, count},
};

/// The sorted chunks of a batch, as the last stage of a backward reads them.
pub(crate) struct Sums<'a> {
    pub(crate) params: &'a Params,
    pub(crate) robe: &'a Robe,
    pub(crate) targets: Vec<Target>,
    pub(crate) accesses: Vec<[u32; 2]>,
    pub(crate) grad_outputs: GradSlice<'a>,
    pub(crate) scratch: Vec<f32>,
}

impl<'a> Sums<'a> {
    /// Runs the stages of backward up to the last, in order, for a batch of `n` chunks.
    pub(crate) fn new(
        params: &'a Params,
        robe: &'a Robe,
        n: u32,
        space: &mut Space,
        grad_outputs: GradSlice<'a>,
        scaler: &ScalerState,
    ) -> Result<Self, Error> {
        let chunks = n as usize;
        let mut keys = zeroed("chunk_keys", chunks)?;
        let mut access = zeroed("chunk_access", chunks)?;
        let (mut segment, mut order) = (zeroed("segment", chunks)?, zeroed("sorted", chunks)?);
        let mut sorter = Sorter::new(chunks)?;
        let mut accesses = zeroed("accesses", chunks)?;
        let distinct = chunks.min(robe.starts as usize);
        let mut targets: Vec<Target> = zeroed("targets", distinct + 1)?;
        let mut scratch = zeroed("scratch", 2 * chunks.div_ceil(CHUNK) * params.dim as usize)?;
        let Space { step, hashes, access: by_index } = space;
        robe_keys(params, robe, step, hashes, by_index, &mut keys, &mut access);
        let key_bits = u32::BITS - robe.starts.leading_zeros();
        for ((entry, &key), position) in sorter.input(chunks).iter_mut().zip(&keys).zip(0..) {
            *entry = keyed(key, position);
        }
        sorter.sort(chunks, key_bits);
        let mut starts = 0;
        for (at, run) in sorter.sorted().chunk_by(|&a, &b| key(a) == key(b)).enumerate() {
            for &entry in run {
                (order[starts], segment[starts]) = (number(entry), at as u32);
                starts += 1;
            }
            step.counts[count::UNIQUE] = at as u32 + 1;
        }
        step.counts[count::VALID] = starts as u32;
        arrange(step, &order, &segment, &keys, &keys, &access, &mut accesses, &mut targets, scaler);
        robe_merge(params, robe, &targets, &segment, &accesses, grad_outputs, &mut scratch);
        combine(params, &targets, &segment, &mut scratch);
        Ok(Self { params, robe, targets, accesses, grad_outputs, scratch })
    }

    /// The gradient of all weights.
    pub(crate) fn gradient(&self) -> Result<Vec<f32>, Error> {
        let Self { params, robe, targets, accesses, grad_outputs, scratch } = self;
        let mut sums = zeroed("gradient", robe.weights as usize)?;
        robe_gradient(params, robe, targets, accesses, *grad_outputs, scratch, &mut sums);
        Ok(sums)
    }
}
