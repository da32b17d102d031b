//! The abilities of a device as plain data, and the choices that the crate bases on them.
//!
//! A [`Caps`] holds facts; the `choose_*` functions hold decisions. No decision looks at a vendor.

use crate::{
    config::Placement,
    error::Error,
    table::layout::Layout,
    wgsl::{AddBody, LookupBody, RankBody},
};

/// A snapshot of a device's features, limits and adapter.
///
/// ```
/// use hotrow::{GroupConfig, adapter, internals::Layout};
///
/// # fn main() -> Result<(), hotrow::Error> {
/// let Ok(context) = adapter::open_best() else { return Ok(()) };
/// let caps = context.caps();
/// // A table larger than a binding is cut into pieces.
/// let layout = Layout::new(&GroupConfig::new(&[1_000_000], 64), caps.choose_piece_bytes())?;
/// assert!(layout.pieces >= 1 && caps.binding_bytes >= 1 << 20);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caps {
    /// Adapter name, for messages.
    pub name: String,
    /// wgpu backend.
    pub backend: wgpu::Backend,
    /// The kind of device.
    pub device_type: wgpu::DeviceType,
    /// Smallest and largest subgroup, if subgroup operations are enabled.
    pub subgroup: Option<(u32, u32)>,
    /// Whether shaders can read and write host memory that the host has mapped.
    pub mappable: bool,
    /// Whether shaders can add to floats in memory atomically.
    pub float_atomics: bool,
    /// Whether passes can be timed on the device.
    pub timestamps: bool,
    /// Most bytes of a storage binding.
    pub binding_bytes: u64,
    /// Most bytes of a buffer.
    pub buffer_bytes: u64,
    /// Most storage buffers that a stage can bind.
    pub storage_buffers: u32,
    /// Most buffers of any kind that a stage can bind.
    pub stage_buffers: u32,
    /// Most workgroups of a dispatch in one dimension.
    pub max_groups: u32,
    /// Alignment of a storage binding's offset, in bytes.
    pub offset_alignment: u32,
}

/// Number of bytes that shaders can address: they count 4-byte words in 32 bits.
const ADDRESSABLE: u64 = (1 << 34) - 256;

/// Number of storage buffers of the widest stage, the first window of the cache included; WebGPU's default limit.
pub(crate) const STORAGE_BUFFERS: u32 = 8;

/// Most storage buffers of a stage that a device is requested with: enough for a cache of 50 GiB if a binding has 2.
const MOST_STORAGE_BUFFERS: u32 = 32;

/// Number of uniform buffers of a stage beside them.
const UNIFORM_BUFFERS: u32 = 3;

impl Caps {
    /// The abilities that `device` was created with.
    #[doc(hidden)]
    #[must_use]
    pub fn of(device: &wgpu::Device) -> Self {
        Self::from_parts(&device.adapter_info(), device.features(), &device.limits())
    }

    /// The abilities from their parts, so that tests need no device.
    #[doc(hidden)]
    #[must_use]
    pub fn from_parts(info: &wgpu::AdapterInfo, features: wgpu::Features, limits: &wgpu::Limits) -> Self {
        Self {
            name: info.name.clone(),
            backend: info.backend,
            device_type: info.device_type,
            subgroup: features
                .contains(wgpu::Features::SUBGROUP)
                .then_some((info.subgroup_min_size, info.subgroup_max_size)),
            mappable: features.contains(wgpu::Features::MAPPABLE_PRIMARY_BUFFERS),
            float_atomics: features.contains(wgpu::Features::SHADER_FLOAT32_ATOMIC),
            timestamps: features.contains(wgpu::Features::TIMESTAMP_QUERY),
            binding_bytes: limits.max_storage_buffer_binding_size.min(ADDRESSABLE) & !255,
            buffer_bytes: limits.max_buffer_size.min(ADDRESSABLE) & !255,
            storage_buffers: limits.max_storage_buffers_per_shader_stage,
            stage_buffers: limits.max_buffers_and_acceleration_structures_per_shader_stage,
            max_groups: limits.max_compute_workgroups_per_dimension,
            offset_alignment: limits.min_storage_buffer_offset_alignment,
        }
    }

