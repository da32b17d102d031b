//! The choices of `Caps`, on invented facts of other devices. The figures are usual ones of the vendors, not measurements. A choice depends
//! on the facts alone, so any combination that a device could report will do.

use hotrow::{
    Caps, Error, GroupConfig, Optimizer, Placement, Precision,
    internals::{AddBody, Layout, LookupBody, RankBody},
    requirements,
    wgpu::{self, AdapterInfo, Backend, DeviceType, Features, Limits},
};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// The largest binding of Vulkan through wgpu: 2 GiB less 4 bytes.
const VULKAN: u64 = 2 * GIB - 4;

/// The facts of a device; its limits have these bytes of a binding and a buffer, and else WebGPU's defaults.
fn of(info: AdapterInfo, subgroup: (u32, u32), features: Features, [binding, buffer]: [u64; 2]) -> Caps {
    let info = AdapterInfo { subgroup_min_size: subgroup.0, subgroup_max_size: subgroup.1, ..info };
    let limits = Limits { max_storage_buffer_binding_size: binding, max_buffer_size: buffer, ..Limits::default() };
    Caps::from_parts(&info, features, &limits)
}

fn discrete() -> AdapterInfo {
    AdapterInfo::new(DeviceType::DiscreteGpu, Backend::Vulkan)
}

const ALL: Features = Features::SUBGROUP.union(Features::MAPPABLE_PRIMARY_BUFFERS).union(Features::TIMESTAMP_QUERY);
/// WebGPU's defaults.
const DEFAULTS: [u64; 2] = [128 * MIB, 256 * MIB];

fn nvidia() -> Caps {
    of(discrete(), (32, 32), ALL, [VULKAN, 1 << 40])
}

/// A device that binds so many storage buffers in a stage.
fn with_buffers(storage_buffers: u32) -> Caps {
    Caps { storage_buffers, stage_buffers: u32::MAX, ..nvidia() }
}

#[test]
fn devices_and_what_is_chosen_for_them() {
    use {DeviceType::*, LookupBody::*, Placement::*, RankBody::*};
    for (name, kind, subgroup, features, rank, lookup, placement, hardware) in [
        ("NVIDIA", DiscreteGpu, (32, 32), ALL, Subgroup32, Lanes32, Staged, true),
        ("AMD RDNA", DiscreteGpu, (32, 64), ALL, Subgroup64, Lanes8, Staged, true),
        ("AMD GCN", DiscreteGpu, (64, 64), ALL, Subgroup64, Lanes8, Staged, true),
        ("Intel", IntegratedGpu, (8, 32), ALL, Portable, Lanes8, Mapped, true),
        // Apple's SIMD groups have 32 lanes, but wgpu-hal 30 reports 4 to 64 for every Metal device.
        ("Apple", IntegratedGpu, (4, 64), ALL, Portable, Lanes8, Mapped, true),
        ("llvmpipe", Cpu, (8, 8), ALL, Portable, Lane1, Mapped, false),
        ("SwiftShader", Cpu, (4, 4), ALL, Portable, Lane1, Mapped, false),
        // The subgroups have 32 lanes, but the feature was not requested: the device would refuse the shader.
        ("NVIDIA, bare", DiscreteGpu, (32, 32), Features::empty(), Portable, Lanes8, Staged, true),
        // The caller may choose Mapped over a bus; it is chosen nowhere without the feature.
        ("Intel, not mappable", IntegratedGpu, (8, 32), Features::SUBGROUP, Portable, Lanes8, Staged, true),
        ("in a virtual machine", VirtualGpu, (32, 32), ALL, Subgroup32, Lanes32, Staged, true),
        ("unknown", Other, (32, 32), ALL, Subgroup32, Lanes32, Staged, false),
    ] {
        // No decision looks at the name, or at the backend.
        for (name, backend) in [(name, Backend::Vulkan), ("", Backend::Vulkan), (name, Backend::Metal)] {
            let info = AdapterInfo { name: name.into(), ..AdapterInfo::new(kind, backend) };
            let caps = of(info, subgroup, features, [VULKAN, 1 << 40]);
            let (place, reason) = caps.choose_host_placement();
            let found = (caps.choose_rank(), caps.choose_lookup(), place, caps.is_hardware());
            assert_eq!(found, (rank, lookup, placement, hardware), "{name}");
            assert_eq!(reason.contains("MAPPABLE_PRIMARY_BUFFERS"), !caps.mappable, "{name}: {reason}");
        }
    }
    // Any other range of subgroups gives the portable body.
    let others = [(0, 0), (31, 32), (32, 33), (16, 32), (16, 64), (32, 128), (1, 128)];
    for subgroup in others.map(Some).into_iter().chain([None]) {
        let caps = Caps { subgroup, ..nvidia() };
        assert_eq!((caps.choose_rank(), caps.choose_lookup()), (Portable, Lanes8), "{subgroup:?}");
    }
}

#[test]
fn features_are_facts_only_where_they_are_enabled() {
    let adds = Features::SHADER_FLOAT32_ATOMIC;
    for (features, facts) in [
        (Features::empty(), [false; 4]),
        (Features::SUBGROUP, [true, false, false, false]),
        (Features::MAPPABLE_PRIMARY_BUFFERS, [false, true, false, false]),
        (Features::TIMESTAMP_QUERY, [false, false, true, false]),
        (adds, [false, false, false, true]),
        (Features::all() - adds, [true, true, true, false]),
    ] {
        let caps = of(discrete(), (32, 32), features, DEFAULTS);
        let found = [caps.subgroup == Some((32, 32)), caps.mappable, caps.timestamps, caps.float_atomics];
        assert_eq!(found, facts, "{features:?}");
        assert_eq!(caps.choose_add(), if facts[3] { AddBody::Native } else { AddBody::Exchange });
        assert_eq!((caps.storage_buffers, caps.max_groups, caps.offset_alignment), (8, 65_535, 256));
    }
}

