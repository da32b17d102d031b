//! The choices of `Caps`, on invented facts of other devices. The figures are usual ones of the vendors, not measurements. A choice depends
//! on the facts alone, so any combination that a device could report will do.

use hotrow::{
    AddBody, Caps, Error, GroupConfig, Layout, LookupBody, Optimizer, Placement, Precision, RankBody, Requirements,
    requirements,
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

/// Limits with these sizes of a binding and a buffer; all others are WebGPU's defaults.
fn limits(binding: u64, buffer: u64) -> Limits {
    Limits { max_storage_buffer_binding_size: binding, max_buffer_size: buffer, ..Limits::default() }
}

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// The largest binding of Vulkan through wgpu: 2 GiB less 4 bytes.
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
        // Apple's SIMD groups have 32 lanes, but wgpu-hal 30 reports 4 to 64 for every Metal device.
        Fixture {
            backend: Backend::Metal,
            limits: limits(4 * GIB - 1, 9 * GIB),
            ..gpu("Apple", DeviceType::IntegratedGpu, (4, 64))
        },
        Fixture { limits: limits(128 * MIB, VULKAN), ..gpu("llvmpipe", DeviceType::Cpu, (8, 8)) },
        Fixture { limits: limits(128 * MIB, 256 * MIB), ..gpu("SwiftShader", DeviceType::Cpu, (4, 4)) },
        // The subgroups have 32 lanes, but the feature was not requested: the device would refuse the shader.
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
    for subgroup in [(32, 64), (64, 64)] {
        let caps = Caps { subgroup: Some(subgroup), ..fixture("NVIDIA") };
        assert_eq!(caps.choose_rank(), RankBody::Subgroup64, "{subgroup:?}");
    }
    // Any other range gives the portable body, on every backend.
    for subgroup in [(31, 32), (32, 33), (16, 32), (16, 64), (32, 128), (1, 128), (0, 0)] {
        let caps = Caps { subgroup: Some(subgroup), ..fixture("NVIDIA") };
        assert_eq!(caps.choose_rank(), RankBody::Portable, "{subgroup:?}");
    }
    assert_eq!(Caps { subgroup: None, ..fixture("NVIDIA") }.choose_rank(), RankBody::Portable);
}

#[test]
fn rows_are_looked_up_with_32_lanes_8_lanes_or_one() {
    let with = |body| -> Vec<&str> {
        fixtures().iter().filter(|one| one.caps().choose_lookup() == body).map(|one| one.name).collect()
    };
    assert_eq!(with(LookupBody::Lanes32), ["NVIDIA", "in a virtual machine", "unknown"]);
    assert_eq!(with(LookupBody::Lane1), ["llvmpipe", "SwiftShader"]);
    assert_eq!(LookupBody::ALL.map(|body| with(body).len()).iter().sum::<usize>(), fixtures().len());
    for subgroup in [None, Some((32, 64)), Some((16, 32)), Some((64, 64))] {
        let caps = Caps { subgroup, ..fixture("NVIDIA") };
        assert_eq!(caps.choose_lookup(), LookupBody::Lanes8, "{subgroup:?}");
    }
}

#[test]
fn host_memory_is_mapped_only_where_it_is_shared() {
    let of = |name| fixture(name).choose_host_placement().0;
    for name in ["Intel", "Apple", "llvmpipe"] {
        assert_eq!(of(name), Placement::Mapped, "{name}");
    }
    // The caller may choose Mapped over a bus; Auto does not.
    for name in ["NVIDIA", "AMD RDNA", "in a virtual machine", "unknown"] {
        assert_eq!(of(name), Placement::Staged, "{name}");
    }
    let without = Caps { mappable: false, ..fixture("Intel") };
    let (placement, reason) = without.choose_host_placement();
    assert_eq!(placement, Placement::Staged);
    assert!(reason.contains("MAPPABLE_PRIMARY_BUFFERS"), "{reason}");
}

