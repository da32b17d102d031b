//! A screen whose pixels each ask for one row, in a compute shader and in a fragment shader: what a renderer's shaders do with a reader.

use hotrow::internals::Device as _;
use hotrow::{RowReader, wgpu};

use super::bench::Bench;
use crate::lab::Lab;

/// Where a program runs; also the index of its bind group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Compute,
    Fragment,
}

impl Stage {
    pub(super) const ALL: [Self; 2] = [Self::Compute, Self::Fragment];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Fragment => "fragment",
        }
    }
}

/// Calls `row_sum` with the word that a pixel's place in `asked` holds. The caller's text declares `row_sum` and the bindings of group 1.
const FRAME: &str = "
@group(0) @binding(0) var<storage, read> asked: array<u32>;
@group(0) @binding(1) var<storage, read_write> told: array<f32>;

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < arrayLength(&asked)) { told[id.x] = row_sum(asked[id.x]); }
}

@vertex
fn vertex(@builtin(vertex_index) i: u32) -> @builtin(position) vec4<f32> {
    return vec4<f32>(f32(i & 1u) * 4.0 - 1.0, f32(i >> 1u) * 4.0 - 1.0, 0.0, 1.0);
}

@fragment
fn fragment(@builtin(position) at: vec4<f32>) -> @location(0) f32 {
    return row_sum(asked[u32(at.y) * COLUMNSu + u32(at.x)]);
}
";

/// The screen: its size, the answer of each pixel in a buffer and in a target, and the layouts of group 0.
pub(super) struct Screen<'l> {
    lab: &'l Lab,
    pub(super) width: u32,
    pub(super) height: u32,
    told: wgpu::Buffer,
    target: wgpu::Texture,
    layouts: [wgpu::BindGroupLayout; 2],
}

/// A text of `row_sum` with what it binds in group 1.
pub(super) struct Program {
    compute: wgpu::ComputePipeline,
    render: wgpu::RenderPipeline,
    bind_group: wgpu::BindGroup,
}

/// The words that pixels ask for, bound for each stage.
pub(super) struct Asked([wgpu::BindGroup; 2]);

impl<'l> Screen<'l> {
    /// 1080p; on a software driver a 225th of it.
    pub(super) fn new(bench: &Bench<'l>) -> anyhow::Result<Self> {
        let lab = bench.lab()?;
        let (width, height) = bench.size.of((128, 72), (1920, 1080));
        let device = lab.timed.device();
        let target = device.create_texture(&wgpu::TextureDescriptor {
            label: Some("screen"),
            size: wgpu::Extent3d { width, height, depth_or_array_layers: 1 },
            mip_level_count: 1,
            sample_count: 1,
            dimension: wgpu::TextureDimension::D2,
            format: wgpu::TextureFormat::R32Float,
            usage: wgpu::TextureUsages::RENDER_ATTACHMENT | wgpu::TextureUsages::COPY_SRC,
            view_formats: &[],
        });
        let layouts = Stage::ALL.map(|stage| {
            let (visibility, entries) = match stage {
                Stage::Compute => (wgpu::ShaderStages::COMPUTE, 2),
                Stage::Fragment => (wgpu::ShaderStages::FRAGMENT, 1),
            };
            layout(lab, visibility, entries)
        });
        let told = lab.room(u64::from(width * height) * 4, wgpu::BufferUsages::empty());
        Ok(Self { lab, width, height, told, target, layouts })
    }

    pub(super) const fn pixels(&self) -> u32 {
        self.width * self.height
    }

    /// Binds a word for each pixel, or for the first invocations of a compute shader.
    pub(super) fn asks(&self, asked: &wgpu::Buffer) -> Asked {
        let buffers = [asked, &self.told];
        Asked([bind(self.lab, &self.layouts[0], &buffers), bind(self.lab, &self.layouts[1], &buffers[..1])])
    }

    /// A program with a reader's functions.
    pub(super) fn reading(&self, reader: &mut RowReader, row_sum: &str) -> anyhow::Result<Program> {
        let text = reader.wgsl().to_owned() + row_sum;
        let bind_group = reader.bind_group()?.clone();
        Ok(self.program(&text, reader.layout(), bind_group))
    }

    /// A program that binds `raw` as binding 0 of group 1.
    pub(super) fn raw(&self, raw: &wgpu::Buffer, row_sum: &str) -> Program {
        let layout = layout(self.lab, wgpu::ShaderStages::COMPUTE | wgpu::ShaderStages::FRAGMENT, 1);
        let bind_group = bind(self.lab, &layout, &[raw]);
        self.program(row_sum, &layout, bind_group)
    }

