//! What a checkpoint has of a model beside its tables.

use super::model::Model;
use crate::checkpoints::{self, Beside};
use crate::dense::{self, AdaGrad, tensor, values};
use burn::tensor::Tensor;
use hotrow::{CpuScaler, ScalerState};
use hotrow_dist::Comm as _;
use std::path::PathBuf;

impl Model<'_, '_> {
    /// Loads a checkpoint and returns the loss of its epoch so far.
    pub(super) fn resume(&mut self, newest: &(u64, PathBuf)) -> anyhow::Result<f64> {
        let like = self.beside(&self.lost);
        let Beside { steps, dense, loss } = checkpoints::load(newest, &mut self.tables, &like)?;
        self.restore(&dense)?;
        self.steps = steps;
        Ok(loss)
    }

    /// [`Self::lost`] of all ranks together.
    pub(super) fn all_lost(&self) -> Result<Vec<u64>, hotrow::Error> {
        self.ranks.map_or_else(|| Ok(self.lost.to_vec()), |ranks| ranks.total(&self.lost))
    }

    /// Weights of the dense part, their state, then the scaler's state and what FP16 lost.
    pub(super) fn beside(&self, lost: &[u64]) -> Vec<Tensor<2>> {
        let AdaGrad { weights, squares, .. } = &self.optimizer;
        let scaler = self.scaler.as_ref().map(|scaler| {
            // The bits of its words, each as 16 bits above and 16 below, which FP32 holds exactly.
            let lost = lost.iter().flat_map(|&number| [number as u32, (number >> 32) as u32]);
            let halves = scaler.state().to_words().into_iter().chain(lost).flat_map(|word| [word >> 16, word & 0xffff]);
            let halves: Vec<f32> = halves.map(|half| half as f32).collect();
            let shape = [1, halves.len()];
            tensor(halves, shape, &dense::cpu().inner())
        });
        weights.iter().map(|weight| weight.clone().inner()).chain(squares.iter().cloned()).chain(scaler).collect()
    }

    fn restore(&mut self, beside: &[Tensor<2>]) -> anyhow::Result<()> {
        let count = self.optimizer.weights.len();
        let (weights, rest) = beside.split_at(count);
        let (squares, scaler) = rest.split_at(count);
        let weights = weights.iter().cloned().map(|weight| Tensor::from_inner(weight).require_grad());
        self.optimizer.weights = weights.collect();
        self.optimizer.squares = squares.to_vec();
        if let (Some(now), [halves]) = (&mut self.scaler, scaler) {
            let config = *now.config();
            let words = values(halves.clone());
            let words: Vec<u32> = words.chunks(2).map(|half| (half[0] as u32) << 16 | half[1] as u32).collect();
            let (state, lost) = words.split_at(ScalerState::WORDS);
            *now = CpuScaler::with_state(config, ScalerState::from_words(state, &config)?)?;
            // The first rank goes on with what all ranks had lost.
            let lost = [0, 1].map(|at| u64::from(lost[2 * at]) | u64::from(lost[2 * at + 1]) << 32);
            self.lost = if self.ranks.is_none_or(|ranks| ranks.rank() == 0) { lost } else { [0; 2] };
        }
        Ok(())
    }
}
