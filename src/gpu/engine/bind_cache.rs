//! Caches uniforms by content and bind groups by buffers. A step of a known shape creates none. Without the cache the host would spend more
//! time on a small batch than the device.

#![allow(clippy::mutable_key_type, reason = "a buffer is compared and hashed by its identity, not by its content")]

use std::{collections::HashMap, sync::Mutex};

use crate::host::locked;

/// Most entries of each kind. A full cache is emptied.
const MOST: usize = 1024;

/// Binds a whole buffer that is dropped soon, in a form that the cache does not keep.
pub(crate) fn passing(buffer: &wgpu::Buffer) -> wgpu::BindingResource<'_> {
    let size = std::num::NonZeroU64::new(buffer.size());
    wgpu::BindingResource::Buffer(wgpu::BufferBinding { buffer, offset: 0, size })
}

/// A stage, and the buffers that it binds, each from an offset to its end.
type Bound = (&'static str, Vec<(wgpu::Buffer, u64)>);

/// The numbers of entries that a [`BindCache`] holds and has made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Number of uniforms held.
    pub uniforms: usize,
    /// Number of bind groups held.
    pub bind_groups: usize,
    /// Number of uniforms and bind groups made since the context was created.
    pub made: u64,
}

#[derive(Debug, Default)]
struct Things {
    uniforms: HashMap<Vec<u8>, wgpu::Buffer>,
    groups: HashMap<Bound, wgpu::BindGroup>,
    made: u64,
}

/// Uniforms and bind groups, kept for later calls.
#[derive(Debug, Default)]
pub(crate) struct BindCache {
    things: Mutex<Things>,
}

impl BindCache {
    /// The uniform that holds `bytes`. It is never written again.
    pub(crate) fn uniform(&self, bytes: &[u8], make: impl FnOnce() -> wgpu::Buffer) -> wgpu::Buffer {
        if let Some(buffer) = locked(&self.things).uniforms.get(bytes) {
            return buffer.clone();
        }
        let buffer = make();
        let things = &mut *locked(&self.things);
        things.made += 1;
        if things.uniforms.len() >= MOST {
            things.uniforms.clear();
        }
        things.uniforms.insert(bytes.to_vec(), buffer.clone());
        buffer
    }

    /// The bind group of a stage. A binding with a stated size is a buffer of the caller, or comes from [`passing`]. A bind group with such
    /// a binding is not cached, because it would keep that buffer alive.
    pub(crate) fn bind_group(
        &self,
        stage: &'static str,
        bindings: &[wgpu::BindingResource<'_>],
        make: impl FnOnce() -> wgpu::BindGroup,
    ) -> wgpu::BindGroup {
        let own = |resource: &wgpu::BindingResource<'_>| match resource {
            wgpu::BindingResource::Buffer(wgpu::BufferBinding { buffer, offset, size: None }) => {
                Some(((*buffer).clone(), *offset))
            }
            _ => None,
        };
        let Some(buffers) = bindings.iter().map(own).collect::<Option<Vec<_>>>() else { return make() };
        let key = (stage, buffers);
        if let Some(group) = locked(&self.things).groups.get(&key) {
            return group.clone();
        }
        let group = make();
        let things = &mut *locked(&self.things);
        things.made += 1;
        if things.groups.len() >= MOST {
            things.groups.clear();
        }
        things.groups.insert(key, group.clone());
        group
    }

    pub(crate) fn held(&self) -> Held {
        let things = locked(&self.things);
        Held { uniforms: things.uniforms.len(), bind_groups: things.groups.len(), made: things.made }
    }

    /// Drops the bind groups, and with them the buffers that they keep alive.
    pub(crate) fn forget(&self) {
        locked(&self.things).groups.clear();
    }
}