    fn program(&self, text: &str, group: &wgpu::BindGroupLayout, bind_group: wgpu::BindGroup) -> Program {
        let device = self.lab.timed.device();
        let text = text.to_owned() + &FRAME.replace("COLUMNS", &self.width.to_string());
        let source = wgpu::ShaderSource::Wgsl(text.into());
        let module = device.create_shader_module(wgpu::ShaderModuleDescriptor { label: Some("screen"), source });
        let [compute, render] = self.layouts.each_ref().map(|own| {
            device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
                label: Some("screen"),
                bind_group_layouts: &[Some(own), Some(group)],
                immediate_size: 0,
            })
        });
        let compute = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some("screen"),
            layout: Some(&compute),
            module: &module,
            entry_point: Some("main"),
            compilation_options: wgpu::PipelineCompilationOptions::default(),
            cache: None,
        });
        let render = device.create_render_pipeline(&wgpu::RenderPipelineDescriptor {
            label: Some("screen"),
            layout: Some(&render),
            vertex: wgpu::VertexState {
                module: &module,
                entry_point: Some("vertex"),
                compilation_options: wgpu::PipelineCompilationOptions::default(),
                buffers: &[],
            },
            fragment: Some(wgpu::FragmentState {
                module: &module,
                entry_point: Some("fragment"),
                compilation_options: wgpu::PipelineCompilationOptions::default(),
                targets: &[Some(self.target.format().into())],
            }),
            primitive: wgpu::PrimitiveState::default(),
            depth_stencil: None,
            multisample: wgpu::MultisampleState::default(),
            multiview_mask: None,
            cache: None,
        });
        Program { compute, render, bind_group }
    }

    /// Records a frame.
    pub(super) fn draw(&self, encoder: &mut wgpu::CommandEncoder, program: &Program, asked: &Asked, stage: Stage) {
        match stage {
            Stage::Compute => self.dispatch(encoder, program, asked, self.pixels()),
            Stage::Fragment => {
                let view = self.target.create_view(&wgpu::TextureViewDescriptor::default());
                let ops =
                    wgpu::Operations { load: wgpu::LoadOp::Clear(wgpu::Color::BLACK), store: wgpu::StoreOp::Store };
                let attachment =
                    wgpu::RenderPassColorAttachment { view: &view, depth_slice: None, resolve_target: None, ops };
                let mut pass = encoder.begin_render_pass(&wgpu::RenderPassDescriptor {
                    color_attachments: &[Some(attachment)],
                    ..wgpu::RenderPassDescriptor::default()
                });
                pass.set_pipeline(&program.render);
                pass.set_bind_group(0, &asked.0[1], &[]);
                pass.set_bind_group(1, &program.bind_group, &[]);
                pass.draw(0..3, 0..1);
            }
        }
    }

    /// Records `n` invocations of the compute shader.
    pub(super) fn dispatch(&self, encoder: &mut wgpu::CommandEncoder, program: &Program, asked: &Asked, n: u32) {
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        pass.set_pipeline(&program.compute);
        pass.set_bind_group(0, &asked.0[0], &[]);
        pass.set_bind_group(1, &program.bind_group, &[]);
        pass.dispatch_workgroups(n.div_ceil(256), 1, 1);
    }

    /// Draws a frame, and returns what each pixel found.
    pub(super) fn found(&self, program: &Program, asked: &Asked, stage: Stage) -> anyhow::Result<Vec<f32>> {
        let mut encoder = self.lab.encoder();
        self.draw(&mut encoder, program, asked, stage);
        if stage == Stage::Fragment {
            let rows =
                wgpu::TexelCopyBufferLayout { offset: 0, bytes_per_row: Some(self.width * 4), rows_per_image: None };
            let to = wgpu::TexelCopyBufferInfo { buffer: &self.told, layout: rows };
            encoder.copy_texture_to_buffer(self.target.as_image_copy(), to, self.target.size());
        }
        let words = self.lab.timed.download(encoder, &[(&self.told, u64::from(self.pixels()) * 4)])?;
        Ok(words[0].iter().map(|&word| f32::from_bits(word)).collect())
    }
}

/// A layout of storage buffers of which the first is read and the others are written.
pub(super) fn layout(lab: &Lab, visibility: wgpu::ShaderStages, entries: u32) -> wgpu::BindGroupLayout {
    let entry = |binding| wgpu::BindGroupLayoutEntry {
        binding,
        visibility,
        ty: wgpu::BindingType::Buffer {
            ty: wgpu::BufferBindingType::Storage { read_only: binding == 0 },
            has_dynamic_offset: false,
            min_binding_size: None,
        },
        count: None,
    };
    let entries: Vec<_> = (0..entries).map(entry).collect();
    let label = Some("screen");
    lab.timed.device().create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label, entries: &entries })
}

pub(super) fn bind(lab: &Lab, layout: &wgpu::BindGroupLayout, buffers: &[&wgpu::Buffer]) -> wgpu::BindGroup {
    let numbered = (0..).zip(buffers);
    let entries: Vec<_> = numbered
        .map(|(binding, buffer)| wgpu::BindGroupEntry { binding, resource: buffer.as_entire_binding() })
        .collect();
    let label = Some("screen");
    lab.timed.device().create_bind_group(&wgpu::BindGroupDescriptor { label, layout, entries: &entries })
}
