//! The device itself: what it can do, and how its objects are made.

use std::{future::ready, pin::Pin, sync::Arc};

use wgpu::custom::{
    BoxDeviceLostCallback, DeviceInterface, DispatchBindGroup, DispatchBindGroupLayout, DispatchBlas, DispatchBuffer,
    DispatchCommandEncoder, DispatchComputePipeline, DispatchExternalTexture, DispatchPipelineCache,
    DispatchPipelineLayout, DispatchQuerySet, DispatchRenderBundleEncoder, DispatchRenderPipeline, DispatchSampler,
    DispatchShaderModule, DispatchTexture, DispatchTlas, PopErrorScopeFuture,
};

use super::{
    buffer::{LaneBuffer, words_of},
    code::{code, lock},
    commands::LaneEncoder,
    kernel::{Entry, LaneBindGroup, LaneLayout, LaneModule, LanePipeline},
    world::World,
};

#[derive(Debug)]
pub(super) struct LaneDevice {
    pub(super) world: Arc<World>,
}

impl DeviceInterface for LaneDevice {
    fn features(&self) -> wgpu::Features {
        let mut features = wgpu::Features::MAPPABLE_PRIMARY_BUFFERS;
        features.set(wgpu::Features::SUBGROUP, self.world.config.subgroups);
        features.set(wgpu::Features::SHADER_FLOAT32_ATOMIC, self.world.config.float_atomics);
        features
    }

    fn limits(&self) -> wgpu::Limits {
        let buffers = self.world.config.storage_buffers;
        wgpu::Limits {
            max_storage_buffers_per_shader_stage: buffers,
            max_buffers_and_acceleration_structures_per_shader_stage: buffers + 3,
            ..wgpu::Limits::default()
        }
    }

    fn adapter_info(&self) -> wgpu::AdapterInfo {
        let size = self.world.config.options.subgroup;
        let kind = if self.world.config.card { wgpu::DeviceType::VirtualGpu } else { wgpu::DeviceType::Cpu };
        let mut info = wgpu::AdapterInfo::new(kind, wgpu::Backend::Noop);
        info.name = "lane executor".into();
        (info.subgroup_min_size, info.subgroup_max_size) = (size, size);
        info
    }

    fn create_shader_module(
        &self,
        descriptor: wgpu::ShaderModuleDescriptor<'_>,
        _: wgpu::ShaderRuntimeChecks,
    ) -> DispatchShaderModule {
        let wgpu::ShaderSource::Wgsl(text) = descriptor.source else { panic!("wanted WGSL, found another language") };
        DispatchShaderModule::custom(LaneModule { text: text.into_owned() })
    }

    #[allow(unsafe_code, reason = "wgpu declares the method so; its body is safe")]
    unsafe fn create_shader_module_passthrough(
        &self,
        _: &wgpu::ShaderModuleDescriptorPassthrough<'_>,
    ) -> DispatchShaderModule {
        panic!("the lane executor has no create_shader_module_passthrough")
    }

    fn create_bind_group_layout(&self, _: &wgpu::BindGroupLayoutDescriptor<'_>) -> DispatchBindGroupLayout {
        DispatchBindGroupLayout::custom(LaneLayout)
    }

    fn create_bind_group(&self, descriptor: &wgpu::BindGroupDescriptor<'_>) -> DispatchBindGroup {
        let entries = descriptor.entries.iter().map(|entry| {
            let wgpu::BindingResource::Buffer(bound) = &entry.resource else {
                panic!("wanted a buffer, found another resource")
            };
            let buffer: &LaneBuffer = bound.buffer.as_custom().unwrap_or_else(|| panic!("a buffer of another device"));
            let size = bound.size.map_or(buffer.bytes - bound.offset, std::num::NonZero::get);
            let words = words_of(bound.offset..bound.offset + size);
            assert!(bound.offset + size <= buffer.bytes, "a binding beyond its buffer");
            Entry { binding: entry.binding, words: buffer.words.clone(), first: words.start, count: words.len() }
        });
        DispatchBindGroup::custom(LaneBindGroup { entries: entries.collect() })
    }

    fn create_pipeline_layout(&self, _: &wgpu::PipelineLayoutDescriptor<'_>) -> DispatchPipelineLayout {
        DispatchPipelineLayout::custom(LaneLayout)
    }

