//! Compute kernels of the benchmarks' own, which belong to no group of tables.

use hotrow::wgpu;

#[derive(Clone, Debug)]
pub struct Kernel(wgpu::ComputePipeline);

impl Kernel {
    /// A kernel whose bind groups have these layouts. Its entry point has the name of its label.
    pub fn new(device: &wgpu::Device, (label, text): (&str, &str), layouts: &[&wgpu::BindGroupLayout]) -> Self {
        let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
            label: Some(label),
            source: wgpu::ShaderSource::Wgsl(text.into()),
        });
        let layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: Some(label),
            bind_group_layouts: &layouts.iter().map(|&layout| Some(layout)).collect::<Vec<_>>(),
            immediate_size: 0,
        });
        Self(device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some(label),
            layout: Some(&layout),
            module: &module,
            entry_point: Some(label),
            compilation_options: wgpu::PipelineCompilationOptions::default(),
            cache: None,
        }))
    }

    /// Encodes a dispatch with these bind groups, the first of which is group 0.
    pub fn encode(&self, encoder: &mut wgpu::CommandEncoder, groups: &[&wgpu::BindGroup], workgroups: u32) {
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        pass.set_pipeline(&self.0);
        (0..).zip(groups).for_each(|(index, group)| pass.set_bind_group(index, *group, &[]));
        pass.dispatch_workgroups(workgroups, 1, 1);
    }
}

/// A layout of storage buffers, which are read only or not.
pub fn layout(device: &wgpu::Device, read_only: &[bool]) -> wgpu::BindGroupLayout {
    let entry = |(binding, &read_only): (u32, &bool)| wgpu::BindGroupLayoutEntry {
        binding,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer {
            ty: wgpu::BufferBindingType::Storage { read_only },
            has_dynamic_offset: false,
            min_binding_size: None,
        },
        count: None,
    };
    let entries: Vec<_> = (0..).zip(read_only).map(entry).collect();
    device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: Some("bench"), entries: &entries })
}

/// Binds whole buffers, numbered from 0.
pub fn bind(device: &wgpu::Device, layout: &wgpu::BindGroupLayout, buffers: &[&wgpu::Buffer]) -> wgpu::BindGroup {
    let numbered = (0..).zip(buffers);
    let entries: Vec<_> = numbered
        .map(|(binding, buffer)| wgpu::BindGroupEntry { binding, resource: buffer.as_entire_binding() })
        .collect();
    device.create_bind_group(&wgpu::BindGroupDescriptor { label: Some("bench"), layout, entries: &entries })
}