    /// Chooses the body that ranks keys: a ballot body needs subgroups of exactly 32 lanes, or of 32 or 64. wgpu cannot pin the size, so
    /// smallest and largest size decide.
    #[doc(hidden)]
    #[must_use]
    pub fn choose_rank(&self) -> RankBody {
        match self.subgroup {
            Some((32, 32)) => RankBody::Subgroup32,
            Some((32 | 64, 64)) => RankBody::Subgroup64,
            _ => RankBody::Portable,
        }
    }

    /// Chooses the body that looks up rows: by ballot where every subgroup has exactly 32 lanes, else with 8 lanes a row; with one lane on a
    /// driver that runs on a CPU, which gains nothing from lanes that read neighbouring words.
    #[doc(hidden)]
    #[must_use]
    pub fn choose_lookup(&self) -> LookupBody {
        match (self.subgroup, self.device_type) {
            (_, wgpu::DeviceType::Cpu) => LookupBody::Lane1,
            (Some((32, 32)), _) => LookupBody::Lanes32,
            _ => LookupBody::Lanes8,
        }
    }

    /// Chooses native addition if the device has it and was created with it.
    #[doc(hidden)]
    #[must_use]
    pub fn choose_add(&self) -> AddBody {
        if self.float_atomics { AddBody::Native } else { AddBody::Exchange }
    }

    /// Most bytes of a piece of a table.
    #[doc(hidden)]
    #[must_use]
    pub fn choose_piece_bytes(&self) -> u64 {
        self.binding_bytes.min(self.buffer_bytes)
    }

    /// Most windows of a cache: one, and one more for each storage buffer that a stage can bind beyond the default limit.
    #[doc(hidden)]
    #[must_use]
    pub fn choose_windows(&self) -> u32 {
        let bound = self.storage_buffers.min(self.stage_buffers.saturating_sub(UNIFORM_BUFFERS));
        bound.clamp(STORAGE_BUFFERS, MOST_STORAGE_BUFFERS) - STORAGE_BUFFERS + 1
    }

    /// Pieces of a table that a dispatch binds: one, and one more for each storage buffer that the windows of the cache leave. If these are
    /// not all pieces, every dispatch but the last has equally many. A driver that runs on a CPU gets at most four: it executes the branches of
    /// all pieces for every row.
    #[doc(hidden)]
    #[must_use]
    pub fn choose_pieces(&self, layout: &Layout) -> u32 {
        let most = if self.device_type == wgpu::DeviceType::Cpu { 4 } else { u32::MAX };
        let most = (self.choose_windows() + 1).saturating_sub(layout.windows()).clamp(1, most);
        layout.pieces.div_ceil(layout.pieces.div_ceil(most))
    }

    /// Checks that stages can bind the whole cache of `layout` at once.
    ///
    /// # Errors
    /// [`Error::TooLarge`] for a cache of more windows than [`choose_windows`](Self::choose_windows) allows.
    #[doc(hidden)]
    pub fn check_cache(&self, layout: &Layout) -> Result<(), Error> {
        let most = self.choose_windows();
        if layout.windows() <= most {
            return Ok(());
        }
        let bytes = |slots: u64| slots * layout.slot_bytes();
        Err(Error::TooLarge {
            what: "cache",
            wanted: bytes(u64::from(layout.slots())),
            limit: bytes(u64::from(most) * u64::from(layout.window_slots)),
            remedy: "make the cache smaller, or create the device with more storage buffers a stage (hotrow::requirements() asks for them)",
        })
    }

    /// Chooses the placement of a table that does not fit in the device's memory, if the caller does not, and gives the reason. Mapped is
    /// chosen only where device and host share their memory. Over a bus each row would cross in small pieces; that is for the caller to
    /// choose after a measurement.
    #[doc(hidden)]
    #[must_use]
    pub fn choose_host_placement(&self) -> (Placement, &'static str) {
        match self.device_type {
            _ if !self.mappable => (Placement::Staged, "the device was created without MAPPABLE_PRIMARY_BUFFERS"),
            wgpu::DeviceType::IntegratedGpu | wgpu::DeviceType::Cpu => {
                (Placement::Mapped, "device and host share their memory")
            }
            _ => (
                Placement::Staged,
                "shaders would reach a mapped table over the bus; ask for it if that is faster here",
            ),
        }
    }

