//! Shader modules, layouts, bind groups and pipelines.

use std::{
    collections::HashMap,
    pin::Pin,
    sync::{Arc, Mutex, OnceLock},
};

use wgpu::custom::{
    BindGroupInterface, BindGroupLayoutInterface, ComputePipelineInterface, DispatchBindGroupLayout,
    PipelineLayoutInterface, ShaderCompilationInfoFuture, ShaderModuleInterface,
};

use super::{buffer::Words, lock};
use crate::{program::Program, source::Source};

/// A kernel's text, entry point and constants, and its code once a dispatch needs it.
#[derive(Debug)]
pub(crate) struct Code {
    pub(crate) name: String,
    pub(super) text: String,
    entry: Option<String>,
    constants: Vec<(String, f64)>,
    made: OnceLock<(Source, Program)>,
}

impl Code {
    pub(crate) fn made(&self) -> &(Source, Program) {
        self.made.get_or_init(|| {
            let constants: Vec<(&str, f64)> = self.constants.iter().map(|(name, value)| (&**name, *value)).collect();
            let source = Source::new(&self.name, self.entry.as_deref(), &self.text, &constants);
            let source = source.unwrap_or_else(|error| panic!("{}: {error}", self.name));
            let program = source.program();
            (source, program)
        })
    }
}

/// The code of a kernel; the same text is parsed once, whatever device asks for it.
pub(super) fn code(name: &str, entry: Option<&str>, text: &str, constants: &[(&str, f64)]) -> Arc<Code> {
    type Key = (String, Option<String>, String, Vec<(String, u64)>);
    static KNOWN: OnceLock<Mutex<HashMap<Key, Arc<Code>>>> = OnceLock::new();
    let (name, entry, text) = (name.to_owned(), entry.map(str::to_owned), text.to_owned());
    let bits = constants.iter().map(|&(name, value)| (name.to_owned(), value.to_bits())).collect();
    let mut known = lock(KNOWN.get_or_init(Mutex::default));
    let made = known.entry((name.clone(), entry.clone(), text.clone(), bits)).or_insert_with(|| {
        let constants = constants.iter().map(|&(name, value)| (name.to_owned(), value)).collect();
        Arc::new(Code { name, text, entry, constants, made: OnceLock::new() })
    });
    made.clone()
}

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
