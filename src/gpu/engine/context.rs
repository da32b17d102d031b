//! A device with every pipeline of the crate, each built once. Groups on the same device share it.

use std::{
    collections::HashMap,
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::Poll,
};

use crate::{
    error::Error,
    gpu::engine::{
        bind_cache::{BindCache, Held},
        caps::{Caps, STORAGE_BUFFERS},
        faults::Faults,
        lost::{Moments, failed, is_lost},
        options::ContextOptions,
        timeline::Timeline,
        wait::CALLS_WAIT,
    },
    host::{locked, trusted},
    memory::buffer_bytes,
    wgsl::{self, Access, AddBody, Bodies, Constants, Kernel, LookupBody, RankBody, Sizes, SumBody},
};

pub(crate) struct Pipeline {
    /// The part of a group's sizes that the stage depends on.
    sizes: Sizes,
    pub(crate) layout: wgpu::BindGroupLayout,
    pub(crate) pipeline: wgpu::ComputePipeline,
}

/// The text of a stage for a choice of bodies.
type Text = dyn Fn(&Kernel, Bodies) -> String + Send + Sync;

/// The source of a context's shader modules.
enum Recipe {
    /// The crate's own text, with or without wgpu's checks.
    Own { rank: RankBody, add: AddBody, lookup: LookupBody, sum: SumBody, trusted: bool },
    /// A test's own text; never trusted.
    Foreign(Box<Text>),
}

impl Recipe {
    fn module(
        &self,
        device: &wgpu::Device,
        kernel: &Kernel,
        sizes: Sizes,
        own_rule: Option<&str>,
    ) -> wgpu::ShaderModule {
        let mut text = match self {
            &Self::Own { rank, add, lookup, sum, trusted } => {
                let bodies = Bodies { rank, add, lookup, sum, sizes };
                // A browser's compiler wants the line; naga's refuses it.
                if !CALLS_WAIT && (rank != RankBody::Portable || lookup == LookupBody::Lanes32) {
                    format!("enable subgroups;\n{}", wgsl::compose(kernel, bodies))
                } else if trusted && own_rule.is_none() {
                    return trusted::shader_module(device, wgsl::composed(kernel, bodies));
                } else {
                    wgsl::compose(kernel, bodies)
                }
            }
            Self::Foreign(text) => text(kernel, Bodies::PLAIN.sizes(sizes)),
        };
        if let Some(own_rule) = own_rule {
            text = text.replace(wgsl::OWN_RULE, own_rule);
        }
        device.create_shader_module(wgpu::ShaderModuleDescriptor {
            label: Some(kernel.name),
            source: wgpu::ShaderSource::Wgsl(text.into()),
        })
    }
}

struct Inner {
    device: wgpu::Device,
    queue: wgpu::Queue,
    caps: Caps,
    recipe: Recipe,
    /// Whether groups of every kind share pipelines.
    shared: bool,
    /// Whether pipelines are built at their first use: a test's context without stages.
    lazy: bool,
    /// The caller's cache of compiled pipelines.
    cache: Option<wgpu::PipelineCache>,
    /// The pipelines built so far, each under its own sizes and under all sizes that it was asked for.
    pipelines: Mutex<HashMap<(&'static str, Sizes), Arc<Pipeline>>>,
    /// The texts of own rules, by the hashes of the rules.
    own_rules: Mutex<HashMap<u64, Arc<str>>>,
    max_groups: u32,
    bind_cache: BindCache,
    /// Buffers, bind groups and pipelines made so far.
    made: AtomicU64,
    moments: Moments,
    faults: Faults,
}

/// The caller's device and queue, with every pipeline of the crate. Cheap to clone; groups on one device share it.
///
/// Example: [`Group`](crate::Group), and [`ContextOptions`](crate::ContextOptions).
#[derive(Clone)]
pub struct Context {
    inner: Arc<Inner>,
    pub(crate) timeline: Option<Timeline>,
    #[cfg(feature = "internals")]
    pub(crate) capture: Option<crate::gpu::engine::capture::Capture>,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("caps", &self.inner.caps).finish_non_exhaustive()
    }
}

