//! Tables and batches on a device. Points go there, and their features come back.

use hotrow::wgpu::{self, BufferUsages};
use hotrow::{Context, Grid, Group, Lookup, Mode, SharedGroup, grid};

use super::{Failure, INPUTS};

/// The learned rows.
pub(crate) enum Tables {
    Rows(Box<Group>),
    Array(Box<SharedGroup>),
}

pub(crate) struct Device {
    context: Context,
    grid: Grid,
    tables: Tables,
    coordinates: wgpu::Buffer,
    features: wgpu::Buffer,
    download: wgpu::Buffer,
}

impl Device {
    /// For at most `most` points at once.
    pub(crate) fn new(context: &Context, config: grid::Config, tables: Tables, most: usize) -> Result<Self, Failure> {
        let grid = Grid::new(context, config, most as u32)?;
        let buffer = |floats, usage| {
            let size = (4 * most * floats) as u64;
            context.device().create_buffer(&wgpu::BufferDescriptor {
                label: None,
                size,
                usage,
                mapped_at_creation: false,
            })
        };
        Ok(Self {
            context: context.clone(),
            grid,
            tables,
            coordinates: buffer(2, BufferUsages::STORAGE | BufferUsages::COPY_DST),
            features: buffer(INPUTS, BufferUsages::STORAGE | BufferUsages::COPY_SRC),
            download: buffer(INPUTS, BufferUsages::MAP_READ | BufferUsages::COPY_DST),
        })
    }

    pub(crate) fn tables(&mut self) -> &mut dyn Lookup {
        match &mut self.tables {
            Tables::Rows(tables) => &mut **tables,
            Tables::Array(tables) => &mut **tables,
        }
    }

    /// The features of points, level by level. A training forward waits for its backward. Waits for the device.
    pub(crate) fn features(&mut self, points: &[[f32; 2]], train: bool) -> Result<Vec<f32>, Failure> {
        let mut encoder = self.context.device().create_command_encoder(&Default::default());
        self.context.queue().write_buffer(&self.coordinates, 0, bytemuck::cast_slice(points));
        let batch = self.grid.encode(&mut encoder, self.coordinates.slice(..size_of_val(points) as u64))?;
        let (features, mode) = (self.features.slice(..), if train { Mode::Train } else { Mode::Frozen });
        match &mut self.tables {
            Tables::Rows(tables) => tables.encode_forward(&mut encoder, &batch, features, mode)?,
            Tables::Array(tables) => tables.encode_forward(&mut encoder, &batch, features, mode)?,
        }
        let bytes = (points.len() * INPUTS * 4) as u64;
        encoder.copy_buffer_to_buffer(&self.features, 0, &self.download, 0, bytes);
        encoder.map_buffer_on_submit(&self.download, wgpu::MapMode::Read, ..bytes, |_| {});
        self.context.queue().submit([encoder.finish()]);
        self.context.device().poll(wgpu::PollType::wait_indefinitely())?;
        let found = bytemuck::cast_slice(&self.download.get_mapped_range(..bytes)?).to_vec();
        self.download.unmap();
        self.context.check()?;
        Ok(found)
    }
}
