//! Command encoders and compute passes: they only record.

use std::sync::{Arc, Mutex};

use wgpu::custom::{
    CommandBufferInterface, CommandEncoderInterface, ComputePassInterface, DispatchBindGroup, DispatchBuffer,
    DispatchCommandBuffer, DispatchComputePass, DispatchComputePipeline, DispatchQuerySet, DispatchRenderPass,
    DispatchTexture, DispatchTextureView,
};
use wgpu::wgt::{BufferTransition, TextureTransition};

use super::{
    buffer::{LaneBuffer, Words, words_of},
    code::{Code, lock},
    kernel::{Entry, LaneBindGroup, LanePipeline},
};
use crate::program::number;

/// A recorded command.
#[derive(Clone, Debug)]
pub(super) enum Command {
    Copy { from: Words, first: usize, to: Words, at: usize, count: usize },
    Clear { words: Words, first: usize, count: usize },
    Dispatch { code: Arc<Code>, entries: Arc<[Entry]>, groups: [u32; 3] },
}

/// What wgpu hands over one by one.
type Each<'i, T> = &'i mut (dyn Iterator<Item = T> + 'i);

type Commands = Arc<Mutex<Vec<Command>>>;

pub(super) fn buffer(buffer: &DispatchBuffer) -> &LaneBuffer {
    buffer.as_custom().unwrap_or_else(|| panic!("wanted a buffer of the lane executor, found one of another device"))
}

#[derive(Debug, Default)]
pub(super) struct LaneEncoder {
    commands: Commands,
}

#[derive(Debug)]
pub(super) struct LaneCommands {
    pub(super) commands: Commands,
}

impl CommandBufferInterface for LaneCommands {}

impl CommandEncoderInterface for LaneEncoder {
    fn copy_buffer_to_buffer(
        &self,
        source: &DispatchBuffer,
        source_offset: u64,
        destination: &DispatchBuffer,
        destination_offset: u64,
        copy_size: Option<u64>,
    ) {
        let (from, to) = (buffer(source), buffer(destination));
        let size = copy_size.unwrap_or(from.bytes - source_offset);
        let first = words_of(source_offset..source_offset + size);
        let at = words_of(destination_offset..destination_offset + size);
        assert!(source_offset + size <= from.bytes && destination_offset + size <= to.bytes, "a copy beyond a buffer");
        lock(&self.commands).push(Command::Copy {
            from: from.words.clone(),
            first: first.start,
            to: to.words.clone(),
            at: at.start,
            count: at.len(),
        });
    }

    fn begin_compute_pass(&self, descriptor: &wgpu::ComputePassDescriptor<'_>) -> DispatchComputePass {
        assert!(descriptor.timestamp_writes.is_none(), "the lane executor has no timestamps");
        DispatchComputePass::custom(LanePass { commands: self.commands.clone(), code: None, groups: Vec::new() })
    }

    fn finish(&mut self) -> DispatchCommandBuffer {
        DispatchCommandBuffer::custom(LaneCommands { commands: std::mem::take(&mut self.commands) })
    }

    fn clear_buffer(&self, target: &DispatchBuffer, offset: u64, size: Option<u64>) {
        let target = buffer(target);
        let range = words_of(offset..offset + size.unwrap_or(target.bytes - offset));
        lock(&self.commands).push(Command::Clear {
            words: target.words.clone(),
            first: range.start,
            count: range.len(),
        });
    }

    fn insert_debug_marker(&self, _: &str) {}

    fn push_debug_group(&self, _: &str) {}

    fn pop_debug_group(&self) {}

    absent! {
        fn copy_buffer_to_texture(&self, _: wgpu::TexelCopyBufferInfo<'_>, _: wgpu::TexelCopyTextureInfo<'_>, _: wgpu::Extent3d);
        fn copy_texture_to_buffer(&self, _: wgpu::TexelCopyTextureInfo<'_>, _: wgpu::TexelCopyBufferInfo<'_>, _: wgpu::Extent3d);
        fn copy_texture_to_texture(&self, _: wgpu::TexelCopyTextureInfo<'_>, _: wgpu::TexelCopyTextureInfo<'_>, _: wgpu::Extent3d);
        fn begin_render_pass(&self, _: &wgpu::RenderPassDescriptor<'_>) -> DispatchRenderPass;
        fn clear_texture(&self, _: &DispatchTexture, _: &wgpu::ImageSubresourceRange);
        fn write_timestamp(&self, _: &DispatchQuerySet, _: u32);
        fn resolve_query_set(&self, _: &DispatchQuerySet, _: u32, _: u32, _: &DispatchBuffer, _: u64);
        fn mark_acceleration_structures_built(&self, _: Each<'_, &wgpu::Blas>, _: Each<'_, &wgpu::Tlas>);
        fn build_acceleration_structures(&self, _: Each<'_, &wgpu::BlasBuildEntry<'_>>, _: Each<'_, &wgpu::Tlas>);
        fn transition_resources(&mut self, _: Each<'_, BufferTransition<&DispatchBuffer>>, _: Each<'_, TextureTransition<&DispatchTexture>>);
    }
}

#[derive(Debug)]
struct LanePass {
    commands: Commands,
    code: Option<Arc<Code>>,
    /// The entries of each bind group.
    groups: Vec<Option<Arc<[Entry]>>>,
}

impl Drop for LanePass {
    fn drop(&mut self) {}
}

impl ComputePassInterface for LanePass {
    fn set_pipeline(&mut self, pipeline: &DispatchComputePipeline) {
        let pipeline: &LanePipeline = pipeline.as_custom().unwrap_or_else(|| panic!("a pipeline of another device"));
        self.code = Some(pipeline.code.clone());
    }

    fn set_bind_group(&mut self, index: u32, group: Option<&DispatchBindGroup>, offsets: &[u32]) {
        assert!(offsets.is_empty(), "the lane executor has no dynamic offsets");
        let group: Option<&LaneBindGroup> = group.and_then(|group| group.as_custom());
        self.groups.resize(self.groups.len().max(index as usize + 1), None);
        self.groups[index as usize] = group.map(|group| group.entries.clone());
    }

    fn insert_debug_marker(&mut self, _: &str) {}

    fn push_debug_group(&mut self, _: &str) {}

    fn pop_debug_group(&mut self) {}

    fn dispatch_workgroups(&mut self, x: u32, y: u32, z: u32) {
        let code = self.code.clone().unwrap_or_else(|| panic!("a dispatch without a pipeline"));
        let entries = match &self.groups[..] {
            [] => panic!("a dispatch without a bind group"),
            [Some(only)] => only.clone(),
            several => (0..)
                .zip(several)
                .flat_map(|(group, entries)| {
                    entries.iter().flat_map(|entries| entries.iter()).map(move |one| (group, one))
                })
                .map(|(group, one)| Entry { binding: number(group, one.binding), ..one.clone() })
                .collect(),
        };
        lock(&self.commands).push(Command::Dispatch { code, entries, groups: [x, y, z] });
    }

    absent! {
        fn set_immediates(&mut self, _: u32, _: &[u8]);
        fn write_timestamp(&mut self, _: &DispatchQuerySet, _: u32);
        fn begin_pipeline_statistics_query(&mut self, _: &DispatchQuerySet, _: u32);
        fn end_pipeline_statistics_query(&mut self);
        fn dispatch_workgroups_indirect(&mut self, _: &DispatchBuffer, _: u64);
        fn transition_resources(&mut self, _: Each<'_, BufferTransition<&DispatchBuffer>>, _: Each<'_, TextureTransition<&DispatchTextureView>>);
    }
}
