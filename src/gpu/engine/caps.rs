//! What a device can do, as plain data, and what the crate chooses from it.
//!
//! A [`Caps`] holds facts; the `choose_*` functions hold decisions. No decision looks at a vendor.

use crate::{
    config::Placement,
    error::Error,
    table::layout::Layout,
    wgsl::{AddBody, RankBody},
};

/// A snapshot of a device's features, limits and adapter.
///
/// ```
/// use hotrow::{GroupConfig, Layout, adapter};
///
/// # fn main() -> Result<(), hotrow::Error> {
/// let Ok(context) = adapter::open_best(adapter::Wanted::Any) else { return Ok(()) };
/// let caps = context.caps();
/// // A table larger than a binding is cut into shards.
/// let layout = Layout::new(&GroupConfig::new(&[1_000_000], 64), caps.choose_shard_bytes())?;
/// assert!(layout.shards >= 1 && caps.binding_bytes >= 1 << 20);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caps {
    /// Adapter name, for messages.
    pub name: String,
    /// wgpu backend.
    pub backend: wgpu::Backend,
    /// What kind of device it is.
    pub device_type: wgpu::DeviceType,
    /// Smallest and largest subgroup, if subgroup operations are enabled.
    pub subgroup: Option<(u32, u32)>,
    /// Shaders may read and write host memory that the host maps.
    pub mappable: bool,
    /// Shaders may add to floats in memory atomically.
    pub float_atomics: bool,
    /// Passes can be timed on the device.
    pub timestamps: bool,
    /// Most bytes one storage binding may have.
    pub binding_bytes: u64,
    /// Most bytes one buffer may have.
    pub buffer_bytes: u64,
    /// Storage buffers a stage may bind.
    pub storage_buffers: u32,
    /// Buffers of any kind a stage may bind.
    pub stage_buffers: u32,
    /// Workgroups a dispatch may have in one dimension.
    pub max_groups: u32,
    /// Alignment of a storage binding's offset, in bytes.
    pub offset_alignment: u32,
}

/// Bytes that shaders reach: they count 4-byte words in 32 bits.
const ADDRESSABLE: u64 = (1 << 34) - 256;

/// Storage buffers that the widest stage binds, the first window of the cache among them; WebGPU's default limit.
pub(crate) const STORAGE_BUFFERS: u32 = 8;

/// Most storage buffers a stage that are asked for: a cache of 50 GiB where a binding has 2.
const MOST_STORAGE_BUFFERS: u32 = 32;

/// Uniform buffers beside them.
const UNIFORM_BUFFERS: u32 = 3;

impl Caps {
    /// What `device` was created with.
    #[must_use]
    pub fn of(device: &wgpu::Device) -> Self {
        Self::from_parts(&device.adapter_info(), device.features(), &device.limits())
    }

    /// The same from its parts, so that a choice can be tested without the device.
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

    /// Ballot needs subgroups of exactly 32 lanes: wgpu cannot pin the size, so smallest and largest must both be 32.
    #[must_use]
    pub fn choose_rank(&self) -> RankBody {
        if self.subgroup == Some((32, 32)) { RankBody::Subgroup32 } else { RankBody::Portable }
    }

    /// The device's own addition where it has one and was created with it.
    #[must_use]
    pub fn choose_add(&self) -> AddBody {
        if self.float_atomics { AddBody::Native } else { AddBody::Exchange }
    }

    /// Most bytes a shard of a table may have.
    #[must_use]
    pub fn choose_shard_bytes(&self) -> u64 {
        self.binding_bytes.min(self.buffer_bytes)
    }

    /// Most windows the cache may be cut into: one, and one more for each storage buffer a stage may bind beyond the default limit.
    #[must_use]
    pub fn choose_windows(&self) -> u32 {
        let bound = self.storage_buffers.min(self.stage_buffers.saturating_sub(UNIFORM_BUFFERS));
        bound.clamp(STORAGE_BUFFERS, MOST_STORAGE_BUFFERS) - STORAGE_BUFFERS + 1
    }

    /// Whether stages can bind all of the cache of `layout` at once.
    ///
    /// # Errors
    /// [`Error::TooLarge`] for a cache of more windows than [`choose_windows`](Self::choose_windows) allows.
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

    /// Where a table lives that does not fit in the device's memory, if nobody says, and why there. Mapped only where device and host
    /// share their memory: over a bus each row would cross in small pieces, which is for the caller to choose, having measured.
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

    /// Most workgroups of a dispatch whose work is counted on the device: enough to fill any GPU some times over, few enough that
    /// one with nothing to do is over at once. A software driver takes far longer to start a workgroup than to go round in one.
    #[must_use]
    pub fn choose_grid(&self) -> u32 {
        if self.device_type == wgpu::DeviceType::Cpu { 64 } else { 2048 }
    }

    /// True for a GPU; false for a software driver or an unknown device.
    #[must_use]
    pub fn is_hardware(&self) -> bool {
        matches!(
            self.device_type,
            wgpu::DeviceType::DiscreteGpu | wgpu::DeviceType::IntegratedGpu | wgpu::DeviceType::VirtualGpu
        )
    }
}

/// The features and limits hotrow makes use of on `adapter`: merge them into your own `request_device`. None of the
/// features is needed; the limits are the adapter's for buffers (of the storage buffers a stage at most 32), the defaults otherwise.
#[must_use]
pub fn requirements(adapter: &wgpu::Adapter) -> (wgpu::Features, wgpu::Limits) {
    let wished = wgpu::Features::SUBGROUP
        | wgpu::Features::MAPPABLE_PRIMARY_BUFFERS
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
    (adapter.features() & wished, limits)
}