    /// Most workgroups of a dispatch whose work is counted on the device: enough to fill any GPU several times over, and few enough that an
    /// empty dispatch ends at once. A software driver takes far longer to start a workgroup than to loop once more in one.
    #[doc(hidden)]
    #[must_use]
    pub fn choose_grid(&self) -> u32 {
        if self.device_type == wgpu::DeviceType::Cpu { 64 } else { 2048 }
    }

    /// True for a GPU; false for a software driver or an unknown device.
    #[must_use]
    pub fn is_hardware(&self) -> bool {
        is_hardware(self.backend, self.device_type)
    }
}

/// Whether an adapter is a GPU. A browser tells only which adapter is not.
pub(crate) fn is_hardware(backend: wgpu::Backend, device_type: wgpu::DeviceType) -> bool {
    match device_type {
        wgpu::DeviceType::DiscreteGpu | wgpu::DeviceType::IntegratedGpu | wgpu::DeviceType::VirtualGpu => true,
        wgpu::DeviceType::Other => backend == wgpu::Backend::BrowserWebGpu,
        wgpu::DeviceType::Cpu => false,
    }
}

/// `MAPPABLE_PRIMARY_BUFFERS`, except on a discrete GPU.
const fn mapped_unasked(kind: wgpu::DeviceType) -> wgpu::Features {
    match kind {
        wgpu::DeviceType::DiscreteGpu => wgpu::Features::empty(),
        _ => wgpu::Features::MAPPABLE_PRIMARY_BUFFERS,
    }
}

/// The device that hotrow asks `adapter` for: the features that the adapter has of those that hotrow uses (none is needed), the adapter's
/// limits for buffers (at most 32 storage buffers a stage), and the defaults of all other limits. Merge them into your own `request_device`.
///
/// ```no_run
/// # async fn open(adapter: &hotrow::wgpu::Adapter) -> Result<(), Box<dyn std::error::Error>> {
/// let mut wanted = hotrow::requirements(adapter);
/// wanted.required_features |= hotrow::wgpu::Features::CLEAR_TEXTURE; // your own
/// let (device, queue) = adapter.request_device(&wanted).await?;
/// # Ok(())
/// # }
/// ```
///
/// `MAPPABLE_PRIMARY_BUFFERS`, which tables with [`Placement::Mapped`](crate::Placement::Mapped) need, is among them where GPU and host share
/// their memory. On a discrete GPU add it if the adapter has it: wgpu then logs a warning that such buffers may be slow; hotrow makes only the
/// records of mapped tables mappable in this way. `PIPELINE_CACHE` is for
/// [`ContextOptions::pipeline_cache`](crate::ContextOptions::pipeline_cache).
#[must_use]
pub fn requirements(adapter: &wgpu::Adapter) -> wgpu::DeviceDescriptor<'static> {
    let wished = wgpu::Features::SUBGROUP
        | wgpu::Features::PIPELINE_CACHE
        | wgpu::Features::SHADER_FLOAT32_ATOMIC
        | wgpu::Features::TIMESTAMP_QUERY
        | wgpu::Features::TIMESTAMP_QUERY_INSIDE_PASSES;
    let has = adapter.limits();
    let limits = wgpu::Limits {
        max_buffer_size: has.max_buffer_size,
        max_storage_buffer_binding_size: has.max_storage_buffer_binding_size,
        max_buffers_and_acceleration_structures_per_shader_stage: has
            .max_buffers_and_acceleration_structures_per_shader_stage
            .min(MOST_STORAGE_BUFFERS + UNIFORM_BUFFERS),
        max_storage_buffers_per_shader_stage: has.max_storage_buffers_per_shader_stage.min(MOST_STORAGE_BUFFERS),
        min_storage_buffer_offset_alignment: has.min_storage_buffer_offset_alignment,
        ..wgpu::Limits::default().using_resolution(has)
    };
    let required_features = adapter.features() & (wished | mapped_unasked(adapter.get_info().device_type));
    wgpu::DeviceDescriptor { label: Some("hotrow"), required_features, required_limits: limits, ..Default::default() }
}

#[cfg(test)]
#[test]
fn a_discrete_gpu_is_not_asked_for_mapped_buffers() {
    let asked =
        [wgpu::DeviceType::DiscreteGpu, wgpu::DeviceType::IntegratedGpu, wgpu::DeviceType::Cpu].map(mapped_unasked);
    assert_eq!(asked.map(|features| features.is_empty()), [true, false, false]);
}
