//! What a caller's own program has: buffers, encoders, compute shaders.

use bytemuck::Pod;
use hotrow::{
    Context, RowReader,
    wgpu::{self, BufferBindingType, BufferUsages, util::DeviceExt as _},
};

/// A buffer that shaders read and write, and that commands copy.
pub(crate) fn storage<T: Pod>(context: &Context, values: &[T]) -> wgpu::Buffer {
    // An empty buffer cannot be bound.
    let contents = if values.is_empty() { &[0; 4] } else { bytemuck::cast_slice(values) };
    let usage = BufferUsages::STORAGE | BufferUsages::COPY_SRC | BufferUsages::COPY_DST;
    context.device().create_buffer_init(&wgpu::util::BufferInitDescriptor { label: Some("caller"), contents, usage })
}

pub(crate) fn buffer(context: &Context, size: u64, usage: BufferUsages) -> wgpu::Buffer {
    context.device().create_buffer(&wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false })
}

pub(crate) fn encoder(context: &Context) -> wgpu::CommandEncoder {
    context.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default())
}

/// Submits the commands of `record`.
pub(crate) fn submit<T>(context: &Context, encode: impl FnOnce(&mut wgpu::CommandEncoder) -> T) -> T {
    let mut encoder = encoder(context);
    let encoded = encode(&mut encoder);
    context.queue().submit([encoder.finish()]);
    encoded
}

/// Submits, and downloads a whole buffer.
pub(crate) fn download(context: &Context, mut encoder: wgpu::CommandEncoder, from: &wgpu::Buffer) -> Vec<u32> {
    let back = buffer(context, from.size(), BufferUsages::MAP_READ | BufferUsages::COPY_DST);
    encoder.copy_buffer_to_buffer(from, 0, &back, 0, from.size());
    encoder.map_buffer_on_submit(&back, wgpu::MapMode::Read, .., |mapped| mapped.unwrap());
    context.queue().submit([encoder.finish()]);
    loop {
        context.device().poll(wgpu::PollType::wait_indefinitely()).unwrap();
        // The poll of another test's thread may not have delivered the mapping yet.
        if let Ok(range) = back.get_mapped_range(..) {
            break bytemuck::pod_collect_to_vec(&range);
        }
    }
}

pub(crate) const UNIFORM: BufferBindingType = BufferBindingType::Uniform;
pub(crate) const READ: BufferBindingType = BufferBindingType::Storage { read_only: true };
pub(crate) const WRITE: BufferBindingType = BufferBindingType::Storage { read_only: false };

/// Draws `vertices` as points or as a triangle with the entries `vertex` and `fragment` of a reader's module and `text`, into textures of this size.
pub(crate) fn draw<const N: usize>(
    context: &Context,
    encoder: &mut wgpu::CommandEncoder,
    (reader, text): (&mut RowReader, &str),
    (topology, vertices): (wgpu::PrimitiveTopology, u32),
    (format, width, height): (wgpu::TextureFormat, u32, u32),
) -> [wgpu::Texture; N] {
    let device = context.device();
    let source = wgpu::ShaderSource::Wgsl((reader.wgsl().to_owned() + text).into());
    let module = device.create_shader_module(wgpu::ShaderModuleDescriptor { label: None, source });
    let layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
        label: None,
        bind_group_layouts: &[None, Some(reader.layout())],
        immediate_size: 0,
    });
    let target = Some(wgpu::ColorTargetState { format, blend: None, write_mask: wgpu::ColorWrites::ALL });
    let pipeline = device.create_render_pipeline(&wgpu::RenderPipelineDescriptor {
        label: None,
        layout: Some(&layout),
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
            targets: &vec![target; N],
        }),
        primitive: wgpu::PrimitiveState { topology, ..wgpu::PrimitiveState::default() },
        depth_stencil: None,
        multisample: wgpu::MultisampleState::default(),
        multiview_mask: None,
        cache: None,
    });
    let textures = [(); N].map(|()| {
        device.create_texture(&wgpu::TextureDescriptor {
            label: None,
            size: wgpu::Extent3d { width, height, depth_or_array_layers: 1 },
            mip_level_count: 1,
            sample_count: 1,
            dimension: wgpu::TextureDimension::D2,
            format,
            usage: wgpu::TextureUsages::RENDER_ATTACHMENT | wgpu::TextureUsages::COPY_SRC,
            view_formats: &[],
        })
    });
    let views = textures.each_ref().map(|texture| texture.create_view(&wgpu::TextureViewDescriptor::default()));
    let ops = wgpu::Operations { load: wgpu::LoadOp::Clear(wgpu::Color::BLACK), store: wgpu::StoreOp::Store };
    let attachments = views
        .each_ref()
        .map(|view| Some(wgpu::RenderPassColorAttachment { view, depth_slice: None, resolve_target: None, ops }));
    let mut pass = encoder.begin_render_pass(&wgpu::RenderPassDescriptor {
        color_attachments: &attachments,
        ..wgpu::RenderPassDescriptor::default()
    });
    pass.set_pipeline(&pipeline);
    pass.set_bind_group(1, reader.bind_group().unwrap(), &[]);
    pass.draw(0..vertices, 0..1);
    drop(pass);
    textures
}

/// A compute shader with the entry `main`. Group 0 has its own buffers, group 1 a reader's.
pub(crate) struct Shader {
    context: Context,
    own: wgpu::BindGroupLayout,
    pipeline: wgpu::ComputePipeline,
}

impl Shader {
    pub(crate) fn new(
        context: &Context,
        text: String,
        own: &[BufferBindingType],
        reader: Option<&wgpu::BindGroupLayout>,
    ) -> Self {
        let device = context.device();
        let source = wgpu::ShaderSource::Wgsl(text.into());
        let module = device.create_shader_module(wgpu::ShaderModuleDescriptor { label: None, source });
        let entry = |(binding, &ty)| wgpu::BindGroupLayoutEntry {
            binding,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer { ty, has_dynamic_offset: false, min_binding_size: None },
            count: None,
        };
        let entries: Vec<_> = (0..).zip(own).map(entry).collect();
        let own = device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: None, entries: &entries });
        let layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            bind_group_layouts: &[Some(&own), reader],
            ..Default::default()
        });
        let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: None,
            layout: Some(&layout),
            module: &module,
            entry_point: Some("main"),
            compilation_options: wgpu::PipelineCompilationOptions::default(),
            cache: None,
        });
        Self { context: context.clone(), own, pipeline }
    }

    pub(crate) fn dispatch(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        own: &[&wgpu::Buffer],
        reader: Option<&wgpu::BindGroup>,
        groups: u32,
    ) {
        let resources = (0..).zip(own.iter().map(|buffer| buffer.as_entire_binding()));
        let entries: Vec<_> = resources.map(|(binding, resource)| wgpu::BindGroupEntry { binding, resource }).collect();
        let descriptor = wgpu::BindGroupDescriptor { label: None, layout: &self.own, entries: &entries };
        let own = self.context.device().create_bind_group(&descriptor);
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        pass.set_pipeline(&self.pipeline);
        pass.set_bind_group(0, &own, &[]);
        if reader.is_some() {
            pass.set_bind_group(1, reader, &[]);
        }
        pass.dispatch_workgroups(groups, 1, 1);
    }
}
