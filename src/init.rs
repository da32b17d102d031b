//! The first values of a table, made packed: the same on every machine and on both backends.

use crate::{
    GroupConfig, Init, Layout,
    codec::Noise,
    cpu,
    rng::{self, Purpose},
};

/// Makes the record of any row of a new table.
#[derive(Debug)]
pub(crate) struct Filler<'a> {
    layout: &'a Layout,
    init: Init,
    noise: Noise,
}

impl<'a> Filler<'a> {
    pub(crate) fn new(config: &GroupConfig, layout: &'a Layout) -> Self {
        let noise = Noise { rounding: config.rounding, seed: config.seed, step: 0, purpose: Purpose::Init as u32 };
        Self { layout, init: config.init, noise }
    }

    /// Initial weight `element` of `row`, before it is rounded to the table's precision.
    pub(crate) fn value(&self, row: u32, element: u32) -> f32 {
        match self.init {
            Init::Constant(value) => value,
            Init::Uniform { low, high } => {
                let bits = rng::random(self.noise.seed, 0, row, element, Purpose::Value as u32);
                (low + (high - low) * ((bits >> 8) as f32 * 2f32.powi(-24))).clamp(low, high)
            }
        }
    }

    /// Writes the record of `row`; the state starts at zero.
    pub(crate) fn fill(&self, row: u32, record: &mut [u32]) {
        let weights: Vec<f32> = (0..self.layout.dim).map(|element| self.value(row, element)).collect();
        let state = vec![0.0; self.layout.state as usize];
        // Initial values are finite (`GroupConfig::check`), so only a range beyond f32::MAX is refused: such a row starts as zeros.
        if !cpu::rows::pack(self.layout, &self.noise, row, &weights, &state, record) {
            record.fill(0);
        }
    }
}
