//! Encodes a call: one compute pass, to which the stages add their dispatches. Only a timeline on a device that cannot stamp inside passes
//! makes a pass for each dispatch.

#[cfg(feature = "internals")]
use crate::{gpu::engine::capture::Dispatch, host::locked};
use crate::{
    gpu::engine::{
        context::Context,
        timeline::{Resolution, Timeline},
    },
    wgsl as shader,
    wgsl::{Kernel, Sizes},
};

/// The number of workgroups of a dispatch.
pub(crate) enum Groups {
    /// Exactly this number.
    Direct(u64),
    /// At most this number, and at most [`Context::grid`]. The stage loops over a list whose length only the device knows. An empty list
    /// costs a small launch, and the host never waits for the length.
    Capped(u64),
    /// As `Capped`, on a card with at most four times as many: for a stage whose list is rarely empty and whose turns are long. The last turn of its
    /// workgroups is then a small part of all turns.
    Wide(u64),
}

impl Groups {
    /// Enough workgroups for `items`, `per_group` each.
    pub(crate) fn of(items: u32, per_group: u32) -> Self {
        Self::Direct(u64::from(items.div_ceil(per_group)))
    }

    /// Workgroups of a stage that loops: enough for `most` items, `per_group` each.
    pub(crate) fn capped(most: u32, per_group: u32) -> Self {
        Self::Capped(u64::from(most.div_ceil(per_group)))
    }
}

/// What a stage can bind.
pub(crate) trait Bindable {
    fn binding(&self) -> wgpu::BindingResource<'_>;
}

impl Bindable for wgpu::Buffer {
    fn binding(&self) -> wgpu::BindingResource<'_> {
        self.as_entire_binding()
    }
}

impl Bindable for wgpu::BindingResource<'_> {
    fn binding(&self) -> wgpu::BindingResource<'_> {
        self.clone()
    }
}

impl<B: Bindable> Bindable for &B {
    fn binding(&self) -> wgpu::BindingResource<'_> {
        (**self).binding()
    }
}

/// Buffers by the names under which stages bind them.
pub(crate) trait Named {
    fn named(&self, name: &str) -> Option<wgpu::BindingResource<'_>>;
}

impl<B: Bindable> Named for (&str, B) {
    fn named(&self, name: &str) -> Option<wgpu::BindingResource<'_>> {
        (self.0 == name).then(|| self.1.binding())
    }
}

/// The first that has the name.
impl Named for &[&dyn Named] {
    fn named(&self, name: &str) -> Option<wgpu::BindingResource<'_>> {
        self.iter().find_map(|from| from.named(name))
    }
}

/// Gives fields of a type the names under which stages bind them: their own, or the one behind `as`.
macro_rules! named {
    ($type:ty: $($field:ident $(as $name:literal)?),+) => {
        impl $crate::gpu::engine::call::Named for $type {
            fn named(&self, name: &str) -> Option<wgpu::BindingResource<'_>> {
                $(if name == named!($field $($name)?) {
                    return Some($crate::gpu::engine::call::Bindable::binding(&self.$field));
                })+
                None
            }
        }
    };
    ($field:ident) => { stringify!($field) };
    ($field:ident $name:literal) => { $name };
}
pub(crate) use named;

/// The buffers of a stage in the order of its bindings.
///
/// # Panics
/// If none has a name. Tests run every stage.
pub(crate) fn bind<'b>(kernel: &Kernel, from: &'b [&dyn Named]) -> Vec<wgpu::BindingResource<'b>> {
    let find = |name| from.iter().find_map(|from| from.named(name));
    let bind =
        |&(_, name)| find(name).unwrap_or_else(|| panic!("stage {}: no buffer has the name {name}", kernel.name));
    kernel.bindings.iter().map(bind).collect()
}

pub(crate) struct Call<'a> {
    pub(crate) context: &'a Context,
    timeline: Option<&'a Timeline>,
    encoding: Encoding<'a>,
}

