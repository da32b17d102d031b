//! A fit whose tables, batches and perceptron are on the device. Only points and targets go there; only predictions and losses come back.

use hotrow::wgpu;
use hotrow::{Context, Grid, GridBags, Group, Lookup as _, LookupKind, MemoryReport, SharedGroup, grid};

use super::{AT_ONCE, FEATURES, Failure, LEVELS, mlp};

/// Most workgroups of a pass of the perceptron; each has a list of gradients of its own.
const MOST_GROUPS: u32 = 256;
/// Samples that a workgroup takes at once.
const TILE: u32 = 16;

/// The learned rows.
pub(crate) enum Tables {
    Rows(Box<Group>),
    Array(Box<SharedGroup>),
}

/// Both kinds of tables have the same methods.
macro_rules! of {
    ($tables:expr, $table:ident => $call:expr) => {
        match $tables {
            Tables::Rows($table) => $call,
            Tables::Array($table) => $call,
        }
    };
}

/// `Step` of `mlp.wgsl`.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Step {
    samples: u32,
    chunk: u32,
    groups: u32,
    lr: f32,
    decays: [f32; 2],
    corrections: [f32; 2],
    eps: f32,
    _pad: u32,
}

pub(crate) struct Device {
    context: Context,
    grid: Grid,
    tables: Tables,
    bags: GridBags,
    /// `predict`, `learn` and `adam` of `mlp.wgsl`.
    pipelines: [wgpu::ComputePipeline; 3],
    bound: wgpu::BindGroup,
    step: wgpu::Buffer,
    coordinates: wgpu::Buffer,
    targets: wgpu::Buffer,
    features: wgpu::Buffer,
    grads: wgpu::Buffer,
    outputs: wgpu::Buffer,
    download: wgpu::Buffer,
    perceptron: wgpu::Buffer,
    /// Weights of the perceptron.
    weights: usize,
    steps: i32,
    last: Option<wgpu::SubmissionIndex>,
}

impl Device {
    /// Uploads the perceptron. Steps have at most `most` points.
    pub(crate) fn new(
        context: &Context,
        config: grid::Config,
        tables: Tables,
        mlp: &mlp::Mlp,
        most: usize,
    ) -> Result<Self, Failure> {
        let (device, points) = (context.device(), most.max(AT_ONCE) as u64);
        let grid = Grid::new(context, config)?;
        let bags = grid.bags(points as u32)?;
        let buffer = |floats: u64, usage| {
            let (size, usage) = (4 * floats, usage | wgpu::BufferUsages::COPY_DST);
            device.create_buffer(&wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false })
        };
        let storage = |floats| buffer(floats, wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC);
        let n = mlp.weights().len() as u64;
        let perceptron = storage(n);
        context.queue().write_buffer(&perceptron, 0, bytemuck::cast_slice(mlp.weights()));
        let features = points * (LEVELS * FEATURES) as u64;
        let (moments, parts) = (storage(2 * n), storage(u64::from(MOST_GROUPS) * (n + 1)));
        let [coordinates, targets, outputs] = [2, 1, 1].map(|floats| storage(floats * points));
        let [features, grads] = [features; 2].map(storage);
        let step = buffer(size_of::<Step>() as u64 / 4, wgpu::BufferUsages::UNIFORM);
        let download = buffer(points, wgpu::BufferUsages::MAP_READ);

