//! Compute kernels of the benchmarks' own, which belong to no group of tables.

use hotrow::wgpu;

/// A kernel with the entry point `main`.
#[derive(Clone, Debug)]
pub(crate) struct Kernel(wgpu::ComputePipeline);

impl Kernel {
    /// A kernel with this layout, or with the one that its text implies.
    pub(crate) fn new(
        device: &wgpu::Device,
        (label, text): (&str, &str),
        layout: Option<&wgpu::PipelineLayout>,
    ) -> Self {
        let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
            label: Some(label),
            source: wgpu::ShaderSource::Wgsl(text.into()),
        });
        Self(device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some(label),
            layout,
            module: &module,
            entry_point: Some("main"),
            compilation_options: wgpu::PipelineCompilationOptions::default(),
            cache: None,
        }))
    }

    /// Binds whole buffers as group 0, numbered from 0.
    pub(crate) fn bind(&self, device: &wgpu::Device, buffers: &[&wgpu::Buffer]) -> wgpu::BindGroup {
        bind(device, &self.0.get_bind_group_layout(0), buffers)
    }

    /// Records a dispatch with these bind groups, the first of which is group 0.
    pub(crate) fn record(&self, encoder: &mut wgpu::CommandEncoder, groups: &[&wgpu::BindGroup], workgroups: u32) {
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        pass.set_pipeline(&self.0);
        (0..).zip(groups).for_each(|(index, group)| pass.set_bind_group(index, *group, &[]));
        pass.dispatch_workgroups(workgroups, 1, 1);
    }
}

/// Binds whole buffers, numbered from 0.
pub(crate) fn bind(
    device: &wgpu::Device,
    layout: &wgpu::BindGroupLayout,
    buffers: &[&wgpu::Buffer],
) -> wgpu::BindGroup {
    let numbered = (0..).zip(buffers);
    let entries: Vec<_> = numbered
        .map(|(binding, buffer)| wgpu::BindGroupEntry { binding, resource: buffer.as_entire_binding() })
        .collect();
    device.create_bind_group(&wgpu::BindGroupDescriptor { label: Some("bench"), layout, entries: &entries })
}