#[test]
fn no_decision_looks_at_the_name() {
    for fixture in fixtures() {
        let (named, nameless) = (fixture.caps(), Fixture { name: "", ..fixture }.caps());
        assert_eq!(named.choose_rank(), nameless.choose_rank());
        assert_eq!(named.choose_lookup(), nameless.choose_lookup());
        assert_eq!(named.choose_piece_bytes(), nameless.choose_piece_bytes());
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
fn floats_are_added_natively_only_where_that_is_enabled() {
    let info = AdapterInfo::new(DeviceType::DiscreteGpu, Backend::Vulkan);
    let of = |features| Caps::from_parts(&info, features, &Limits::default());
    assert_eq!(of(Features::SHADER_FLOAT32_ATOMIC).choose_add(), AddBody::Native);
    assert_eq!(of(Features::all() - Features::SHADER_FLOAT32_ATOMIC).choose_add(), AddBody::Exchange);
    assert_eq!(fixture("NVIDIA").choose_add(), AddBody::Exchange);
}

#[test]
fn a_piece_fits_a_binding_and_a_buffer() {
    assert_eq!(fixture("NVIDIA").choose_piece_bytes(), 2 * GIB - 256, "rounded down to whole 256 bytes");
    assert_eq!(fixture("Apple").choose_piece_bytes(), 4 * GIB - 256);
    assert_eq!(fixture("llvmpipe").choose_piece_bytes(), 128 * MIB);
    // The smaller of binding and buffer limits a piece.
    let info = AdapterInfo::new(DeviceType::DiscreteGpu, Backend::Dx12);
    for (binding, buffer) in [(VULKAN, 256 * MIB), (256 * MIB, VULKAN), (256 * MIB + 100, 256 * MIB)] {
        let caps = Caps::from_parts(&info, Features::empty(), &limits(binding, buffer));
        assert_eq!(caps.choose_piece_bytes(), 256 * MIB);
    }
    // The portable path: WebGPU's defaults.
    let caps = Caps::from_parts(&info, Features::empty(), &Limits::default());
    assert_eq!(caps.choose_piece_bytes(), 128 * MIB);
    assert_eq!((caps.storage_buffers, caps.max_groups, caps.offset_alignment), (8, 65_535, 256));
}

#[test]
fn windows_are_what_a_stage_can_bind_beyond_the_default() {
    let with = |buffers| Caps { storage_buffers: buffers, stage_buffers: u32::MAX, ..fixture("NVIDIA") };
    // Storage buffers of the default limit, SwiftShader, llvmpipe and NVIDIA. Another check refuses fewer buffers than a stage needs.
    for (buffers, windows) in [(0, 1), (7, 1), (8, 1), (9, 2), (10, 3), (32, 25), (33, 25), (1 << 20, 25)] {
        assert_eq!(with(buffers).choose_windows(), windows, "{buffers} storage buffers");
    }
    // The limit of all buffers of a stage may be narrower. It includes three uniforms; wgpu's default is 28.
    for (together, windows) in [(0, 1), (11, 1), (12, 2), (29, 19), (35, 25), (36, 25)] {
        let caps = Caps { stage_buffers: together, ..with(40) };
        assert_eq!(caps.choose_windows(), windows, "{together} buffers");
    }
    assert_eq!(fixture("NVIDIA").choose_windows(), 1, "what the device was not created with does not count");
}

/// NVIDIA's tables: 10 of 26.8 M rows x 128 in INT8 with the state of row-wise AdaGrad.
#[test]
fn pieces_share_the_storage_buffers_that_windows_leave() {
    let with = |buffers| Caps { storage_buffers: buffers, stage_buffers: u32::MAX, ..fixture("NVIDIA") };
    let layout = |cache_rows| {
        let config = GroupConfig::new(&[26_800_000; 10], 128).with_cache_rows(cache_rows);
        let config = config.with_precision(Precision::Int8).with_optimizer(Optimizer::row_wise_adagrad(0.1));
        Layout::new(&config, fixture("NVIDIA").choose_piece_bytes()).unwrap()
    };
    // 37.5 GB of records; windows of 2 GiB.
    let (none, large) = (layout(0), layout(13_400_000));
    assert_eq!((none.pieces, none.windows(), large.pieces, large.windows()), (18, 1, 18, 4));
    // As many at once as fit; if these are not all, equally many in each dispatch but the last.
    for (buffers, without_cache, with_cache) in
        [(8, 1, 1), (9, 2, 1), (10, 3, 1), (16, 9, 6), (24, 9, 9), (25, 18, 9), (28, 18, 18), (32, 18, 18)]
    {
        let caps = with(buffers);
        let found = (caps.choose_pieces(&none), caps.choose_pieces(&large));
        assert_eq!(found, (without_cache, with_cache), "{buffers} storage buffers");
    }
    let software = Caps { device_type: DeviceType::Cpu, ..with(32) };
    assert_eq!((software.choose_pieces(&none), software.choose_pieces(&large)), (4, 4));
}

#[test]
fn a_cache_of_more_windows_than_can_be_bound_is_refused() {
    let caps = |buffers| Caps { storage_buffers: buffers, stage_buffers: u32::MAX, ..fixture("NVIDIA") };
    let layout = |cache_rows| {
        let config = GroupConfig::new(&[1 << 30], 128).with_cache_rows(cache_rows);
        Layout::new(&config, fixture("NVIDIA").choose_piece_bytes()).unwrap()
    };
    // 512 bytes a slot: 2 GiB less 256 bytes hold 4,194,303.
    let one = layout(4_194_272);
    assert_eq!((one.windows(), one.window_slots), (1, 4_194_272));
    caps(8).check_cache(&one).unwrap();
    // Caches of 4 GiB and more.
    for (rows, windows) in
        [(4_194_304, 2), (8_388_576, 2), (8_388_608, 3), (25 << 22, 26), (4_194_303 * 25 / 32 * 32, 25)]
    {
        let layout = layout(rows);
        assert_eq!((layout.windows(), layout.window_slots), (windows, 4_194_303), "{rows} rows");
        for buffers in [8, 9, 10, 32, 64] {
            let caps = caps(buffers);
            match caps.check_cache(&layout) {
                Ok(()) => assert!(windows <= caps.choose_windows(), "{buffers} storage buffers, {rows} rows"),
                Err(error) => {
                    assert!(windows > caps.choose_windows(), "{buffers} storage buffers, {rows} rows");
                    let Error::TooLarge { what: "cache", wanted, limit, remedy } = error else { panic!("{error}") };
                    assert_eq!(wanted, u64::from(rows) * 512);
                    assert_eq!(limit, u64::from(caps.choose_windows()) * 4_194_303 * 512);
                    assert!(wanted > limit && remedy.contains("storage buffers"));
                }
            }
        }
    }
}

#[test]
fn software_is_no_hardware() {
    let hardware: Vec<&str> =
        fixtures().iter().filter(|fixture| fixture.caps().is_hardware()).map(|fixture| fixture.name).collect();
    let wanted = ["NVIDIA", "AMD RDNA", "AMD GCN", "Intel", "Apple", "NVIDIA, bare", "in a virtual machine"];
    assert_eq!(hardware, wanted);
}

/// The crate requests only features and limits that the adapter has and the crate uses.
#[test]
fn requirements_ask_for_what_is_there() {
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    descriptor.backends = wgpu::Backends::NOOP;
    descriptor.backend_options.noop.enable = true;
    let instance = wgpu::Instance::new(descriptor);
    let adapter = pollster::block_on(instance.request_adapter(&wgpu::RequestAdapterOptions::default())).unwrap();
    let Requirements { features, limits, .. } = requirements(&adapter);
    assert!(adapter.features().contains(features));
    let useful = Features::SUBGROUP
        | Features::MAPPABLE_PRIMARY_BUFFERS
        | Features::PIPELINE_CACHE
        | Features::SHADER_FLOAT32_ATOMIC
        | Features::TIMESTAMP_QUERY
        | Features::TIMESTAMP_QUERY_INSIDE_PASSES;
    assert!(useful.contains(features));
    assert!(limits.check_limits(&adapter.limits()));
    assert_eq!(limits.max_storage_buffer_binding_size, adapter.limits().max_storage_buffer_binding_size);
    let most = adapter.limits().max_storage_buffers_per_shader_stage;
    assert_eq!(limits.max_storage_buffers_per_shader_stage, most.min(32));
    let together = adapter.limits().max_buffers_and_acceleration_structures_per_shader_stage;
    assert_eq!(limits.max_buffers_and_acceleration_structures_per_shader_stage, together.min(35));
}