        let entries: Vec<_> = (0..8)
            .map(|binding| wgpu::BindGroupLayoutEntry {
                binding,
                visibility: wgpu::ShaderStages::COMPUTE,
                ty: wgpu::BindingType::Buffer {
                    ty: match binding {
                        0 => wgpu::BufferBindingType::Uniform,
                        _ => wgpu::BufferBindingType::Storage { read_only: binding < 3 },
                    },
                    has_dynamic_offset: false,
                    min_binding_size: None,
                },
                count: None,
            })
            .collect();
        let layout =
            device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: None, entries: &entries });
        let buffers = [&step, &features, &targets, &perceptron, &moments, &grads, &parts, &outputs];
        let entries: Vec<_> = (0..)
            .zip(buffers)
            .map(|(binding, buffer)| wgpu::BindGroupEntry { binding, resource: buffer.as_entire_binding() })
            .collect();
        let bound =
            device.create_bind_group(&wgpu::BindGroupDescriptor { label: None, layout: &layout, entries: &entries });
        let module = device.create_shader_module(wgpu::include_wgsl!("mlp.wgsl"));
        let layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            bind_group_layouts: &[Some(&layout)],
            ..Default::default()
        });
        let pipelines = ["predict", "learn", "adam"].map(|entry| {
            device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: Some(entry),
                layout: Some(&layout),
                module: &module,
                entry_point: Some(entry),
                compilation_options: wgpu::PipelineCompilationOptions::default(),
                cache: None,
            })
        });
        Ok(Self {
            context: context.clone(),
            grid,
            tables,
            bags,
            pipelines,
            bound,
            step,
            coordinates,
            targets,
            features,
            grads,
            outputs,
            download,
            perceptron,
            weights: n as usize,
            steps: 0,
            last: None,
        })
    }

    /// The bytes of the tables.
    pub(crate) fn memory(&self) -> MemoryReport {
        of!(&self.tables, tables => tables.memory())
    }

    /// Moves everything once. Waits for the step before, not for this one.
    pub(crate) fn step(
        &mut self,
        points: &[[f32; 2]],
        targets: &[f32],
        lr: f32,
        adam: mlp::Adam,
    ) -> Result<(), Failure> {
        if let Some(last) = self.last.take() {
            self.context.device().poll(wgpu::PollType::Wait { submission_index: Some(last), timeout: None })?;
        }
        self.steps += 1;
        of!(&mut self.tables, tables => tables.set_learning_rate(lr))?;
        self.context.queue().write_buffer(&self.targets, 0, bytemuck::cast_slice(targets));
        let (mut encoder, groups) = self.begin(points, adam)?;
        let (batch, features) = (self.bags.batch(points.len() as u32)?, self.features.slice(..));
        of!(&mut self.tables, tables => tables.encode_forward(&mut encoder, &batch, features))?;
        // One invocation a weight, and one for the loss.
        let moving = (self.weights + 1).div_ceil(mlp::WIDE) as u32;
        self.pass(&mut encoder, &[(1, groups), (2, moving)]);
        let grads = self.grads.slice(..(points.len() * LEVELS * FEATURES * 4) as u64);
        of!(&mut self.tables, tables => tables.encode_backward(&mut encoder, grads))?;
        self.last = Some(self.context.queue().submit([encoder.finish()]));
        Ok(())
    }

    /// The loss before the last step. Waits for the device.
    pub(crate) fn loss(&mut self) -> Result<f64, Failure> {
        let encoder = self.context.device().create_command_encoder(&Default::default());
        Ok(f64::from(self.read(encoder, &self.outputs, 1)?[0]))
    }

    /// The values at points, at most [`AT_ONCE`]. Waits for the device.
    pub(crate) fn predict(&mut self, points: &[[f32; 2]]) -> Result<Vec<f32>, Failure> {
        let still = mlp::Adam { lr: 0.0, betas: [0.0; 2], eps: 0.0 };
        let (mut encoder, groups) = self.begin(points, still)?;
        let (batch, features) = (self.bags.batch(points.len() as u32)?, self.features.slice(..));
        of!(&mut self.tables, tables => tables.encode_forward_frozen(&mut encoder, &batch, features))?;
        self.pass(&mut encoder, &[(0, groups)]);
        self.read(encoder, &self.outputs, points.len())
    }

    /// The perceptron's weights. Waits for the device.
    pub(crate) fn weights(&self) -> Result<Vec<f32>, Failure> {
        let encoder = self.context.device().create_command_encoder(&Default::default());
        self.read(encoder, &self.perceptron, self.weights)
    }

    pub(crate) fn kind(&mut self) -> LookupKind<'_> {
        of!(&mut self.tables, tables => tables.kind())
    }

    /// Uploads points, and the uniform of their passes, and records their bags. Returns the number of workgroups that take them.
    fn begin(&self, points: &[[f32; 2]], adam: mlp::Adam) -> Result<(wgpu::CommandEncoder, u32), Failure> {
        let samples = points.len() as u32;
        let chunk = samples.div_ceil(MOST_GROUPS).next_multiple_of(TILE);
        let groups = samples.div_ceil(chunk);
        let corrections = adam.betas.map(|beta| 1.0 - beta.powi(self.steps));
        let mlp::Adam { lr, betas: decays, eps } = adam;
        let step = Step { samples, chunk, groups, lr, decays, corrections, eps, _pad: 0 };
        self.context.queue().write_buffer(&self.step, 0, bytemuck::bytes_of(&step));
        self.context.queue().write_buffer(&self.coordinates, 0, bytemuck::cast_slice(points));
        let mut encoder = self.context.device().create_command_encoder(&Default::default());
        self.grid.encode(&mut encoder, self.coordinates.slice(..size_of_val(points) as u64), &self.bags)?;
        Ok((encoder, groups))
    }

    /// Dispatches pipelines of the perceptron, each with its number of workgroups.
    fn pass(&self, encoder: &mut wgpu::CommandEncoder, dispatches: &[(usize, u32)]) {
        let mut pass = encoder.begin_compute_pass(&Default::default());
        pass.set_bind_group(0, &self.bound, &[]);
        for &(pipeline, groups) in dispatches {
            pass.set_pipeline(&self.pipelines[pipeline]);
            pass.dispatch_workgroups(groups, 1, 1);
        }
    }

    /// Submits, and waits for the first `floats` of a buffer.
    fn read(&self, mut encoder: wgpu::CommandEncoder, from: &wgpu::Buffer, floats: usize) -> Result<Vec<f32>, Failure> {
        let bytes = floats as u64 * 4;
        encoder.copy_buffer_to_buffer(from, 0, &self.download, 0, bytes);
        encoder.map_buffer_on_submit(&self.download, wgpu::MapMode::Read, ..bytes, |_| {});
        self.context.queue().submit([encoder.finish()]);
        self.context.device().poll(wgpu::PollType::wait_indefinitely())?;
        let found = bytemuck::cast_slice(&self.download.get_mapped_range(..bytes)?).to_vec();
        self.download.unmap();
        self.context.check()?;
        Ok(found)
    }
}