    fn create_compute_pipeline(&self, descriptor: &wgpu::ComputePipelineDescriptor<'_>) -> DispatchComputePipeline {
        let module: &LaneModule =
            descriptor.module.as_custom().unwrap_or_else(|| panic!("a shader module of another device"));
        let name = self.world.config.project.kernel(descriptor.label.unwrap_or("without a label"));
        if self.world.config.stumbles.is_some_and(|mark| module.text.contains(mark)) {
            self.world.internal_error(format!("{name}: the compiler stumbles"));
        }
        let code = code(name, descriptor.entry_point, &module.text, descriptor.compilation_options.constants);
        DispatchComputePipeline::custom(LanePipeline { code })
    }

    #[allow(unsafe_code, reason = "wgpu declares the method so; its body is safe")]
    unsafe fn create_pipeline_cache(&self, _: &wgpu::PipelineCacheDescriptor<'_>) -> DispatchPipelineCache {
        panic!("the lane executor has no create_pipeline_cache")
    }

    fn create_buffer(&self, descriptor: &wgpu::BufferDescriptor<'_>) -> DispatchBuffer {
        DispatchBuffer::custom(LaneBuffer::new(&self.world, descriptor.size))
    }

    fn create_command_encoder(&self, _: &wgpu::CommandEncoderDescriptor<'_>) -> DispatchCommandEncoder {
        DispatchCommandEncoder::custom(LaneEncoder::default())
    }

    fn set_device_lost_callback(&self, _: BoxDeviceLostCallback) {}

    fn on_uncaptured_error(&self, _: Arc<dyn wgpu::UncapturedErrorHandler>) {}

    fn push_error_scope(&self, filter: wgpu::ErrorFilter) -> u32 {
        let scopes = &mut *lock(&self.world.scopes);
        scopes.so_far += 1;
        scopes.open.push((scopes.so_far, filter, None));
        scopes.so_far
    }

    fn pop_error_scope(&self, scope: u32) -> Pin<Box<dyn PopErrorScopeFuture>> {
        let open = &mut lock(&self.world.scopes).open;
        let at = open.iter().position(|(number, ..)| *number == scope);
        Box::pin(ready(at.and_then(|at| open.remove(at).2)))
    }

    #[allow(unsafe_code, reason = "wgpu declares the method so; its body is safe")]
    unsafe fn start_graphics_debugger_capture(&self) {
        panic!("the lane executor has no start_graphics_debugger_capture")
    }

    #[allow(unsafe_code, reason = "wgpu declares the method so; its body is safe")]
    unsafe fn stop_graphics_debugger_capture(&self) {
        panic!("the lane executor has no stop_graphics_debugger_capture")
    }

    fn poll(&self, wait: wgpu::wgt::PollType<u64>) -> Result<wgpu::PollStatus, wgpu::PollError> {
        // Work is done at `submit`, so every mapping is ready. A callback may map again, so the list is taken first.
        let pending = std::mem::take(&mut *lock(&self.world.pending));
        for pending in pending {
            (pending.0)(Ok(()));
        }
        match wait {
            wgpu::wgt::PollType::Wait { .. } => Ok(wgpu::PollStatus::WaitSucceeded),
            wgpu::wgt::PollType::Poll => Ok(wgpu::PollStatus::QueueEmpty),
        }
    }

    fn get_internal_counters(&self) -> wgpu::InternalCounters {
        wgpu::InternalCounters::default()
    }

    fn generate_allocator_report(&self) -> Option<wgpu::AllocatorReport> {
        None
    }

    fn destroy(&self) {}

    absent! {
        fn create_render_pipeline(&self, _: &wgpu::RenderPipelineDescriptor<'_>) -> DispatchRenderPipeline;
        fn create_mesh_pipeline(&self, _: &wgpu::MeshPipelineDescriptor<'_>) -> DispatchRenderPipeline;
        fn create_texture(&self, _: &wgpu::TextureDescriptor<'_>) -> DispatchTexture;
        fn create_external_texture(&self, _: &wgpu::ExternalTextureDescriptor<'_>, _: &[&wgpu::TextureView]) -> DispatchExternalTexture;
        fn create_blas(&self, _: &wgpu::CreateBlasDescriptor<'_>, _: wgpu::BlasGeometrySizeDescriptors) -> (Option<u64>, DispatchBlas);
        fn create_tlas(&self, _: &wgpu::CreateTlasDescriptor<'_>) -> DispatchTlas;
        fn create_sampler(&self, _: &wgpu::SamplerDescriptor<'_>) -> DispatchSampler;
        fn create_query_set(&self, _: &wgpu::QuerySetDescriptor<'_>) -> DispatchQuerySet;
        fn create_render_bundle_encoder(&self, _: &wgpu::RenderBundleEncoderDescriptor<'_>) -> DispatchRenderBundleEncoder;
    }
}
