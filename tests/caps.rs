//! What is chosen from a device's facts, on facts of devices that are not here. The figures are the vendors' usual ones, not
//! measurements; a decision looks at the facts alone, so any combination that could be reported will do.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use hotrow::{
    Caps, RankBody, requirements,
    wgpu::{self, AdapterInfo, Backend, DeviceType, Features, Limits},
};

struct Fixture {
    name: &'static str,
    backend: Backend,
    kind: DeviceType,
    /// Smallest and largest subgroup, as wgpu 30 reports them.
    subgroup: (u32, u32),
    features: Features,
    limits: Limits,
}

impl Fixture {
    fn caps(&self) -> Caps {
        let info = AdapterInfo {
            name: self.name.into(),
            subgroup_min_size: self.subgroup.0,
            subgroup_max_size: self.subgroup.1,
            ..AdapterInfo::new(self.kind, self.backend)
        };
        Caps::from_parts(&info, self.features, &self.limits)
    }
}

/// A binding and a buffer of so many bytes, WebGPU's defaults otherwise.
fn limits(binding: u64, buffer: u64) -> Limits {
    Limits { max_storage_buffer_binding_size: binding, max_buffer_size: buffer, ..Limits::default() }
}

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// What Vulkan gives through wgpu: 2 GiB less 4 bytes.
const VULKAN: u64 = 2 * GIB - 4;

fn fixtures() -> Vec<Fixture> {
    let all = Features::SUBGROUP | Features::MAPPABLE_PRIMARY_BUFFERS | Features::TIMESTAMP_QUERY;
    let gpu = |name, kind, subgroup| Fixture {
        name,
        backend: Backend::Vulkan,
        kind,
        subgroup,
        features: all,
        limits: limits(VULKAN, 1 << 40),
    };
    vec![
        gpu("NVIDIA", DeviceType::DiscreteGpu, (32, 32)),
        gpu("AMD RDNA", DeviceType::DiscreteGpu, (32, 64)),
        gpu("AMD GCN", DeviceType::DiscreteGpu, (64, 64)),
        gpu("Intel", DeviceType::IntegratedGpu, (8, 32)),
        // Apple's SIMD groups have 32 lanes, but wgpu-hal 30 says 4 to 64 for whatever Metal device.
        Fixture {
            backend: Backend::Metal,
            limits: limits(4 * GIB - 1, 9 * GIB),
            ..gpu("Apple", DeviceType::IntegratedGpu, (4, 64))
        },
        Fixture { limits: limits(128 * MIB, VULKAN), ..gpu("llvmpipe", DeviceType::Cpu, (8, 8)) },
        Fixture { limits: limits(128 * MIB, 256 * MIB), ..gpu("SwiftShader", DeviceType::Cpu, (4, 4)) },
        // The sizes are there, but the feature was not asked for: the device would refuse the shader.
        Fixture { features: Features::empty(), ..gpu("NVIDIA, bare", DeviceType::DiscreteGpu, (32, 32)) },
        gpu("in a virtual machine", DeviceType::VirtualGpu, (32, 32)),
        gpu("unknown", DeviceType::Other, (32, 32)),
    ]
}

fn fixture(name: &str) -> Caps {
    fixtures().iter().find(|fixture| fixture.name == name).unwrap().caps()
}

#[test]
fn the_ballot_runs_only_where_every_subgroup_has_32_lanes() {
    let ballot: Vec<&str> = fixtures()
        .iter()
        .filter(|fixture| fixture.caps().choose_rank() == RankBody::Subgroup32)
        .map(|fixture| fixture.name)
        .collect();
    assert_eq!(ballot, ["NVIDIA", "in a virtual machine", "unknown"]);
    // Any range but 32 to 32 is too wide, whoever reports it.
    for subgroup in [(31, 32), (32, 33), (16, 32), (32, 64), (1, 128), (64, 64), (0, 0)] {
        let caps = Caps { subgroup: Some(subgroup), ..fixture("NVIDIA") };
        assert_eq!(caps.choose_rank(), RankBody::Portable, "{subgroup:?}");
    }
    assert_eq!(Caps { subgroup: None, ..fixture("NVIDIA") }.choose_rank(), RankBody::Portable);
}

