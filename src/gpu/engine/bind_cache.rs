//! Caches uniforms by content and bind groups by buffers. A step of a known shape makes no new one; without the cache the host spends
//! longer on a small batch than the device.

#![allow(clippy::mutable_key_type, reason = "a buffer is compared and hashed by which it is, not by what it holds")]

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Most entries of a kind. A full cache is emptied.
const MOST: usize = 1024;

/// A whole buffer that will be gone soon, bound so that the cache does not hold it.
pub(crate) fn passing(buffer: &wgpu::Buffer) -> wgpu::BindingResource<'_> {
    let size = std::num::NonZeroU64::new(buffer.size());
    wgpu::BindingResource::Buffer(wgpu::BufferBinding { buffer, offset: 0, size })
}

/// A stage and the buffers it binds, whole.
type Bound = (&'static str, Vec<wgpu::Buffer>);

/// What a [`BindCache`] holds, and how often it had to make something to hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Uniforms held.
    pub uniforms: usize,
    /// Bind groups held.
    pub bind_groups: usize,
    /// Uniforms and bind groups made since the context was.
    pub made: u64,
}

#[derive(Debug, Default)]
struct Things {
    uniforms: HashMap<Vec<u8>, wgpu::Buffer>,
    groups: HashMap<Bound, wgpu::BindGroup>,
    made: u64,
}

/// Uniforms and bind groups that later calls use again.
#[derive(Debug, Default)]
pub(crate) struct BindCache {
    things: Mutex<Things>,
}

impl BindCache {
    fn lock(&self) -> MutexGuard<'_, Things> {
        // Whatever a panicking thread left is whole: entries are inserted in one go.
        self.things.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The uniform that holds `bytes`. It is never written again.
    pub(crate) fn uniform(&self, bytes: &[u8], make: impl FnOnce() -> wgpu::Buffer) -> wgpu::Buffer {
        if let Some(buffer) = self.lock().uniforms.get(bytes) {
            return buffer.clone();
        }
        let buffer = make();
        let things = &mut *self.lock();
        things.made += 1;
        if things.uniforms.len() >= MOST {
            things.uniforms.clear();
        }
        things.uniforms.insert(bytes.to_vec(), buffer.clone());
        buffer
    }

    /// The bind group of a stage. A binding with a stated size is a buffer of the caller's, or [`passing`]: such a bind group is not
    /// cached, since it would keep that buffer alive.
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
        let things = &mut *self.lock();
        things.made += 1;
        if things.groups.len() >= MOST {
            things.groups.clear();
        }
        things.groups.insert(key, group.clone());
        group
    }

    pub(crate) fn held(&self) -> Held {
        let things = self.lock();
        Held { uniforms: things.uniforms.len(), bind_groups: things.groups.len(), made: things.made }
    }

    /// Drops the bind groups, and with them the buffers that they keep alive.
    pub(crate) fn forget(&self) {
        self.lock().groups.clear();
    }
}
