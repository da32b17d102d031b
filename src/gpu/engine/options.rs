//! Options for a context.

use crate::wgsl::{AddBody, LookupBody, RankBody};

/// Options for [`Context::with_options`](crate::Context::with_options). [`Context::new`](crate::Context::new) takes the defaults.
///
/// ```
/// use hotrow::ContextOptions;
/// let options = ContextOptions::default().trusted_shaders(true);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContextOptions {
    pub(crate) trusted: bool,
    pub(crate) rank: Option<RankBody>,
    pub(crate) add: Option<AddBody>,
    pub(crate) lookup: Option<LookupBody>,
    pub(crate) max_groups: Option<u32>,
    pub(crate) shared: bool,
    pub(crate) settled: bool,
    pub(crate) cache: Option<wgpu::PipelineCache>,
}

impl ContextOptions {
    /// Chooses shaders without wgpu's bounds checks (true), or with them (the default). With the checks a wrong index, for example on a device whose
    /// memory another program has spoiled, stays within its buffer. Without them each access costs less: the shaders keep their indices in
    /// bounds themselves, and the tests run both ways.
    #[must_use]
    pub fn trusted_shaders(self, trusted: bool) -> Self {
        Self { trusted, ..self }
    }

    /// Chooses the body that ranks the keys of a sort. A subgroup body is refused if subgroups may have another size.
    #[doc(hidden)]
    #[must_use]
    pub fn rank(self, rank: RankBody) -> Self {
        Self { rank: Some(rank), ..self }
    }

    /// Chooses the body that adds to floats in memory. [`AddBody::Native`] is refused if the device was created without it.
    #[must_use]
    #[allow(clippy::should_implement_trait, reason = "it chooses a body; nothing is added")]
    #[doc(hidden)]
    pub fn add(self, add: AddBody) -> Self {
        Self { add: Some(add), ..self }
    }

    /// Chooses the body that looks up rows. [`LookupBody::Lanes32`] is refused if subgroups may have another size.
    #[doc(hidden)]
    #[must_use]
    pub fn lookup(self, lookup: LookupBody) -> Self {
        Self { lookup: Some(lookup), ..self }
    }

    /// Limits the workgroups in x: a small value makes small tests reach limits that only large batches would reach.
    #[doc(hidden)]
    #[must_use]
    pub fn max_groups(self, max_groups: u32) -> Self {
        Self { max_groups: Some(max_groups), ..self }
    }

    /// Chooses pipelines that all groups share (true), or pipelines that only groups of the same kind share (the default): those with the same
    /// dim, precision, optimiser, state precision, rounding and pooling, that clip gradients or do not. A group's own pipelines have an eighth to
    /// a half of the instructions. Shared ones are compiled once, so a program with many groups of different kinds starts sooner. Pipelines live as long as
    /// the context.
    #[must_use]
    pub fn shared_pipelines(self, shared: bool) -> Self {
        Self { shared, ..self }
    }

    /// Takes the sums of DX12 on every backend, for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn settled_sums(self, settled: bool) -> Self {
        Self { settled, ..self }
    }

    /// Compiles pipelines with the caller's cache. On Vulkan a driver can put compiled pipelines there, and a later start of the program, with
    /// the bytes of [`wgpu::PipelineCache::get_data`], takes them from there.
    ///
    /// ```no_run
    /// # fn start(device: &hotrow::wgpu::Device, queue: &hotrow::wgpu::Queue) -> Result<(), hotrow::Error> {
    /// use hotrow::{Context, ContextOptions, wgpu};
    /// let data = std::fs::read("pipelines.bin").ok();
    /// let descriptor = wgpu::PipelineCacheDescriptor { label: None, data: data.as_deref(), fallback: true };
    /// // SAFETY: the bytes come from `get_data` of an earlier run, on the same adapter and driver.
    /// let cache = unsafe { device.create_pipeline_cache(&descriptor) };
    /// let context = Context::with_options(device, queue, &ContextOptions::default().pipeline_cache(&cache))?;
    /// // ... the groups are made ...
    /// if let Some(data) = cache.get_data() {
    ///     std::fs::write("pipelines.bin", data).ok();
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The cache must be of the context's device: [`Context::with_options`](crate::Context::with_options) refuses a cache of another device, and
    /// wgpu may panic where it belongs to another instance.
    #[must_use]
    pub fn pipeline_cache(self, cache: &wgpu::PipelineCache) -> Self {
        Self { cache: Some(cache.clone()), ..self }
    }
}
