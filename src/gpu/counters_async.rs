//! Counters of a GPU group, read back without waiting: each call returns the newest copy that has arrived, and starts another.

use std::sync::{Arc, Mutex};

use crate::{error::Error, gpu::engine::context::Context, host::locked};

/// The newest copy of a buffer that has arrived on the host. At most one more copy is under way.
#[derive(Debug, Default)]
pub(crate) struct LatestCopy(Arc<Mutex<Copies>>);

#[derive(Debug, Default)]
struct Copies {
    under_way: bool,
    newest: Option<Vec<u32>>,
    /// The target of the last copy, for the next one.
    target: Option<Target>,
}

#[derive(Debug)]
struct Target {
    buffer: wgpu::Buffer,
    mapped: bool,
}

impl LatestCopy {
    /// Returns the first `bytes` of `tables` that arrived last, and requests newer ones unless a request is under way.
    pub(crate) fn ask(&self, context: &Context, tables: &wgpu::Buffer, bytes: u64) -> Result<Option<Vec<u32>>, Error> {
        context.guarded(|| {
            context.poll()?;
            if !std::mem::replace(&mut locked(&self.0).under_way, true) {
                self.copy(context, tables, bytes);
            }
            Ok(locked(&self.0).newest.clone())
        })
    }

    fn copy(&self, context: &Context, tables: &wgpu::Buffer, bytes: u64) {
        let target = match locked(&self.0).target.take() {
            Some(Target { buffer, mapped }) if buffer.size() == bytes => {
                if mapped {
                    buffer.unmap();
                }
                buffer
            }
            _ => context.download_buffer(bytes),
        };
        let mut encoder = context.new_encoder();
        encoder.copy_buffer_to_buffer(tables, 0, &target, 0, bytes);
        let (copies, mapped) = (self.0.clone(), target.clone());
        encoder.map_buffer_on_submit(&target, wgpu::MapMode::Read, .., move |result| {
            // Without a mapping the device is lost; the next call that waits returns that error.
            let found = result.ok().and_then(|()| mapped.get_mapped_range(..bytes).ok());
            let found = found.map(|range| bytemuck::pod_collect_to_vec(&range));
            let mut copies = locked(&copies);
            copies.under_way = false;
            copies.target = Some(Target { buffer: mapped, mapped: found.is_some() });
            copies.newest = found.or(copies.newest.take());
        });
        context.submit(encoder);
    }
}
