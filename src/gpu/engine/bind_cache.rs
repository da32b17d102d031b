//! What calls make and others can use again: uniforms by their content, bind groups by what they bind. A step of a known shape
//! makes none of them anew; without this the host spends longer on a small batch than the device.

#![allow(clippy::mutable_key_type, reason = "a buffer is compared and hashed by which it is, not by what it holds")]

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Most things kept of a kind. Beyond that all go: whoever changes something every step (a learning rate) starts afresh at times.
const MOST: usize = 1024;

/// A whole buffer that will be gone soon, bound so that nothing of it is kept.
pub(crate) fn passing(buffer: &wgpu::Buffer) -> wgpu::BindingResource<'_> {
    let size = std::num::NonZeroU64::new(buffer.size());
    wgpu::BindingResource::Buffer(wgpu::BufferBinding { buffer, offset: 0, size })
}

/// A stage and the buffers it binds, whole.
type Bound = (&'static str, Vec<wgpu::Buffer>);

#[derive(Debug, Default)]
struct Things {
    uniforms: HashMap<Vec<u8>, wgpu::Buffer>,
    groups: HashMap<Bound, wgpu::BindGroup>,
}

#[derive(Debug, Default)]
pub(crate) struct Kept {
    things: Mutex<Things>,
}

impl Kept {
    fn lock(&self) -> MutexGuard<'_, Things> {
        // Whatever a panicking thread left is whole: entries are inserted in one go.
        self.things.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The uniform that holds `bytes`; nobody writes to it once it is made.
    pub(crate) fn uniform(&self, bytes: &[u8], make: impl FnOnce() -> wgpu::Buffer) -> wgpu::Buffer {
        if let Some(buffer) = self.lock().uniforms.get(bytes) {
            return buffer.clone();
        }
        let buffer = make();
        let uniforms = &mut self.lock().uniforms;
        if uniforms.len() >= MOST {
            uniforms.clear();
        }
        uniforms.insert(bytes.to_vec(), buffer.clone());
        buffer
    }

    /// The bind group of a stage. One with a binding of stated size is the caller's, or [`passing`]: it is not kept, for it would
    /// keep that buffer alive.
    pub(crate) fn bind_group(
        &self,
        stage: &'static str,
        bindings: &[wgpu::BindingResource<'_>],
        make: impl FnOnce() -> wgpu::BindGroup,
    ) -> wgpu::BindGroup {
        let whole = |resource: &wgpu::BindingResource<'_>| match resource {
            wgpu::BindingResource::Buffer(wgpu::BufferBinding { buffer, offset: 0, size: None }) => {
                Some((*buffer).clone())
            }
            _ => None,
        };
        let Some(buffers) = bindings.iter().map(whole).collect::<Option<Vec<_>>>() else { return make() };
        let key = (stage, buffers);
        if let Some(group) = self.lock().groups.get(&key) {
            return group.clone();
        }
        let group = make();
        let groups = &mut self.lock().groups;
        if groups.len() >= MOST {
            groups.clear();
        }
        groups.insert(key, group.clone());
        group
    }

    /// Lets go of the bind groups, and so of the buffers they keep alive.
    pub(crate) fn forget(&self) {
        self.lock().groups.clear();
    }
}