impl Context {
    /// Creates a context for `kernels` with the caller's options.
    pub(crate) fn with_kernels(
        device: &wgpu::Device,
        queue: &wgpu::Queue,
        kernels: &'static [&'static Kernel],
        options: &ContextOptions,
    ) -> Result<Self, Error> {
        let caps = Caps::of(device);
        let rank = options.rank.unwrap_or_else(|| caps.choose_rank());
        let lookup = options.lookup.unwrap_or_else(|| caps.choose_lookup());
        let runs = |body_needs: &[(u32, u32)]| caps.subgroup.is_some_and(|sizes| body_needs.contains(&sizes));
        let refused = |what, wanted: &str, remedy| Error::Unsupported {
            what,
            wanted: wanted.into(),
            found: match caps.subgroup {
                Some((least, most)) => format!("subgroups of {least} to {most} lanes"),
                None => "no subgroups".into(),
            },
            remedy,
        };
        let of_32 = "a device all of whose subgroups have 32 lanes";
        if rank == RankBody::Subgroup32 && !runs(&[(32, 32)]) {
            let remedy = "leave ContextOptions::rank alone, or take RankBody::Portable";
            return Err(refused("the subgroup-32 body", of_32, remedy));
        }
        if rank == RankBody::Subgroup64 && !runs(&[(32, 32), (32, 64), (64, 64)]) {
            let remedy = "leave ContextOptions::rank alone, or take RankBody::Portable";
            return Err(refused("the subgroup-64 body", "a device all of whose subgroups have 32 or 64 lanes", remedy));
        }
        if lookup == LookupBody::Lanes32 && !runs(&[(32, 32)]) {
            let remedy = "leave ContextOptions::lookup alone, or take LookupBody::Lanes8";
            return Err(refused("the subgroup-32 look-up", of_32, remedy));
        }
        let add = options.add.unwrap_or_else(|| caps.choose_add());
        if add == AddBody::Native && caps.choose_add() != add {
            return Err(Error::Unsupported {
                what: "the native addition of floats",
                wanted: "a device with SHADER_FLOAT32_ATOMIC".into(),
                found: "one created without it".into(),
                remedy: "leave ContextOptions::add alone, or take AddBody::Exchange",
            });
        }
        let settled = options.settled || caps.backend == wgpu::Backend::Dx12;
        let sum = if settled { SumBody::Settled } else { SumBody::Plain };
        let names = [rank.name(), lookup.name(), add.name()];
        log::debug!("bodies to rank, look up and add: {}; trusted shaders: {}", names.join(", "), options.trusted);
        Self::with_recipe(
            device,
            queue,
            kernels,
            options,
            Recipe::Own { rank, add, lookup, sum, trusted: options.trusted },
        )
    }

    /// Creates a context for `kernels` whose shader texts come from the caller: a test emulates bodies that the device cannot run.
    pub(crate) fn with_texts(
        device: &wgpu::Device,
        queue: &wgpu::Queue,
        kernels: &'static [&'static Kernel],
        max_groups: u32,
        text: impl Fn(&Kernel, Bodies) -> String + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        let options = ContextOptions::default().max_groups(max_groups).shared_pipelines(true);
        Self::with_recipe(device, queue, kernels, &options, Recipe::Foreign(Box::new(text)))
    }

    fn with_recipe(
        device: &wgpu::Device,
        queue: &wgpu::Queue,
        kernels: &'static [&'static Kernel],
        options: &ContextOptions,
        recipe: Recipe,
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
        let max_groups = options.max_groups.unwrap_or(caps.max_groups).clamp(1, caps.max_groups);
        let (device, queue) = (device.clone(), queue.clone());
        let (shared, lazy, cache) = (options.shared, kernels.is_empty(), options.cache.clone());
        let (pipelines, bind_cache, made, moments, faults) = <_>::default();
        let inner = Inner {
            device,
            queue,
            caps,
            recipe,
            shared,
            lazy,
            cache,
            pipelines,
            own_rules: Mutex::default(),
            max_groups,
            bind_cache,
            made,
            moments,
            faults,
        };
        let context = Self {
            inner: Arc::new(inner),
            timeline: None,
            #[cfg(feature = "internals")]
            capture: None,
        };
        context.build(kernels.iter().filter(|kernel| !wgsl::has_sizes(kernel)).map(|kernel| (*kernel, Sizes::ONE)))?;
        Ok(context)
    }

    /// The same context with its dispatches timed by `timeline`. Groups made with it are timed; groups made with the original are not.
    #[must_use]
    pub fn timed(&self, timeline: &Timeline) -> Self {
        let mut timed = self.clone();
        timed.timeline = Some(timeline.clone());
        timed
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &wgpu::Device {
        &self.inner.device
    }

    /// The device's queue.
    #[must_use]
    pub fn queue(&self) -> &wgpu::Queue {
        &self.inner.queue
    }

    /// Whether the shaders were compiled without wgpu's bounds checks ([`ContextOptions::trusted_shaders`]).
    #[must_use]
    pub fn trusted_shaders(&self) -> bool {
        matches!(self.inner.recipe, Recipe::Own { trusted: true, .. })
    }

    /// The device's abilities.
    #[must_use]
    pub fn caps(&self) -> &Caps {
        &self.inner.caps
    }

    pub(crate) fn timeline(&self) -> Option<&Timeline> {
        self.timeline.as_ref()
    }

    pub(crate) fn max_groups(&self) -> u32 {
        self.inner.max_groups
    }

    /// Most workgroups of a dispatch whose work is counted on the device. A smaller `max_groups` lowers it, too, so that small inputs make
    /// workgroups loop.
    pub(crate) fn grid(&self) -> u32 {
        self.inner.max_groups.saturating_mul(4).min(self.inner.caps.choose_grid())
    }

    /// Most workgroups of a stage that asks for [`Groups::Wide`](crate::gpu::engine::call::Groups::Wide).
    pub(crate) fn wide_grid(&self) -> u32 {
        if self.inner.caps.is_hardware() { 4 * self.grid() } else { self.grid() }
    }

    /// Builds the pipelines of `kernels` for each of `all_sizes`, unless they exist.
    pub(crate) fn prepare(&self, kernels: &[&Kernel], all_sizes: &[Sizes]) -> Result<(), Error> {
        self.build(all_sizes.iter().flat_map(|&sizes| kernels.iter().map(move |&kernel| (kernel, sizes))))
    }

    /// Builds pipelines.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with the device's first complaint.
    pub(crate) fn build<'k>(&self, wanted: impl Iterator<Item = (&'k Kernel, Sizes)>) -> Result<(), Error> {
        let wanted: Vec<_> = wanted.collect();
        let built = wanted.iter().try_for_each(|&(kernel, sizes)| {
            // What a driver's compiler says is an internal error; what wgpu finds itself is one of validation.
            let [internal, validation] = [wgpu::ErrorFilter::Internal, wgpu::ErrorFilter::Validation]
                .map(|filter| self.inner.device.push_error_scope(filter));
            self.made(kernel, sizes);
            let valid = self.judge(validation, self.uncompiled(kernel.name));
            self.judge(internal, self.uncompiled(kernel.name)).and(valid)
        });
        if built.is_err() {
            // Those of this call alone: other groups go on with theirs.
            let mut built = locked(&self.inner.pipelines);
            let refused = |name, own| {
                wanted.iter().any(|&(kernel, sizes)| kernel.name == name && self.sizes(sizes).of(kernel) == own)
            };
            built.retain(|&(name, _), pipeline| !refused(name, pipeline.sizes));
        }
        built
    }

    /// Names why a pipeline of this stage was not built.
    fn uncompiled(&self, kernel: &'static str) -> impl FnOnce(wgpu::Error) -> Error + Send + 'static {
        let (device, has_cache) = (self.device().clone(), self.inner.cache.is_some());
        move |error| {
            if is_lost(&device) {
                return failed(&device, &error);
            }
            if has_cache && error.to_string().contains("PipelineCache") {
                return Error::Unsupported {
                    what: "ContextOptions::pipeline_cache",
                    wanted: "a cache of the context's device".into(),
                    found: error.to_string(),
                    remedy: "make the cache with the device that the context is made with",
                };
            }
            Error::Unsupported {
                what: kernel,
                wanted: "a driver that compiles this kernel".into(),
                found: format!("one that says: {}", error.to_string().split_whitespace().collect::<Vec<_>>().join(" ")),
                remedy: "update the driver (on Windows, put dxcompiler.dll beside the program), or take another adapter; `hotrow info` lists them",
            }
        }
    }

    /// The pipeline of a stage for `sizes`, which [`prepare`](Self::prepare) has built: nothing is compiled while a call is encoded.
    pub(crate) fn pipeline(&self, kernel: &Kernel, sizes: Sizes) -> Arc<Pipeline> {
        let has = |sizes| locked(&self.inner.pipelines).get(&(kernel.name, sizes)).cloned();
        let sizes = self.sizes(sizes);
        has(sizes).unwrap_or_else(|| {
            let prepared = self.inner.lazy || has(sizes.of(kernel)).is_some();
            debug_assert!(prepared, "{}: no call has prepared the pipeline for {sizes:?}", kernel.name);
            self.made(kernel, sizes)
        })
    }

    /// What a stage's pipeline for `sizes` depends on, and its text, without an own rule's.
    #[cfg(feature = "internals")]
    pub(crate) fn text(&self, kernel: &Kernel, sizes: Sizes) -> (Sizes, String) {
        let sizes = self.sizes(sizes).of(kernel);
        let text = match &self.inner.recipe {
            &Recipe::Own { rank, add, lookup, sum, .. } => {
                wgsl::compose(kernel, Bodies { rank, add, lookup, sum, sizes })
            }
            Recipe::Foreign(text) => text(kernel, Bodies::PLAIN.sizes(sizes)),
        };
        (sizes, text)
    }

    /// Keeps the text of an own rule for the pipelines of its groups.
    pub(crate) fn keep_rule(&self, hash: u64, text: &str) {
        locked(&self.inner.own_rules).entry(hash).or_insert_with(|| text.into());
    }

    /// `sizes`, or its part that groups of every kind share.
    fn sizes(&self, sizes: Sizes) -> Sizes {
        if self.inner.shared { Sizes { constants: Constants::NONE, ..sizes } } else { sizes }
    }

    /// The pipeline of a stage for `sizes`, built unless it exists. Other threads go on encoding meanwhile.
    fn made(&self, kernel: &Kernel, sizes: Sizes) -> Arc<Pipeline> {
        let Inner { device, recipe, cache, pipelines, made, own_rules, .. } = &*self.inner;
        let (sizes, own) = (self.sizes(sizes), self.sizes(sizes).of(kernel));
        let known = locked(pipelines).get(&(kernel.name, own)).cloned();
        let pipeline = known.unwrap_or_else(|| {
            made.fetch_add(1, Relaxed);
            let rule = locked(own_rules).get(&own.own_rule).cloned();
            let module = recipe.module(device, kernel, own, rule.as_deref());
            Arc::new(pipeline(device, (kernel, own), &module, cache.as_ref()))
        });
        let mut built = locked(pipelines);
        let pipeline = built.entry((kernel.name, own)).or_insert(pipeline).clone();
        built.insert((kernel.name, sizes), pipeline.clone());
        pipeline
    }

    /// Does `work`, and returns errors of wgpu, above all a lost device, as its error, so that the caller's error handler does not see
    /// them.
    pub(crate) fn guarded<T>(&self, work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        self.check()?;
        let scope = self.inner.device.push_error_scope(wgpu::ErrorFilter::Validation);
        let done = work();
        let judged = self.judge(scope, self.refused());
        done.and_then(|done| judged.map(|()| done)).map_err(|error| self.or_lost(error))
    }

    /// As [`guarded`](Self::guarded), for work that waits: each poll has an error scope of its own, so none is held while it waits.
    pub(crate) async fn guard<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let mut work = pin!(work);
        std::future::poll_fn(|cx| {
            // An error of wgpu ends the work, which may wait for an answer that never comes.
            let polled = self.guarded(|| match work.as_mut().poll(cx) {
                Poll::Ready(done) => done.map(Some),
                Poll::Pending => Ok(None),
            });
            match polled {
                Ok(None) => Poll::Pending,
                Ok(Some(done)) => Poll::Ready(Ok(done)),
                Err(error) => Poll::Ready(Err(error)),
            }
        })
        .await
    }

    /// Reports an error that wgpu found after an earlier call on this context had returned, once. Only a browser says so late whether an
    /// allocation or a command has failed; elsewhere a call returns its own errors. Calls of groups on this context report it, too.
    ///
    /// # Errors
    /// The errors of the earlier call: [`Error::OutOfMemory`], [`Error::Device`], [`Error::Unsupported`] for shaders.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn check(&self) -> Result<(), Error> {
        self.inner.faults.check()
    }

    /// As [`check`](Self::check), once everything is known about the calls before it. Await it after a call that allocates, such as
    /// [`Group::filled`](crate::Group::filled), to learn in a browser whether it has succeeded.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub async fn check_async(&self) -> Result<(), Error> {
        self.inner.faults.settled().await
    }

    /// Names what wgpu refuses.
    fn refused(&self) -> impl FnOnce(wgpu::Error) -> Error + Send + 'static {
        let device = self.device().clone();
        move |error| failed(&device, &error)
    }

    /// The loss of the device, if it is lost, in place of another error: the call that finds a loss breaks the order of the calls after it.
    pub(crate) fn or_lost(&self, error: Error) -> Error {
        let other = !matches!(error, Error::Device { .. });
        if other && is_lost(self.device()) { self.failed(&error) } else { error }
    }

    /// Returns the loss of the device, for calls of which wgpu does not tell: those that only write buffers or wait. `found` says what came of them.
    pub(crate) fn check_lost(&self, found: &str) -> Result<(), Error> {
        if is_lost(self.device()) { Err(self.failed(&found)) } else { Ok(()) }
    }

    /// Ends an error scope, and returns its error as `named`.
    pub(crate) fn judge(
        &self,
        scope: wgpu::ErrorScopeGuard,
        named: impl FnOnce(wgpu::Error) -> Error + Send + 'static,
    ) -> Result<(), Error> {
        self.inner.faults.judge(scope, named)
    }

    /// A storage buffer of `bytes`, rounded up to 16.
    pub(crate) fn buffer(
        &self,
        what: &'static str,
        bytes: u64,
        usage: wgpu::BufferUsages,
    ) -> Result<wgpu::Buffer, Error> {
        let size = buffer_bytes(bytes);
        let limit = self.inner.caps.choose_piece_bytes();
        if size > limit {
            let remedy = "make the batch, or the cache, smaller";
            return Err(Error::TooLarge { what, wanted: bytes, limit, remedy });
        }
        let device = &self.inner.device;
        let validation = device.push_error_scope(wgpu::ErrorFilter::Validation);
        let memory = device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let label = format!("hotrow.{what}");
        let usage = usage | wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
        let buffer =
            self.new_buffer(&wgpu::BufferDescriptor { label: Some(&label), size, usage, mapped_at_creation: false });
        let memory = self.judge(memory, move |_| Error::OutOfMemory { what, bytes: size });
        let valid = self.judge(validation, self.refused());
        memory.and(valid).map(|()| buffer)
    }

    /// Delivers what the device has finished. It does not wait.
    pub(crate) fn poll(&self) -> Result<(), Error> {
        let polled = self.device().poll(wgpu::PollType::Poll);
        polled.map(drop).map_err(|error| self.failed(&error))
    }

    pub(crate) fn new_encoder(&self) -> wgpu::CommandEncoder {
        self.device().create_command_encoder(&wgpu::CommandEncoderDescriptor { label: Some("hotrow") })
    }

    /// A buffer that the host can map. One for writing is mapped from the start.
    pub(crate) fn host_buffer(&self, size: u64, usage: wgpu::BufferUsages) -> Result<wgpu::Buffer, Error> {
        let limit = self.inner.caps.buffer_bytes;
        if size > limit {
            let remedy = "make the batch smaller";
            return Err(Error::TooLarge { what: "a transfer", wanted: size, limit, remedy });
        }
        let device = &self.inner.device;
        let memory = device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let buffer = self.new_buffer(&wgpu::BufferDescriptor {
            label: Some("hotrow.transfer"),
            size,
            usage,
            mapped_at_creation: usage.contains(wgpu::BufferUsages::MAP_WRITE),
        });
        self.judge(memory, move |_| Error::OutOfMemory { what: "a transfer", bytes: size }).map(|()| buffer)
    }

    /// A small uniform buffer with `value`. It is never written again, because a caller may record several calls before a submission.
    pub(crate) fn uniform<T: bytemuck::Pod>(&self, value: &T) -> wgpu::Buffer {
        let bytes = bytemuck::bytes_of(value);
        self.inner.bind_cache.uniform(bytes, || self.new_uniform(bytes))
    }

    /// A stage's bind group, cached if it has no buffer of the caller.
    pub(crate) fn bind_group(
        &self,
        stage: &'static str,
        layout: &wgpu::BindGroupLayout,
        bindings: &[wgpu::BindingResource<'_>],
    ) -> wgpu::BindGroup {
        self.inner.bind_cache.bind_group(stage, bindings, || {
            let entries: Vec<_> = (0u32..)
                .zip(bindings)
                .map(|(binding, resource)| wgpu::BindGroupEntry { binding, resource: resource.clone() })
                .collect();
            let descriptor = wgpu::BindGroupDescriptor { label: Some(stage), layout, entries: &entries };
            self.new_bind_group(&descriptor)
        })
    }

    /// Every buffer of the crate is made here.
    pub(crate) fn new_buffer(&self, descriptor: &wgpu::BufferDescriptor<'_>) -> wgpu::Buffer {
        self.inner.made.fetch_add(1, Relaxed);
        self.inner.device.create_buffer(descriptor)
    }

    /// Every submission of the crate is made here.
    pub(crate) fn submit(&self, encoder: impl Into<Option<wgpu::CommandEncoder>>) -> wgpu::SubmissionIndex {
        self.moments().submit(self.device());
        self.queue().submit(encoder.into().map(wgpu::CommandEncoder::finish))
    }

    /// The submissions and maps of the context.
    pub(crate) fn moments(&self) -> &Moments {
        &self.inner.moments
    }

    /// What wgpu has found, as an error that says whether the device is lost.
    pub(crate) fn failed(&self, found: &impl std::fmt::Display) -> Error {
        failed(self.device(), found)
    }

    /// Every bind group of the crate is made here.
    pub(crate) fn new_bind_group(&self, descriptor: &wgpu::BindGroupDescriptor<'_>) -> wgpu::BindGroup {
        self.inner.made.fetch_add(1, Relaxed);
        self.inner.device.create_bind_group(descriptor)
    }

    /// The number of buffers, bind groups and pipelines made so far.
    pub(crate) fn objects_made(&self) -> u64 {
        self.inner.made.load(Relaxed)
    }

    /// The number of pipelines built so far.
    pub(crate) fn pipelines_built(&self) -> usize {
        locked(&self.inner.pipelines).iter().filter(|((_, sizes), pipeline)| pipeline.sizes == *sizes).count()
    }

    /// The numbers of uniforms and bind groups that the cache holds and has made.
    pub(crate) fn held_bindings(&self) -> Held {
        self.inner.bind_cache.held()
    }

    /// Drops the cached bind groups, so that buffers no longer in use are freed.
    pub(crate) fn forget_bindings(&self) {
        self.inner.bind_cache.forget();
    }

    pub(crate) fn new_uniform(&self, bytes: &[u8]) -> wgpu::Buffer {
        let buffer = self.new_buffer(&wgpu::BufferDescriptor {
            label: Some("hotrow.uniform"),
            size: bytes.len() as u64,
            usage: wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_SRC,
            mapped_at_creation: true,
        });
        // A buffer of a lost device cannot be written; its first use returns the error.
        if let Ok(mut view) = buffer.get_mapped_range_mut(..) {
            view.slice(..).copy_from_slice(bytes);
        }
        buffer.unmap();
        buffer
    }
}

fn pipeline(
    device: &wgpu::Device,
    (kernel, sizes): (&Kernel, Sizes),
    module: &wgpu::ShaderModule,
    cache: Option<&wgpu::PipelineCache>,
) -> Pipeline {
    let label = format!("hotrow.{}", kernel.name);
    let bindings = wgsl::bindings(kernel, sizes);
    let entries: Vec<_> = (0u32..)
        .zip(&bindings)
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
        module,
        entry_point: Some("main"),
        compilation_options: wgpu::PipelineCompilationOptions {
            // Every stage writes its workgroup memory before it reads it.
            zero_initialize_workgroup_memory: false,
            ..Default::default()
        },
        cache,
    });
    Pipeline { sizes, layout, pipeline }
}

impl Timeline {
    /// A timeline on the context's device.
    #[must_use]
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn new(context: &Context) -> Self {
        Self::on(context.device(), context.queue())
    }
}
