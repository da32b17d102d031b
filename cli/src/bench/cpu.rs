//! The CPU backend's runner: wall clock around forward and backward.

use super::sweep::{Runner, Seen};
use hotrow::{CpuGroup, GroupConfig};
use std::time::Instant;

pub(crate) struct CpuRunner {
    group: CpuGroup,
    offsets: Vec<u32>,
    grads: Vec<f32>,
}

impl CpuRunner {
    pub(crate) fn new(config: GroupConfig, offsets: &[u32]) -> anyhow::Result<Self> {
        let outputs = (offsets.len() - 1) * config.dim as usize;
        Ok(Self { group: CpuGroup::new(config)?, offsets: offsets.to_vec(), grads: vec![1e-3; outputs] })
    }
}

impl Runner for CpuRunner {
    fn step(&mut self, indices: &[u32]) -> anyhow::Result<Option<[f64; 2]>> {
        let start = Instant::now();
        let outputs = self.group.forward(indices, &self.offsets, None)?;
        let forward = start.elapsed();
        std::hint::black_box(outputs);
        let start = Instant::now();
        self.group.backward(&self.grads)?;
        Ok(Some([forward.as_secs_f64(), start.elapsed().as_secs_f64()]))
    }

    fn seen(&mut self) -> anyhow::Result<Seen> {
        Ok(Seen::of(self.group.counters()?.into_iter().sum(), self.group.layout().stride()))
    }
}
