//! What dispatches bind, before and after each. Only a context of `internals::capturing` keeps it.

use std::sync::{Arc, Mutex};

use crate::wgsl::{Access, Sizes};

/// A dispatch.
#[derive(Debug)]
pub struct Dispatch {
    /// The stage.
    pub kernel: &'static str,
    /// Its WGSL, whose entry point is `main`.
    pub text: String,
    /// What the text is composed for.
    pub sizes: Sizes,
    /// Workgroups in x and y.
    pub grid: [u32; 2],
    /// Access and name of each binding of group 0.
    pub bindings: Vec<(Access, String)>,
    /// The words of the bound ranges before the dispatch, then those after it.
    pub words: Vec<Vec<u32>>,
}

/// Dispatches, and the buffers into which the caller's commands copy their words, with the bytes.
pub(crate) type Capture = Arc<Mutex<Vec<(Dispatch, Vec<(wgpu::Buffer, u64)>)>>>;