#[test]
fn no_decision_looks_at_the_name() {
    for fixture in fixtures() {
        let (named, nameless) = (fixture.caps(), Fixture { name: "", ..fixture }.caps());
        assert_eq!(named.choose_rank(), nameless.choose_rank());
        assert_eq!(named.choose_shard_bytes(), nameless.choose_shard_bytes());
        assert_eq!(named.is_hardware(), nameless.is_hardware());
    }
}

#[test]
fn features_are_facts_only_where_they_are_enabled() {
    let bare = fixture("NVIDIA, bare");
    assert_eq!((bare.subgroup, bare.mappable, bare.timestamps), (None, false, false));
    let full = fixture("NVIDIA");
    assert_eq!((full.subgroup, full.mappable, full.timestamps), (Some((32, 32)), true, true));
    for (feature, has) in [
        (Features::SUBGROUP, (true, false, false)),
        (Features::MAPPABLE_PRIMARY_BUFFERS, (false, true, false)),
        (Features::TIMESTAMP_QUERY, (false, false, true)),
    ] {
        let info = AdapterInfo::new(DeviceType::DiscreteGpu, Backend::Vulkan);
        let caps = Caps::from_parts(&info, feature, &Limits::default());
        assert_eq!((caps.subgroup.is_some(), caps.mappable, caps.timestamps), has, "{feature:?}");
    }
}

#[test]
fn a_shard_fits_a_binding_and_a_buffer() {
    assert_eq!(fixture("NVIDIA").choose_shard_bytes(), 2 * GIB - 256, "rounded down to whole 256 bytes");
    assert_eq!(fixture("Apple").choose_shard_bytes(), 4 * GIB - 256);
    assert_eq!(fixture("llvmpipe").choose_shard_bytes(), 128 * MIB);
    // A buffer may be the smaller of the two.
    let info = AdapterInfo::new(DeviceType::DiscreteGpu, Backend::Dx12);
    for (binding, buffer) in [(VULKAN, 256 * MIB), (256 * MIB, VULKAN), (256 * MIB + 100, 256 * MIB)] {
        let caps = Caps::from_parts(&info, Features::empty(), &limits(binding, buffer));
        assert_eq!(caps.choose_shard_bytes(), 256 * MIB);
    }
    // The portable path: WebGPU's defaults.
    let caps = Caps::from_parts(&info, Features::empty(), &Limits::default());
    assert_eq!(caps.choose_shard_bytes(), 128 * MIB);
    assert_eq!((caps.storage_buffers, caps.max_groups, caps.offset_alignment), (8, 65_535, 256));
}

#[test]
fn software_is_no_hardware() {
    let hardware: Vec<&str> =
        fixtures().iter().filter(|fixture| fixture.caps().is_hardware()).map(|fixture| fixture.name).collect();
    let wanted = ["NVIDIA", "AMD RDNA", "AMD GCN", "Intel", "Apple", "NVIDIA, bare", "in a virtual machine"];
    assert_eq!(hardware, wanted);
}

/// What is asked for is what the adapter has, and no more than the crate makes use of.
#[test]
fn requirements_ask_for_what_is_there() {
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    descriptor.backends = wgpu::Backends::NOOP;
    descriptor.backend_options.noop.enable = true;
    let instance = wgpu::Instance::new(descriptor);
    let adapter = pollster::block_on(instance.request_adapter(&wgpu::RequestAdapterOptions::default())).unwrap();
    let (features, limits) = requirements(&adapter);
    assert!(adapter.features().contains(features));
    let useful = Features::SUBGROUP
        | Features::MAPPABLE_PRIMARY_BUFFERS
        | Features::TIMESTAMP_QUERY
        | Features::TIMESTAMP_QUERY_INSIDE_PASSES;
    assert!(useful.contains(features));
    assert!(limits.check_limits(&adapter.limits()));
    assert_eq!(limits.max_storage_buffer_binding_size, adapter.limits().max_storage_buffer_binding_size);
    assert_eq!(limits.max_storage_buffers_per_shader_stage, Limits::default().max_storage_buffers_per_shader_stage);
}
