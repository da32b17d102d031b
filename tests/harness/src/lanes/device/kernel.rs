//! Shader modules, layouts, bind groups and pipelines.

use std::{
    collections::{HashMap, HashSet},
    pin::Pin,
    sync::{Arc, Mutex, OnceLock},
};

use hotrow::{
    AddBody, LookupBody, RankBody,
    internals::{
        self,
        shader::{self, Bodies, Cut},
    },
};
use wgpu::custom::{
    BindGroupInterface, BindGroupLayoutInterface, ComputePipelineInterface, DispatchBindGroupLayout,
    PipelineLayoutInterface, ShaderCompilationInfoFuture, ShaderModuleInterface,
};

use super::{buffer::Words, lock};
use crate::lanes::{program::Program, source::Source};

/// A kernel's text and constants, and its code once a dispatch needs it.
#[derive(Debug)]
pub struct Code {
    pub name: String,
    pub text: String,
    pub constants: Vec<(String, f64)>,
    source: OnceLock<Source>,
    program: OnceLock<Program>,
    own: OnceLock<bool>,
}

impl Code {
    pub fn source(&self) -> &Source {
        self.source.get_or_init(|| {
            let constants: Vec<(&str, f64)> = self.constants.iter().map(|(name, value)| (&**name, *value)).collect();
            Source::new(&self.name, &self.text, &constants).unwrap_or_else(|error| panic!("{}: {error}", self.name))
        })
    }

    /// True for a text that the crate composes itself; false for one that a test has spoiled.
    pub fn own(&self) -> bool {
        *self.own.get_or_init(|| {
            let Some(kernel) = internals::kernels().iter().find(|kernel| kernel.name == self.name) else {
                return false;
            };
            // One line declares each further window, one each further shard.
            let number = |name: &str| {
                let declares = |line: &&str| {
                    let after = line.split_once(&format!("> {name}")).map(|(_, rest)| rest);
                    after.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
                };
                1 + self.text.lines().filter(declares).count() as u32
            };
            let (windows, shards) = (number("cache").max(number("window")), number("records"));
            let cuts: HashSet<Cut> = [(1, 1), (4, 1), (4, 4)]
                .map(|(width, item)| Cut { width, windows, shards, item }.of(kernel))
                .into_iter()
                .collect();
            let mut bodies = Vec::new();
            for rank in RankBody::ALL {
                for lookup in LookupBody::ALL {
                    for add in [AddBody::Exchange, AddBody::Native] {
                        bodies.extend(cuts.iter().map(|&cut| Bodies { rank, add, lookup, cut }));
                    }
                }
            }
            bodies.into_iter().any(|bodies| shader::compose(kernel, bodies) == self.text)
        })
    }

    pub fn program(&self) -> &Program {
        self.program.get_or_init(|| self.source().program())
    }
}

/// The code of a text; the same text is parsed once, whatever device asks for it.
pub(super) fn code(name: &str, text: &str, constants: &[(&str, f64)]) -> Arc<Code> {
    type Key = (String, Vec<(String, u64)>);
    static KNOWN: OnceLock<Mutex<HashMap<Key, Arc<Code>>>> = OnceLock::new();
    let bits = constants.iter().map(|&(name, value)| (name.to_owned(), value.to_bits())).collect();
    let mut known = lock(KNOWN.get_or_init(Mutex::default));
    let made = || {
        Arc::new(Code {
            name: name.to_owned(),
            text: text.to_owned(),
            constants: constants.iter().map(|&(name, value)| (name.to_owned(), value)).collect(),
            source: OnceLock::new(),
            program: OnceLock::new(),
            own: OnceLock::new(),
        })
    };
    known.entry((text.to_owned(), bits)).or_insert_with(made).clone()
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
