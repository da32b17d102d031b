//! A device made ready: every pipeline, once. Groups on the same device share it.

use std::{collections::HashMap, sync::Arc};

use crate::{
    Caps, Error, RankBody, gpu,
    shader::{self, Access},
};

pub(crate) struct Pipeline {
    pub(crate) layout: wgpu::BindGroupLayout,
    pub(crate) pipeline: wgpu::ComputePipeline,
}

struct Inner {
    device: wgpu::Device,
    queue: wgpu::Queue,
    caps: Caps,
    pipelines: HashMap<&'static str, Pipeline>,
    max_groups: u32,
}

/// Your device and queue, with every pipeline of the crate. Cheap to clone; groups on one device share it.
#[derive(Clone)]
pub struct Context {
    inner: Arc<Inner>,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("caps", &self.inner.caps).finish_non_exhaustive()
    }
}

/// Storage buffers the widest stage binds; WebGPU's default limit.
const STORAGE_BUFFERS: u32 = 8;

impl Context {
    /// Compiles the crate's shaders on `device`. Nothing global is installed on it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the device was created with less than WebGPU's default limits, or a shader is refused.
    pub fn new(device: &wgpu::Device, queue: &wgpu::Queue) -> Result<Self, Error> {
        let caps = Caps::of(device);
        let body = caps.choose_rank();
        Self::with_choices(device, queue, body, caps.max_groups)
    }

    /// As [`Context::new`] with the choices made by the caller: which body ranks a sort's keys, and the most workgroups a dispatch may
    /// have in x (small values make small tests cross what large batches cross).
    ///
    /// # Errors
    /// As [`Context::new`].
    pub fn with_choices(
        device: &wgpu::Device,
        queue: &wgpu::Queue,
        body: RankBody,
        max_groups: u32,
    ) -> Result<Self, Error> {
        Self::with_shaders(device, queue, max_groups, |kernel| shader::compose(kernel, body))
    }