/// The pass, or the passes, that take the dispatches.
#[allow(clippy::large_enum_variant, reason = "each call has one, on the stack; most calls use the large variant")]
enum Encoding<'a> {
    Pass(wgpu::ComputePass<'a>),
    Passes(&'a mut wgpu::CommandEncoder),
}

impl<'a> Call<'a> {
    pub(crate) fn begin(context: &'a Context, encoder: &'a mut wgpu::CommandEncoder, label: &str) -> Self {
        let timeline = context.timeline().filter(|timeline| timeline.listens());
        if timeline.is_some_and(|timeline| timeline.resolution() == Resolution::Pass) {
            return Self { context, timeline, encoding: Encoding::Passes(encoder) };
        }
        #[cfg(feature = "internals")]
        if context.capture.is_some() {
            return Self { context, timeline, encoding: Encoding::Passes(encoder) };
        }
        let mut pass =
            encoder.begin_compute_pass(&wgpu::ComputePassDescriptor { label: Some(label), timestamp_writes: None });
        if let Some(timeline) = timeline {
            timeline.open(&mut pass);
        }
        Self { context, timeline, encoding: Encoding::Pass(pass) }
    }

    /// Encodes a dispatch of a stage that binds buffers of `from`.
    pub(crate) fn run(&mut self, kernel: &Kernel, from: &[&dyn Named], groups: &Groups) {
        self.launch(kernel, Sizes::ONE, &bind(kernel, from), groups);
    }

    /// Encodes a dispatch of the pipeline for `sizes`, with all its bindings.
    pub(crate) fn launch(
        &mut self,
        kernel: &Kernel,
        sizes: Sizes,
        bindings: &[wgpu::BindingResource<'_>],
        groups: &Groups,
    ) {
        debug_assert_eq!(bindings.len(), shader::bindings(kernel, sizes).len(), "{}", kernel.name);
        let count = match *groups {
            Groups::Direct(count) => count,
            Groups::Capped(count) => count.min(u64::from(self.context.grid())),
            Groups::Wide(count) => count.min(u64::from(self.context.wide_grid())),
        };
        if count == 0 {
            return;
        }
        let pipeline = self.context.pipeline(kernel, sizes);
        let bind_group = self.context.bind_group(kernel.name, &pipeline.layout, bindings);
        let x = count.min(u64::from(self.context.max_groups()));
        let [x, y] = [x as u32, count.div_ceil(x) as u32];
        let launch = |pass: &mut wgpu::ComputePass<'_>| {
            // A frame debugger then shows the stages by name.
            pass.push_debug_group(kernel.name);
            pass.set_pipeline(&pipeline.pipeline);
            pass.set_bind_group(0, &bind_group, &[]);
            pass.dispatch_workgroups(x, y, 1);
            pass.pop_debug_group();
        };
        match &mut self.encoding {
            Encoding::Pass(pass) => {
                launch(pass);
                if let Some(timeline) = self.timeline {
                    timeline.after(pass, kernel.name);
                }
            }
            Encoding::Passes(encoder) => {
                let timestamp_writes = self.timeline.and_then(|timeline| timeline.alone(kernel.name));
                let descriptor = wgpu::ComputePassDescriptor { label: Some(kernel.name), timestamp_writes };
                #[cfg(feature = "internals")]
                let before = self.context.copies(encoder, bindings);
                launch(&mut encoder.begin_compute_pass(&descriptor));
                #[cfg(feature = "internals")]
                if let Some(capture) = &self.context.capture {
                    let copies = [before, self.context.copies(encoder, bindings)].concat();
                    let (bindings, (sizes, text)) = (shader::bindings(kernel, sizes), self.context.text(kernel, sizes));
                    let (kernel, grid, words) = (kernel.name, [x, y], Vec::new());
                    let dispatch = Dispatch { kernel, text, sizes, grid, bindings, words };
                    locked(capture).push((dispatch, copies));
                }
            }
        }
    }
}

#[cfg(feature = "internals")]
impl Context {
    /// Encodes copies of what a dispatch binds, if it is captured.
    fn copies(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        bindings: &[wgpu::BindingResource<'_>],
    ) -> Vec<(wgpu::Buffer, u64)> {
        let copy = |resource: &wgpu::BindingResource<'_>| {
            let wgpu::BindingResource::Buffer(bound) = resource else { return None };
            let bytes = bound.size.map_or(bound.buffer.size() - bound.offset, std::num::NonZero::get);
            let to = self.download_buffer(bytes);
            encoder.copy_buffer_to_buffer(bound.buffer, bound.offset, &to, 0, bytes);
            Some((to, bytes))
        };
        bindings.iter().filter(|_| self.capture.is_some()).filter_map(copy).collect()
    }
}