/// The smaller of binding and buffer limits a piece, rounded down to whole 256 bytes.
#[test]
fn a_piece_fits_a_binding_and_a_buffer() {
    for (bytes, piece) in [
        (DEFAULTS, 128 * MIB),
        ([VULKAN, 1 << 40], 2 * GIB - 256),
        ([4 * GIB - 1, 9 * GIB], 4 * GIB - 256),
        ([VULKAN, 256 * MIB], 256 * MIB),
        ([256 * MIB, VULKAN], 256 * MIB),
        ([256 * MIB + 100, 256 * MIB], 256 * MIB),
    ] {
        assert_eq!(of(discrete(), (0, 0), Features::empty(), bytes).choose_piece_bytes(), piece, "{bytes:?}");
    }
}

#[test]
fn windows_are_what_a_stage_can_bind_beyond_the_default() {
    // Storage buffers of the default limit, SwiftShader, llvmpipe and NVIDIA. Another check refuses fewer buffers than a stage needs.
    for (buffers, windows) in [(0, 1), (7, 1), (8, 1), (9, 2), (10, 3), (32, 25), (33, 25), (1 << 20, 25)] {
        assert_eq!(with_buffers(buffers).choose_windows(), windows, "{buffers} storage buffers");
    }
    // The limit of all buffers of a stage may be narrower. It includes three uniforms; wgpu's default is 28.
    for (together, windows) in [(0, 1), (11, 1), (12, 2), (29, 19), (35, 25), (36, 25)] {
        let caps = Caps { stage_buffers: together, ..with_buffers(40) };
        assert_eq!(caps.choose_windows(), windows, "{together} buffers");
    }
    assert_eq!(nvidia().choose_windows(), 1, "what the device was not created with does not count");
}

/// NVIDIA's tables: 10 of 26.8 M rows x 128 in INT8 with the state of row-wise AdaGrad.
#[test]
fn pieces_share_the_storage_buffers_that_windows_leave() {
    let layout = |cache_rows| {
        let config = GroupConfig::new(&[26_800_000; 10], 128).with_cache_rows(cache_rows);
        let config = config.with_precision(Precision::Int8).with_optimizer(Optimizer::row_wise_adagrad(0.1));
        Layout::new(&config, nvidia().choose_piece_bytes()).unwrap()
    };
    // 37.5 GB of records; windows of 2 GiB.
    let (none, large) = (layout(0), layout(13_400_000));
    assert_eq!((none.pieces, none.windows(), large.pieces, large.windows()), (18, 1, 18, 4));
    // As many at once as fit; if these are not all, equally many in each dispatch but the last.
    for (buffers, without_cache, with_cache) in
        [(8, 1, 1), (9, 2, 1), (10, 3, 1), (16, 9, 6), (24, 9, 9), (25, 18, 9), (28, 18, 18), (32, 18, 18)]
    {
        let caps = with_buffers(buffers);
        let found = (caps.choose_pieces(&none), caps.choose_pieces(&large));
        assert_eq!(found, (without_cache, with_cache), "{buffers} storage buffers");
    }
    let software = Caps { device_type: DeviceType::Cpu, ..with_buffers(32) };
    assert_eq!((software.choose_pieces(&none), software.choose_pieces(&large)), (4, 4));
}

#[test]
fn a_cache_of_more_windows_than_can_be_bound_is_refused() {
    let layout = |cache_rows| {
        let config = GroupConfig::new(&[1 << 30], 128).with_cache_rows(cache_rows);
        Layout::new(&config, nvidia().choose_piece_bytes()).unwrap()
    };
    // 512 bytes a slot: 2 GiB less 256 bytes hold 4,194,303.
    let one = layout(4_194_272);
    assert_eq!((one.windows(), one.window_slots), (1, 4_194_272));
    with_buffers(8).check_cache(&one).unwrap();
    // Caches of 4 GiB and more.
    for (rows, windows) in
        [(4_194_304, 2), (8_388_576, 2), (8_388_608, 3), (25 << 22, 26), (4_194_303 * 25 / 32 * 32, 25)]
    {
        let layout = layout(rows);
        assert_eq!((layout.windows(), layout.window_slots), (windows, 4_194_303), "{rows} rows");
        for buffers in [8, 9, 10, 32, 64] {
            let caps = with_buffers(buffers);
            let most = caps.choose_windows();
            let found = caps.check_cache(&layout).map_err(|error| match error {
                Error::TooLarge { what: "cache", wanted, limit, remedy } if remedy.contains("storage buffers") => {
                    (wanted, limit)
                }
                error => panic!("{error}"),
            });
            let refused = (u64::from(rows) * 512, u64::from(most) * 4_194_303 * 512);
            assert_eq!(found, if windows <= most { Ok(()) } else { Err(refused) }, "{buffers} buffers, {rows} rows");
        }
    }
}

/// The crate requests only features and limits that the adapter has and the crate uses.
#[test]
fn requirements_ask_for_what_is_there() {
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    descriptor.backends = wgpu::Backends::NOOP;
    descriptor.backend_options.noop.enable = true;
    let instance = wgpu::Instance::new(descriptor);
    let adapter = pollster::block_on(instance.request_adapter(&wgpu::RequestAdapterOptions::default())).unwrap();
    let wgpu::DeviceDescriptor { required_features: features, required_limits: limits, .. } = requirements(&adapter);
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
