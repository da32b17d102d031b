//! Pipelines and bind groups of the baseline's kernels, which belong to no group of tables.

use hotrow::Context;

/// A kernel's name and text.
type Kernel = (&'static str, &'static str);

/// The kernel that gathers and updates rows in frames.
pub(super) const PAGES: Kernel = ("uvm pages", include_str!("pages.wgsl"));
/// The kernel that moves pages between host and frames.
pub(super) const CARRY: Kernel = ("uvm carry", include_str!("carry.wgsl"));

/// Name and text of each kernel, for the compilers that check them.
#[doc(hidden)]
#[must_use]
pub const fn shaders() -> [(&'static str, &'static str); 2] {
    [PAGES, CARRY]
}

pub(super) fn pipeline(context: &Context, (name, text): Kernel) -> wgpu::ComputePipeline {
    let module = context.device().create_shader_module(wgpu::ShaderModuleDescriptor {
        label: Some(name),
        source: wgpu::ShaderSource::Wgsl(text.into()),
    });
    context.device().create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: Some(name),
        layout: None,
        module: &module,
        entry_point: Some("main"),
        compilation_options: wgpu::PipelineCompilationOptions::default(),
        cache: None,
    })
}

/// Binds whole buffers, numbered from 0.
pub(super) fn bind_group<'b>(
    context: &Context,
    pipeline: &wgpu::ComputePipeline,
    buffers: impl IntoIterator<Item = &'b wgpu::Buffer>,
) -> wgpu::BindGroup {
    let entries: Vec<_> = (0..)
        .zip(buffers)
        .map(|(binding, buffer)| wgpu::BindGroupEntry { binding, resource: buffer.as_entire_binding() })
        .collect();
    context.device().create_bind_group(&wgpu::BindGroupDescriptor {
        label: Some("hotrow.uvm"),
        layout: &pipeline.get_bind_group_layout(0),
        entries: &entries,
    })
}
