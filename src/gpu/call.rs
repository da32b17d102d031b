//! Recording: one compute pass, into which the stages put their dispatches.

use super::Context;
use crate::shader::Kernel;

/// How many workgroups a dispatch has.
pub(crate) enum Groups<'a> {
    /// Known to the host.
    Direct(u64),
    /// Found on the device: three words at this byte offset.
    Indirect(&'a wgpu::Buffer, u64),
}

impl Groups<'_> {
    /// Enough workgroups for `items`, `per_group` each.
    pub(crate) fn of(items: u32, per_group: u32) -> Self {
        Self::Direct(u64::from(items.div_ceil(per_group)))
    }

    /// For a stage that loops over what the device has counted: enough for `most` items, `per_group` each, and no more than
    /// [`Context::grid`].
    pub(crate) fn capped(context: &Context, most: u32, per_group: u32) -> Self {
        Self::Direct(u64::from(most.div_ceil(per_group).min(context.grid())))
    }
}

pub(crate) struct Call<'a> {
    pub(crate) context: &'a Context,
    pass: wgpu::ComputePass<'a>,
}

impl<'a> Call<'a> {
    pub(crate) fn begin(context: &'a Context, encoder: &'a mut wgpu::CommandEncoder, label: &str) -> Self {
        let pass =
            encoder.begin_compute_pass(&wgpu::ComputePassDescriptor { label: Some(label), timestamp_writes: None });
        Self { context, pass }
    }

    pub(crate) fn dispatch(&mut self, kernel: &Kernel, bindings: &[wgpu::BindingResource<'_>], groups: &Groups<'_>) {
        debug_assert_eq!(bindings.len(), kernel.bindings.len(), "{}", kernel.name);
        if matches!(groups, Groups::Direct(0)) {
            return;
        }
        let pipeline = self.context.pipeline(kernel.name);
        let entries: Vec<_> = (0u32..)
            .zip(bindings)
            .map(|(binding, resource)| wgpu::BindGroupEntry { binding, resource: resource.clone() })
            .collect();
        let bind_group = self.context.device().create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some(kernel.name),
            layout: &pipeline.layout,
            entries: &entries,
        });
        self.pass.set_pipeline(&pipeline.pipeline);
        self.pass.set_bind_group(0, &bind_group, &[]);
        match *groups {
            Groups::Direct(count) => {
                let x = count.min(u64::from(self.context.max_groups()));
                self.pass.dispatch_workgroups(x as u32, count.div_ceil(x) as u32, 1);
            }
            Groups::Indirect(buffer, offset) => self.pass.dispatch_workgroups_indirect(buffer, offset),
        }
    }
}
