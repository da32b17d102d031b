//! Buffers, and their mapping into the host's memory: a view is a copy that goes back when it is dropped.

use std::{
    ops::Range,
    sync::{Arc, Mutex},
};

use wgpu::custom::{BufferInterface, BufferMapCallback, BufferMappedRangeInterface, DispatchBufferMappedRange};

use super::{
    code::lock,
    world::{Pending, World},
};

/// The words of a buffer.
///
/// A dispatch shares those that it only reads, because contexts share their uniforms, and takes the others out.
pub(super) type Words = Arc<Mutex<Arc<Vec<u32>>>>;

#[derive(Debug)]
pub(super) struct LaneBuffer {
    pub(super) words: Words,
    pub(super) bytes: u64,
    pub(super) world: Arc<World>,
}

impl LaneBuffer {
    pub(super) fn new(world: &Arc<World>, bytes: u64) -> Self {
        let words = vec![0; bytes.div_ceil(4) as usize];
        Self { words: Arc::new(Mutex::new(Arc::new(words))), bytes, world: world.clone() }
    }
}

/// The words of a range of bytes.
pub(super) fn words_of(range: Range<u64>) -> Range<usize> {
    assert!(
        range.start.is_multiple_of(4) && range.end.is_multiple_of(4),
        "wanted a range of whole words, found bytes {range:?}"
    );
    (range.start / 4) as usize..(range.end / 4) as usize
}

impl BufferInterface for LaneBuffer {
    fn map_async(&self, _mode: wgpu::MapMode, _range: Range<u64>, callback: BufferMapCallback) {
        lock(&self.world.pending).push(Pending(callback));
    }

    fn get_mapped_range(&self, range: Range<u64>) -> Result<DispatchBufferMappedRange, wgpu::MapRangeError> {
        let at = words_of(range.start..range.end.next_multiple_of(4));
        let copy = lock(&self.words)[at.clone()].to_vec();
        let bytes = (range.end - range.start) as usize;
        Ok(DispatchBufferMappedRange::custom(LaneView {
            words: self.words.clone(),
            at: at.start,
            copy,
            bytes,
            written: false,
        }))
    }

    fn unmap(&self) {}

    fn destroy(&self) {}
}

/// A mapped range.
#[derive(Debug)]
struct LaneView {
    words: Words,
    at: usize,
    copy: Vec<u32>,
    bytes: usize,
    written: bool,
}

impl BufferMappedRangeInterface for LaneView {
    fn len(&self) -> usize {
        self.bytes
    }

    #[allow(unsafe_code, reason = "wgpu declares the method so; its body is safe")]
    unsafe fn read_slice(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.copy)[..self.bytes]
    }

    #[allow(unsafe_code, reason = "wgpu declares the method so; its body is safe")]
    unsafe fn write_slice(&mut self) -> wgpu::WriteOnly<'_, [u8]> {
        self.written = true;
        wgpu::WriteOnly::from_mut(&mut bytemuck::cast_slice_mut(&mut self.copy)[..self.bytes])
    }
}

impl Drop for LaneView {
    fn drop(&mut self) {
        if self.written {
            let mut words = lock(&self.words);
            Arc::make_mut(&mut words)[self.at..self.at + self.copy.len()].copy_from_slice(&self.copy);
        }
    }
}