    /// As [`Context::with_choices`] with each stage's text by the caller: a test runs here what the device itself could not.
    ///
    /// # Errors
    /// As [`Context::new`].
    #[doc(hidden)]
    pub fn with_shaders(
        device: &wgpu::Device,
        queue: &wgpu::Queue,
        max_groups: u32,
        text: impl Fn(&shader::Kernel) -> String,
    ) -> Result<Self, Error> {
        let caps = Caps::of(device);
        let limits = device.limits();
        let wanted = [
            ("storage buffers a stage", limits.max_storage_buffers_per_shader_stage, STORAGE_BUFFERS),
            ("invocations a workgroup", limits.max_compute_invocations_per_workgroup, 256),
            ("workgroup memory", limits.max_compute_workgroup_storage_size, 16384),
        ];
        for (what, found, least) in wanted {
            if found < least {
                return Err(Error::Unsupported {
                    what,
                    wanted: format!("at least {least}"),
                    found: found.to_string(),
                    remedy: "request the device with wgpu::Limits::default() or hotrow::requirements()",
                });
            }
        }
        let scope = device.push_error_scope(wgpu::ErrorFilter::Validation);
        let pipelines =
            gpu::KERNELS.iter().map(|kernel| (kernel.name, pipeline(device, kernel, text(kernel)))).collect();
        if let Some(error) = pollster::block_on(scope.pop()) {
            return Err(Error::Unsupported {
                what: "shaders",
                wanted: "a device that compiles them".into(),
                found: error.to_string(),
                remedy: "report the message with `hotrow info`",
            });
        }
        let max_groups = max_groups.clamp(1, caps.max_groups);
        let (device, queue) = (device.clone(), queue.clone());
        Ok(Self { inner: Arc::new(Inner { device, queue, caps, pipelines, max_groups }) })
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &wgpu::Device {
        &self.inner.device
    }

    /// Its queue.
    #[must_use]
    pub fn queue(&self) -> &wgpu::Queue {
        &self.inner.queue
    }

    /// What the device can do.
    #[must_use]
    pub fn caps(&self) -> &Caps {
        &self.inner.caps
    }

    pub(crate) fn max_groups(&self) -> u32 {
        self.inner.max_groups
    }

    /// Most workgroups of a dispatch whose work is counted on the device: enough to fill any GPU some times over, few enough
    /// that a dispatch with nothing to do is over at once. Where `max_groups` is narrowed this is too, so that small inputs loop.
    pub(crate) fn grid(&self) -> u32 {
        self.inner.max_groups.saturating_mul(4).min(2048)
    }

    pub(crate) fn pipeline(&self, name: &str) -> &Pipeline {
        &self.inner.pipelines[name]
    }

    /// Does `work` and turns what wgpu objects to, a lost device above all, into an error: the caller's handler need not see it.
    pub(crate) fn guarded<T>(&self, work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        let scope = self.inner.device.push_error_scope(wgpu::ErrorFilter::Validation);
        let done = work();
        match pollster::block_on(scope.pop()) {
            Some(error) if done.is_ok() => Err(Error::Device { reason: error.to_string() }),
            _ => done,
        }
    }

    /// A storage buffer of `bytes`, rounded up to 16.
    pub(crate) fn buffer(
        &self,
        what: &'static str,
        bytes: u64,
        usage: wgpu::BufferUsages,
    ) -> Result<wgpu::Buffer, Error> {
        let size = bytes.max(16).next_multiple_of(16);
        let limit = self.inner.caps.choose_shard_bytes();
        if size > limit {
            let remedy = "make the batch, or the cache, smaller";
            return Err(Error::TooLarge { what, wanted: bytes, limit, remedy });
        }
        let device = &self.inner.device;
        let validation = device.push_error_scope(wgpu::ErrorFilter::Validation);
        let memory = device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let label = format!("hotrow.{what}");
        let usage = usage | wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
        let buffer = device.create_buffer(&wgpu::BufferDescriptor {
            label: Some(&label),
            size,
            usage,
            mapped_at_creation: false,
        });
        let failed = [pollster::block_on(memory.pop()), pollster::block_on(validation.pop())];
        match failed.into_iter().flatten().next() {
            None => Ok(buffer),
            Some(wgpu::Error::OutOfMemory { .. }) => Err(Error::OutOfMemory { what, bytes: size }),
            Some(error) => Err(Error::Device { reason: error.to_string() }),
        }
    }

    /// A small uniform buffer holding `value`, new for each call: a caller may record several before submitting.
    pub(crate) fn uniform<T: bytemuck::Pod>(&self, value: &T) -> wgpu::Buffer {
        let bytes = bytemuck::bytes_of(value);
        let buffer = self.inner.device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("hotrow.uniform"),
            size: bytes.len() as u64,
            usage: wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_SRC,
            mapped_at_creation: true,
        });
        // On a lost device there is nothing to write to; the first use of the buffer says so.
        if let Ok(mut view) = buffer.get_mapped_range_mut(..) {
            view.slice(..).copy_from_slice(bytes);
        }
        buffer.unmap();
        buffer
    }
}

fn pipeline(device: &wgpu::Device, kernel: &shader::Kernel, wgsl: String) -> Pipeline {
    let label = format!("hotrow.{}", kernel.name);
    let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
        label: Some(&label),
        source: wgpu::ShaderSource::Wgsl(wgsl.into()),
    });
    let entries: Vec<_> = (0u32..)
        .zip(kernel.bindings)
        .map(|(binding, (access, _))| wgpu::BindGroupLayoutEntry {
            binding,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer {
                ty: match access {
                    Access::Uniform => wgpu::BufferBindingType::Uniform,
                    Access::Read => wgpu::BufferBindingType::Storage { read_only: true },
                    Access::ReadWrite => wgpu::BufferBindingType::Storage { read_only: false },
                },
                has_dynamic_offset: false,
                min_binding_size: None,
            },
            count: None,
        })
        .collect();
    let layout =
        device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: Some(&label), entries: &entries });
    let pipeline_layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
        label: Some(&label),
        bind_group_layouts: &[Some(&layout)],
        immediate_size: 0,
    });
    let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: Some(&label),
        layout: Some(&pipeline_layout),
        module: &module,
        entry_point: Some("main"),
        compilation_options: wgpu::PipelineCompilationOptions {
            // Every stage writes its workgroup memory before it reads it.
            zero_initialize_workgroup_memory: false,
            ..Default::default()
        },
        cache: None,
    });
    Pipeline { layout, pipeline }
}
