//! What a parameter-shared table keeps on the device between steps.

use crate::{
    Error,
    gpu::{
        Context,
        tables::{Numbering, host_can_hold},
    },
    layout::table_words,
    robe::{Config, INITIAL_BLOCK},
};

#[derive(Debug)]
pub(crate) struct Array {
    /// Step number, then for each table its base, its rows and its counters.
    pub(crate) tables: wgpu::Buffer,
    /// The table of each feature.
    pub(crate) features: wgpu::Buffer,
    /// The shared weights.
    pub(crate) memory: wgpu::Buffer,
    /// One a weight, where the optimiser has any.
    pub(crate) states: wgpu::Buffer,
}

impl Array {
    pub(super) fn new(context: &Context, config: &Config) -> Result<Self, Error> {
        let none = wgpu::BufferUsages::empty();
        let rows = config.rows();
        let bytes = 4 * u64::from(config.weights);
        let limit = context.caps().choose_shard_bytes();
        if bytes > limit {
            let remedy = "compress more: the shared weights are one binding";
            return Err(Error::TooLarge { what: "weights", wanted: bytes, limit, remedy });
        }
        if context.caps().device_type == wgpu::DeviceType::Cpu {
            host_can_hold(config.table_bytes())?;
        }
        let memory = context.buffer("weights", bytes, none)?;
        let states = context.buffer("states", if config.has_state() { bytes } else { 0 }, none)?;
        let tables = context.upload("tables", bytemuck::cast_slice(&table_words(&rows)))?;
        let features = context.upload("features", bytemuck::cast_slice(&rows.feature_tables()))?;
        let most = 128 * INITIAL_BLOCK;
        let mut weights = Vec::new();
        for first in (0..config.weights).step_by(most as usize) {
            weights.resize(most.min(config.weights - first) as usize, 0.0);
            config.initial(first, &mut weights);
            context.queue().write_buffer(&memory, 4 * u64::from(first), bytemuck::cast_slice(&weights));
            // Hands the staged bytes over, so that a large array does not gather on the host first.
            context.queue().submit([]);
        }
        Ok(Self { tables, features, memory, states })
    }

    pub(super) fn numbering(&self) -> Numbering<'_> {
        Numbering { tables: &self.tables, features: &self.features }
    }
}
