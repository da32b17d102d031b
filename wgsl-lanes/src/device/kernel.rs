//! Shader modules, layouts, bind groups and pipelines.

use std::{pin::Pin, sync::Arc};

use wgpu::custom::{
    BindGroupInterface, BindGroupLayoutInterface, ComputePipelineInterface, DispatchBindGroupLayout,
    PipelineLayoutInterface, ShaderCompilationInfoFuture, ShaderModuleInterface,
};

use super::{buffer::Words, code::Code};

#[derive(Debug)]
pub(super) struct LaneModule {
    pub(super) text: String,
}

impl ShaderModuleInterface for LaneModule {
    fn get_compilation_info(&self) -> Pin<Box<dyn ShaderCompilationInfoFuture>> {
        Box::pin(std::future::ready(wgpu::CompilationInfo { messages: Vec::new() }))
    }
}

#[derive(Debug)]
pub(super) struct LaneLayout;

impl BindGroupLayoutInterface for LaneLayout {}

impl PipelineLayoutInterface for LaneLayout {}

/// A bound range of a buffer, in words.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) binding: u32,
    pub(super) words: Words,
    pub(super) first: usize,
    pub(super) count: usize,
}

#[derive(Debug)]
pub(super) struct LaneBindGroup {
    pub(super) entries: Arc<[Entry]>,
}

impl BindGroupInterface for LaneBindGroup {}

#[derive(Debug)]
pub(super) struct LanePipeline {
    pub(super) code: Arc<Code>,
}

impl ComputePipelineInterface for LanePipeline {
    fn get_bind_group_layout(&self, _index: u32) -> DispatchBindGroupLayout {
        DispatchBindGroupLayout::custom(LaneLayout)
    }
}
