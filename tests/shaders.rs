//! Checks of every shader without a GPU: naga's validation with the capabilities of its variant, WebGPU's default
//! limits, translation for DX12, Metal and Vulkan, a pipeline on wgpu's `noop` device, and agreement with the host's
//! tables. `scripts/portability` adds a second compiler.
//!
//! Each check is a function of a shader's text or module, and has a companion test that shows it rejecting a wrong shader.

mod finite;
mod reader;

use std::collections::{BTreeMap, BTreeSet};

use hotrow::{
    GroupConfig, Optimizer, Precision, RandomBits, Rounding, StatePrecision,
    internals::{
        Layout,
        layout::HostStruct,
        shader::{Access, ComposedShader, Constants, Kernel, Sizes},
    },
};
use hotrow_harness::{isa, modules::files};
use naga::back::spv::Capability;
use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};
use naga::{AddressSpace, Binding, Expression, Literal, Module, ShaderStage, StorageAccess, StructMember, TypeInner};

// WebGPU's defaults (SPEC 10), as numbers: the project promises them, so they do not come from `wgpu::Limits::default()`.
const MAX_STORAGE_BUFFERS: usize = 8;
const MAX_UNIFORM_BUFFERS: usize = 12;
const MAX_BIND_GROUPS: u32 = 4;
const MAX_INVOCATIONS: u64 = 256;
const MAX_WORKGROUP_Z: u32 = 64;
const MAX_WORKGROUP_BYTES: u64 = 16 << 10;

const ENTRY: &str = "main";

/// The most storage buffers of a stage with these sizes. Each window and each piece after the first adds one to the default limit.
fn most_buffers(sizes: Sizes) -> usize {
    MAX_STORAGE_BUFFERS + sizes.more_buffers() as usize
}

// ---------------------------------------------------------------------------------------------------------------------
// Checks

fn parse(wgsl: &str) -> Result<Module, String> {
    naga::front::wgsl::parse_str(wgsl).map_err(|error| error.emit_to_string(wgsl))
}

/// A portable shader may use no optional capability (`pack2x16float` is core WGSL, though naga counts it as one). A subgroup variant may
/// use subgroup operations and nothing else.
fn validate(module: &Module, wgsl: &str, subgroups: bool) -> Result<ModuleInfo, String> {
    let mut capabilities = Capabilities::empty();
    capabilities.set(Capabilities::SUBGROUP, subgroups);
    validate_with(module, wgsl, capabilities)
}

fn validate_with(module: &Module, wgsl: &str, more: Capabilities) -> Result<ModuleInfo, String> {
    let capabilities = Capabilities::SHADER_FLOAT16_IN_FLOAT32 | more;
    Validator::new(ValidationFlags::all(), capabilities).validate(module).map_err(|error| error.emit_to_string(wgsl))
}

/// The loader adds the `enable` lines, because the compilers differ in the lines they want. So the text itself may have none. An `override` would be another
/// number in a pipeline than in the text that is checked here.
fn check_directives(wgsl: &str) -> Result<(), String> {
    for line in wgsl.lines().map(str::trim_start) {
        if ["enable ", "requires ", "override ", "#"].iter().any(|directive| line.starts_with(directive)) {
            return Err(format!("directive left in the text: {line}"));
        }
    }
    Ok(())
}

fn check_entry(module: &Module) -> Result<(), String> {
    match module.entry_points.as_slice() {
        [entry] if entry.name == ENTRY && entry.stage == ShaderStage::Compute => Ok(()),
        entries => Err(format!(
            "wanted one compute entry point `{ENTRY}`, found {:?}",
            entries.iter().map(|entry| &entry.name).collect::<Vec<_>>()
        )),
    }
}

/// Counts every declared buffer, used or not, because the host's bind group layout lists it either way. At most `most` storage buffers.
fn check_buffers(module: &Module, most: usize) -> Result<(), String> {
    let (mut storage, mut uniform) = (0, 0);
    for (_, variable) in module.global_variables.iter() {
        match variable.space {
            AddressSpace::Storage { .. } => storage += 1,
            AddressSpace::Uniform => uniform += 1,
            _ => {}
        }
        if let Some(binding) = &variable.binding
            && binding.group >= MAX_BIND_GROUPS
        {
            return Err(format!("bind group {}, at most {MAX_BIND_GROUPS} groups", binding.group));
        }
    }
    if storage > most {
        return Err(format!("{storage} storage buffers, at most {most}"));
    }
    if uniform > MAX_UNIFORM_BUFFERS {
        return Err(format!("{uniform} uniform buffers, at most {MAX_UNIFORM_BUFFERS}"));
    }
    Ok(())
}

/// What naga writes as HLSL that DXC refuses: no semantics for the members of a struct with a subgroup's builtins, and one name for the zeros of two
/// types that are one in HLSL, an alias and what it stands for.
fn check_hlsl_names(module: &Module) -> Result<(), String> {
    for argument in module.entry_points.iter().flat_map(|entry| &entry.function.arguments) {
        let TypeInner::Struct { members, .. } = &module.types[argument.ty].inner else { continue };
        let of_subgroup = |member: &&StructMember| match member.binding {
            Some(Binding::BuiltIn(builtin)) => format!("{builtin:?}").contains("Subgroup"),
            _ => false,
        };
        if let Some(member) = members.iter().find(of_subgroup) {
            return Err(format!("{:?} of a subgroup in a struct: make it an argument of `{ENTRY}`", member.name));
        }
    }
    // HLSL has no aliases, so a type is what it is made of.
    fn made_of(module: &Module, ty: naga::Handle<naga::Type>) -> String {
        match &module.types[ty].inner {
            TypeInner::Array { base, size, stride } => format!("{size:?} {stride} of {}", made_of(module, *base)),
            inner => format!("{inner:?}"),
        }
    }
    let bodies = module.functions.iter().map(|(_, one)| one).chain(module.entry_points.iter().map(|one| &one.function));
    let expressions = bodies.flat_map(|body| body.expressions.iter()).chain(module.global_expressions.iter());
    let mut zeros: BTreeMap<String, naga::Handle<naga::Type>> = BTreeMap::new();
    for (_, expression) in expressions {
        let Expression::ZeroValue(ty) = *expression else { continue };
        let naga::Type { name, inner } = &module.types[ty];
        let plain = !matches!(inner, TypeInner::Struct { .. });
        let spelled = *zeros.entry(made_of(module, ty)).or_insert(ty);
        if plain && (name.is_some() || spelled != ty) {
            return Err(format!("a zero value of {name:?}, {inner:?}: write its components"));
        }
    }
    Ok(())
}

/// wgpu 30 itself checks the workgroup's size, but not its memory.
fn check_workgroup(module: &Module) -> Result<(), String> {
    for entry in &module.entry_points {
        let size = entry.workgroup_size;
        let invocations: u64 = size.iter().map(|&n| u64::from(n)).product();
        if invocations == 0 || invocations > MAX_INVOCATIONS || size[2] > MAX_WORKGROUP_Z {
            return Err(format!("workgroup of {size:?} invocations, at most {MAX_INVOCATIONS}, z {MAX_WORKGROUP_Z}"));
        }
    }
    // WebGPU adds up the variables, each rounded up to 16 bytes.
    let bytes: u64 = module
        .global_variables
        .iter()
        .filter(|(_, variable)| variable.space == AddressSpace::WorkGroup)
        .map(|(_, variable)| u64::from(module.types[variable.ty].inner.size(module.to_ctx())).next_multiple_of(16))
        .sum();
    if bytes > MAX_WORKGROUP_BYTES {
        return Err(format!("{bytes} bytes of workgroup memory, at most {MAX_WORKGROUP_BYTES}"));
    }
    Ok(())
}

/// A text back end may return a successful result that contains an error for the entry point.
fn entry_written<E: std::fmt::Display>(names: &[Result<String, E>]) -> Result<(), String> {
    match names {
        [Ok(_)] => Ok(()),
        [Err(error)] => Err(error.to_string()),
        _ => Err(format!("{} entry points written, not one", names.len())),
    }
}

/// Translates for DX12. Shader model 5.1 is the oldest that wgpu uses; wave operations came with 6.0.
fn to_hlsl(module: &Module, info: &ModuleInfo, subgroups: bool) -> Result<String, String> {
    use naga::back::hlsl::{Options, PipelineOptions, ShaderModel, Writer};
    let shader_model = if subgroups { ShaderModel::V6_0 } else { ShaderModel::V5_1 };
    let options = Options { shader_model, ..Options::default() };
    let pipeline = PipelineOptions { entry_point: Some((ShaderStage::Compute, ENTRY.to_owned())) };
    let mut text = String::new();
    let written = Writer::new(&mut text, &options, &pipeline)
        .write(module, info, None)
        .map_err(|error| format!("HLSL: {error}"))?;
    entry_written(&written.entry_point_names).map_err(|error| format!("HLSL: {error}"))?;
    Ok(text)
}

/// What SPIR-V calls the operations of subgroups.
const SUBGROUP: &[Capability] = &[
    Capability::GroupNonUniform,
    Capability::GroupNonUniformVote,
    Capability::GroupNonUniformArithmetic,
    Capability::GroupNonUniformBallot,
    Capability::GroupNonUniformShuffle,
    Capability::GroupNonUniformShuffleRelative,
    Capability::GroupNonUniformQuad,
];

/// Translates for Metal.
fn to_msl(module: &Module, info: &ModuleInfo, lang_version: (u8, u8)) -> Result<String, String> {
    use naga::back::msl::{Options, PipelineOptions, write_string};
    let options = Options { lang_version, bounds_check_policies: restrict(), ..Options::default() };
    let pipeline =
        PipelineOptions { entry_point: Some((ShaderStage::Compute, ENTRY.to_owned())), ..PipelineOptions::default() };
    let (text, written) = write_string(module, info, &options, &pipeline).map_err(|error| format!("MSL: {error}"))?;
    entry_written(&written.entry_point_names).map_err(|error| format!("MSL: {error}"))?;
    Ok(text)
}

/// Translates for Vulkan.
fn to_spirv(
    module: &Module,
    info: &ModuleInfo,
    lang_version: (u8, u8),
    more: &[Capability],
) -> Result<Vec<u32>, String> {
    use naga::back::spv::{Options, PipelineOptions, write_vec};
    let capabilities = Some([Capability::Shader].iter().chain(more).copied().collect());
    let options = Options { lang_version, capabilities, bounds_check_policies: restrict(), ..Options::default() };
    let pipeline = PipelineOptions { shader_stage: ShaderStage::Compute, entry_point: ENTRY.to_owned() };
    write_vec(module, info, &options, Some(&pipeline)).map_err(|error| format!("SPIR-V: {error}"))
}

/// The bounds checks that wgpu's back ends set for checked shaders.
fn restrict() -> naga::proc::BoundsCheckPolicies {
    use naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy::Restrict};
    BoundsCheckPolicies { index: Restrict, buffer: Restrict, ..BoundsCheckPolicies::default() }
}

fn check_translations(module: &Module, info: &ModuleInfo, subgroups: bool) -> Result<(), String> {
    // Metal 2.0 is older than any device that wgpu 30 takes; SIMD-group functions need 2.1. SPIR-V 1.0 belongs to Vulkan 1.0; subgroup operations
    // need 1.3.
    let (msl, spirv, more) = if subgroups { ((2, 1), (1, 3), SUBGROUP) } else { ((2, 0), (1, 0), [].as_slice()) };
    let empty = [
        ("HLSL", to_hlsl(module, info, subgroups)?.is_empty()),
        ("MSL", to_msl(module, info, msl)?.is_empty()),
        ("SPIR-V", to_spirv(module, info, spirv, more)?.is_empty()),
    ];
    match empty.iter().find(|(_, empty)| *empty) {
        Some((language, _)) => Err(format!("{language}: nothing written")),
        None => Ok(()),
    }
}

/// wgpu's own validation, against default limits, on a device that does nothing.
fn check_pipeline(wgsl: &str, subgroups: bool, most: usize) -> Result<(), String> {
    let (device, _queue) = wgpu::Device::noop(&wgpu::DeviceDescriptor {
        required_features: if subgroups { wgpu::Features::SUBGROUP } else { wgpu::Features::empty() },
        required_limits: wgpu::Limits {
            max_storage_buffers_per_shader_stage: most as u32,
            // No stage has more than three uniforms beside them.
            max_buffers_and_acceleration_structures_per_shader_stage: (most as u32 + 3).max(28),
            ..wgpu::Limits::default()
        },
        ..Default::default()
    });
    let scope = device.push_error_scope(wgpu::ErrorFilter::Validation);
    let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
        label: None,
        source: wgpu::ShaderSource::Wgsl(wgsl.into()),
    });
    let _pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: None,
        layout: None,
        module: &module,
        entry_point: Some(ENTRY),
        compilation_options: wgpu::PipelineCompilationOptions::default(),
        cache: None,
    });
    match pollster::block_on(scope.pop()) {
        Some(error) => Err(format!("wgpu: {error}")),
        None => Ok(()),
    }
}

/// Runs all checks above, those with the clearest messages first.
fn check_all(wgsl: &str, subgroups: bool, most: usize) -> Result<(), String> {
    check_directives(wgsl)?;
    let module = parse(wgsl)?;
    let info = validate(&module, wgsl, subgroups)?;
    check_entry(&module)?;
    check_buffers(&module, most)?;
    check_hlsl_names(&module)?;
    check_workgroup(&module)?;
    check_translations(&module, &info, subgroups)?;
    check_pipeline(wgsl, subgroups, most)
}

/// Checks a shader that adds floats atomically: it may use no other capability, and must translate for Vulkan and Metal. DX12 has no float
/// atomics.
fn check_float_atomics(wgsl: &str) -> Result<(), String> {
    check_directives(wgsl)?;
    let module = parse(wgsl)?;
    let info = validate_with(&module, wgsl, Capabilities::SHADER_FLOAT32_ATOMIC)?;
    check_entry(&module)?;
    check_buffers(&module, MAX_STORAGE_BUFFERS)?;
    check_workgroup(&module)?;
    let spirv = to_spirv(&module, &info, (1, 0), &[Capability::AtomicFloat32AddEXT])?;
    let msl = to_msl(&module, &info, (3, 0))?;
    if spirv.is_empty() || msl.is_empty() { Err("nothing written".into()) } else { Ok(()) }
}

/// Every file of `shaders/` outside `shaders/shared/` is in the list, and every variant has a portable sibling. `sources`: name, variant,
/// and whether it needs more than any device has.
fn check_complete(files: &BTreeSet<String>, sources: &[(&str, &str, bool)]) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for &(name, variant, _) in sources {
        if !seen.insert((name, variant)) {
            return Err(format!("{name}/{variant} is listed twice"));
        }
        if !files.contains(name) {
            return Err(format!("{name}: no file of that name in shaders/"));
        }
        if !sources.iter().any(|&(other, _, special)| other == name && !special) {
            return Err(format!("{name}/{variant}: no portable variant"));
        }
    }
    match files.iter().find(|file| !sources.iter().any(|(name, ..)| name == file)) {
        Some(file) => Err(format!("shaders/{file}.wgsl is never checked")),
        None => Ok(()),
    }
}

/// A struct that host and shader share: the same members in the same order at the same offsets, and the same size.
fn check_struct(module: &Module, name: &str, span: u32, members: &[(&str, u32)]) -> Result<(), String> {
    let Some((_, found)) = module.types.iter().find(|(_, ty)| ty.name.as_deref() == Some(name)) else {
        return Err(format!("struct {name} is not in the shader"));
    };
    let TypeInner::Struct { members: found, span: found_span } = &found.inner else {
        return Err(format!("{name} is no struct in the shader"));
    };
    let found: Vec<_> = found.iter().map(|m| (m.name.as_deref().unwrap_or_default(), m.offset)).collect();
    if found != members {
        return Err(format!("struct {name}: members (name, offset)\n  shader {found:?}\n  host   {members:?}"));
    }
    if *found_span != span {
        return Err(format!("struct {name}: {found_span} bytes in the shader, {span} on the host"));
    }
    Ok(())
}

/// Compares a constant that host and shader share. Returns whether the shader has the constant.
fn check_constant(module: &Module, name: &str, wanted: u32) -> Result<bool, String> {
    let Some((_, constant)) = module.constants.iter().find(|(_, it)| it.name.as_deref() == Some(name)) else {
        return Ok(false);
    };
    match module.global_expressions[constant.init] {
        Expression::Literal(Literal::U32(found)) if found == wanted => Ok(true),
        ref found => Err(format!("constant {name}: {found:?} in the shader, {wanted}u on the host")),
    }
}

/// All bindings lie in group 0; the host's list and the shader's declarations must be equal, unused ones included.
fn check_bindings(module: &Module, expected: &[(u32, &str, Access)]) -> Result<(), String> {
    let mut found = BTreeMap::new();
    for (_, variable) in module.global_variables.iter() {
        let Some(binding) = &variable.binding else { continue };
        let name = variable.name.as_deref().unwrap_or_default();
        let kind = match variable.space {
            AddressSpace::Uniform => Access::Uniform,
            AddressSpace::Storage { access } if access.contains(StorageAccess::STORE) => Access::ReadWrite,
            AddressSpace::Storage { .. } => Access::Read,
            space => return Err(format!("{name}: bound in address space {space:?}")),
        };
        if binding.group != 0 {
            return Err(format!("{name}: in bind group {}, not 0", binding.group));
        }
        if let Some((other, _)) = found.insert(binding.binding, (name, kind)) {
            return Err(format!("binding {}: both {other} and {name}", binding.binding));
        }
    }
    let mut wanted = BTreeMap::new();
    for &(binding, name, kind) in expected {
        if wanted.insert(binding, (name, kind)).is_some() {
            return Err(format!("binding {binding}: twice in the host's list"));
        }
    }
    for binding in found.keys().chain(wanted.keys()) {
        let (shader, host) = (found.get(binding), wanted.get(binding));
        if shader != host {
            return Err(format!("binding {binding}: shader {shader:?}, host {host:?}"));
        }
    }
    Ok(())
}

/// Every struct in a buffer must be in the host's list, or else nothing checks it.
fn check_known_structs(module: &Module, known: &[&str]) -> Result<(), String> {
    for (_, variable) in module.global_variables.iter().filter(|(_, variable)| variable.binding.is_some()) {
        let mut ty = variable.ty;
        while let TypeInner::Array { base, .. } = module.types[ty].inner {
            ty = base;
        }
        if let TypeInner::Struct { .. } = module.types[ty].inner {
            let name = module.types[ty].name.as_deref().unwrap_or_default();
            if !known.contains(&name) {
                return Err(format!("struct {name} of {:?} is not in the host's list", variable.name));
            }
        }
    }
    Ok(())
}

fn check_workgroup_size(module: &Module, expected: [u32; 3]) -> Result<(), String> {
    match module.entry_points.as_slice() {
        [entry] if entry.workgroup_size == expected => Ok(()),
        [entry] => Err(format!("workgroup size {:?} in the shader, {expected:?} on the host", entry.workgroup_size)),
        entries => Err(format!("{} entry points", entries.len())),
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// The crate's shaders

/// Runs `check` on every shader, and on those that DX12 has in their place, and fails with all that it finds.
fn on_each(mut check: impl FnMut(&ComposedShader) -> Result<(), String>) {
    let mut sources = hotrow::internals::sources();
    let of_dx12 = hotrow::internals::sources_of_dx12();
    let others: Vec<_> = of_dx12.into_iter().zip(&sources).filter(|(own, plain)| own.wgsl != plain.wgsl).collect();
    assert!(others.iter().any(|(own, _)| own.name == "gather"), "sums of DX12");
    let others: Vec<_> = others.into_iter().map(|(own, _)| own).collect();
    sources.extend(others);
    let failed =
        |source: &ComposedShader| Some(format!("{}/{}: {}", source.name, source.variant, check(source).err()?));
    let failures: Vec<String> = sources.iter().filter_map(failed).collect();
    assert!(failures.is_empty(), "{} of {} shaders:\n{}", failures.len(), sources.len(), failures.join("\n"));
}

/// Compares the bindings of a kernel with these sizes in the host's table with the shader's.
fn check_bound(module: &Module, kernel: &Kernel, sizes: Sizes) -> Result<(), String> {
    let bindings = hotrow::internals::shader::bindings(kernel, sizes);
    let bindings: Vec<_> = (0..).zip(&bindings).map(|(i, (access, name))| (i, name.as_str(), *access)).collect();
    check_bindings(module, &bindings)
}

#[test]
fn every_shader_passes_every_check() {
    on_each(|source| match source.float_atomics {
        true => check_float_atomics(&source.wgsl),
        false => check_all(&source.wgsl, source.subgroups, most_buffers(source.sizes)),
    });
}

/// A division by a constant 0, or a shift by 32, is an error of the compiler: the texts of groups of every precision and optimiser have none.
#[test]
fn texts_with_a_groups_constants_pass_every_check() {
    let optimizers = [
        Optimizer::sgd(0.1),
        Optimizer::adagrad(0.1).with_clip_norm(Some(1.0)),
        Optimizer::row_wise_adagrad(0.1),
        Optimizer::momentum(0.1),
        Optimizer::adam(0.1).with_clip_value(Some(1.0)),
        Optimizer::row_wise_adam(0.1),
    ];
    let mut texts = BTreeSet::new();
    for i in 0..30 {
        let (precision, dim) = (Precision::ALL[i / 6], [64, 5, 128, 4, 256, 61][(i + i / 6) % 6]);
        let mut config = GroupConfig::new(&[100], dim).with_precision(precision).with_optimizer(optimizers[i % 6]);
        config.rounding = Rounding::ALL[i % 2];
        config.random_bits = RandomBits::ALL[i % 3];
        config.state = Some(StatePrecision::ALL[(i / 2) % StatePrecision::ALL.len()]);
        if config.check().is_err() {
            config.state = None;
        }
        let layout = Layout::new(&config, u64::MAX).unwrap();
        let constants = Constants::of(&hotrow::internals::params(&config, &layout, 0, 0));
        let item = layout.row.item();
        for kernel in hotrow::internals::kernels() {
            let sizes = Sizes { width: if dim % 4 == 0 { 4 } else { 1 }, item, constants, ..Sizes::ONE }.of(kernel);
            if sizes.constants == Constants::NONE {
                continue;
            }
            let text =
                hotrow::internals::shader::compose(kernel, hotrow::internals::shader::Bodies::PLAIN.sizes(sizes));
            check_all(&text, false, most_buffers(sizes)).unwrap_or_else(|error| panic!("{}: {error}", kernel.name));
            assert!(!text.contains("params.dim"), "{}", kernel.name);
            // The companion: a constant that no shift may have.
            let wrong = text.replace("& 31u)", "& 63u)");
            if precision == Precision::Fp32 && wrong != text {
                check_all(&wrong, false, most_buffers(sizes)).unwrap_err();
            }
            texts.insert((kernel.name, text));
        }
    }
    let names: BTreeSet<_> = texts.iter().map(|&(name, _)| name).collect();
    assert_eq!(Vec::from_iter(names), ["exchange", "gather", "merge", "update"]);
    assert!(texts.len() > 60, "{}", texts.len());
}

/// A cache in as many windows as any device may bind, and as many pieces. `sources` has up to three of both.
#[test]
fn the_most_windows_and_pieces_pass_every_check() {
    let caps = hotrow::Caps::from_parts(
        &wgpu::AdapterInfo::new(wgpu::DeviceType::DiscreteGpu, wgpu::Backend::Vulkan),
        wgpu::Features::empty(),
        &wgpu::Limits::unlimited(),
    );
    let windows = caps.choose_windows();
    assert!(windows > 3);
    let kernels: Vec<_> =
        hotrow::internals::kernels().iter().filter(|kernel| hotrow::internals::shader::has_windows(kernel)).collect();
    let names: Vec<_> = kernels.iter().map(|kernel| kernel.name).collect();
    let wanted = "exchange gather weight_gradient update assign send robe_gather robe_decode robe_weight_gradient";
    assert_eq!(names.join(" "), wanted);
    for kernel in kernels {
        for width in [1, 4] {
            let sizes = Sizes { width, windows, ..Sizes::ONE };
            let bodies = hotrow::internals::shader::Bodies::PLAIN.sizes(sizes);
            let text = hotrow::internals::shader::compose(kernel, bodies);
            let array = !hotrow::internals::shader::moves_rows(kernel);
            let (first, each) = match array {
                true => ("window1[", " * robe.window_words];"),
                false => ("cache1[", "params.window_slots) * params.row_quads"),
            };
            assert!(text.contains(first), "{}", kernel.name);
            assert_eq!(text.matches(each).count(), text.matches(first).count() * 24);
            check_all(&text, false, most_buffers(sizes)).unwrap();
            check_bound(&parse(&text).unwrap(), kernel, sizes).unwrap();
        }
        for (width, item) in [(1, 1), (4, 1), (4, 4)] {
            let sizes = Sizes { width, item, pieces: windows, ..Sizes::ONE };
            let text =
                hotrow::internals::shader::compose(kernel, hotrow::internals::shader::Bodies::PLAIN.sizes(sizes));
            assert_eq!(
                text.contains("records24["),
                ["exchange", "update", "send"].contains(&kernel.name),
                "{}",
                kernel.name
            );
            check_all(&text, false, most_buffers(sizes)).unwrap();
        }
    }
}

/// With one window and one piece the text is the same as without windows.
#[test]
fn one_window_leaves_no_trace() {
    for source in hotrow::internals::sources().iter().filter(|source| source.sizes.more_buffers() == 0) {
        let code: String = source.wgsl.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        let traces = ["cache1", "params.window_slots", "window1", "robe.window_words", "records1", "record.piece"];
        assert!(traces.iter().all(|trace| !code.contains(trace)), "{}", source.name);
    }
}

/// A choice of one body decides nothing else: each look-up is in the text whatever ranks keys, and no two bodies have one name.
#[test]
fn each_chosen_body_is_in_the_text() {
    use hotrow::internals::shader::{Bodies, compose};
    use hotrow::internals::{LookupBody, RankBody};
    let probe = hotrow::internals::kernels().iter().find(|kernel| kernel.name == "probe").unwrap();
    let text = |rank, lookup| compose(probe, Bodies { rank, lookup, ..Bodies::PLAIN });
    for lookup in LookupBody::ALL {
        let same = RankBody::ALL.map(|rank| text(rank, lookup) == text(RankBody::Portable, lookup));
        assert_eq!(same, [true; 3], "{lookup:?}");
        let others = LookupBody::ALL
            .iter()
            .filter(|&&other| text(RankBody::Portable, other) == text(RankBody::Portable, lookup));
        assert_eq!(others.count(), 1, "{lookup:?}");
        assert!(RankBody::ALL.iter().all(|rank| rank.name() != lookup.name()));
    }
}

#[test]
fn every_shader_file_is_listed() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/shaders");
    let files: BTreeSet<String> = files(folder.as_ref(), &|path| {
        path.ends_with("shared") || path.ends_with("rules") || path.ends_with("formats")
    })
    .into_iter()
    .filter(|path| path.extension().is_some_and(|extension| extension == "wgsl"))
    .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
    .collect();
    assert!(!files.is_empty(), "no shaders in {folder}");
    let sources = hotrow::internals::sources();
    let special = |source: &ComposedShader| source.subgroups || source.float_atomics;
    let listed: Vec<_> = sources.iter().map(|source| (source.name, source.variant, special(source))).collect();
    check_complete(&files, &listed).unwrap();
}

#[test]
fn structs_agree_with_the_host() {
    let structs = hotrow::internals::layout::structs();
    let names: Vec<_> = structs.iter().map(|one| one.name).collect();
    let mut unseen: BTreeSet<_> = names.iter().copied().collect();
    on_each(|source| {
        let module = parse(&source.wgsl)?;
        check_known_structs(&module, &names)?;
        let there = |name: &str| module.types.iter().any(|(_, ty)| ty.name.as_deref() == Some(name));
        for HostStruct { name, size, fields } in structs.iter().filter(|one| there(one.name)) {
            unseen.remove(name);
            let members: Vec<_> = fields.iter().map(|&(member, offset)| (member, as_u32(offset))).collect();
            check_struct(&module, name, as_u32(*size), &members)?;
        }
        Ok(())
    });
    assert!(unseen.is_empty(), "in no shader: {unseen:?}");
}

#[test]
fn constants_agree_with_the_host() {
    let constants = hotrow::internals::shader::constants();
    let mut unseen: BTreeSet<_> = constants.iter().map(|&(name, _)| name).collect();
    on_each(|source| {
        let module = parse(&source.wgsl)?;
        for &(name, value) in &constants {
            if check_constant(&module, name, value)? {
                unseen.remove(name);
            }
        }
        Ok(())
    });
    assert!(unseen.is_empty(), "in no shader: {unseen:?}");
}

#[test]
fn bindings_and_workgroups_agree_with_the_host() {
    let kernels = hotrow::internals::kernels();
    let mut idle: BTreeSet<_> = kernels.iter().map(|kernel| kernel.name).collect();
    on_each(|source| {
        idle.remove(source.name);
        let kernel = kernels.iter().find(|kernel| kernel.name == source.name).ok_or("not in the host's table")?;
        let module = parse(&source.wgsl)?;
        check_bound(&module, kernel, source.sizes)?;
        check_workgroup_size(&module, [kernel.workgroup, 1, 1])
    });
    assert!(idle.is_empty(), "in the host's table only: {idle:?}");
}

fn as_u32(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("a struct of less than 4 GiB")
}

// ---------------------------------------------------------------------------------------------------------------------
// Companions: the checks reject wrong shaders, and accept their right neighbours.

/// A right shader: workgroup memory, a uniform struct, both kinds of storage.
const GOOD: &str = "
const WIDTH: u32 = 64u;
const TILE: u32 = 64u;
struct Params { count: u32, scale: f32, @align(16) origin: vec3<f32>, last: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> source: array<u32>;
@group(0) @binding(2) var<storage, read_write> sink: array<u32>;
var<workgroup> tile: array<u32, TILE>;
@compute @workgroup_size(WIDTH)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    tile[lane] = source[id.x];
    workgroupBarrier();
    if (id.x < params.count) { sink[id.x] = tile[WIDTH - 1u - lane]; }
}";

const VOTE: &str = "
@group(0) @binding(0) var<storage, read_write> sink: array<u32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let word = subgroupBallot(sink[id.x] > 3u);
    sink[id.x] = word.x;
}";

/// A shader with `count` storage buffers, all of them used.
fn with_buffers(count: u32) -> String {
    let declarations: String =
        (0..count).map(|i| format!("@group(0) @binding({i}) var<storage, read_write> b{i}: array<u32>;\n")).collect();
    let uses: String = (0..count).map(|i| format!("b{i}[0] = 1u; ")).collect();
    format!("{declarations}@compute @workgroup_size(1) fn main() {{ {uses} }}")
}

#[track_caller]
fn rejected<T>(result: Result<T, String>, because: &str) {
    match result {
        Ok(_) => panic!("accepted, though: {because}"),
        Err(error) => assert!(error.contains(because), "rejected for another reason than '{because}': {error}"),
    }
}

fn valid(wgsl: &str) -> (Module, ModuleInfo) {
    let module = parse(wgsl).unwrap_or_else(|error| panic!("{error}"));
    let info = validate(&module, wgsl, true).unwrap_or_else(|error| panic!("{error}"));
    (module, info)
}

/// The right shader with so many words of workgroup memory.
fn with_tile(words: u32) -> String {
    GOOD.replace("TILE: u32 = 64u", &format!("TILE: u32 = {words}u"))
}

#[test]
fn right_shaders_are_accepted() {
    check_all(GOOD, false, MAX_STORAGE_BUFFERS).unwrap();
    check_all(&with_tile(4096), false, MAX_STORAGE_BUFFERS).unwrap();
    check_all(VOTE, true, MAX_STORAGE_BUFFERS).unwrap();
    check_all(&with_buffers(8), false, MAX_STORAGE_BUFFERS).unwrap();
}

#[test]
fn syntax_and_type_errors_are_rejected() {
    rejected(parse("@compute fn main( {"), "expected");
    rejected(parse("@compute @workgroup_size(1) fn main() { let x: u32 = 1.5; }"), "type");
    rejected(parse(&format!("enable subgroups;{VOTE}")), "subgroups");
}

#[test]
fn optional_capabilities_are_rejected_in_portable_shaders() {
    let module = parse(VOTE).unwrap();
    rejected(validate(&module, VOTE, false), "subgroup");
    validate(&module, VOTE, true).unwrap();
    rejected(check_all(VOTE, false, MAX_STORAGE_BUFFERS), "subgroup");

    for (wgsl, because) in [
        ("fn f() -> u64 { return 1lu; }", "SHADER_INT64"),
        ("enable f16; fn f() -> f16 { return 1.0h; }", "FLOAT16"),
        ("var<workgroup> x: atomic<f32>; fn f() { atomicAdd(&x, 1.0); }", "SHADER_FLOAT32_ATOMIC"),
        ("fn f() { subgroupBarrier(); }", "SUBGROUP_BARRIER"),
    ] {
        let module = parse(wgsl).unwrap_or_else(|error| panic!("{error}"));
        rejected(validate(&module, wgsl, true), because);
    }
}

/// The native addition may use float atomics in a storage buffer, and nothing more.
#[test]
fn float_atomics_are_checked() {
    let adds = |ty: &str, body: &str| {
        format!(
            "@group(0) @binding(0) var<storage, read_write> sums: array<{ty}>;
            @compute @workgroup_size(64) fn main(@builtin(local_invocation_index) i: u32) {{ {body} }}"
        )
    };
    let right = adds("atomic<f32>", "atomicAdd(&sums[i], 1.0);");
    check_float_atomics(&right).unwrap();
    rejected(check_all(&right, false, MAX_STORAGE_BUFFERS), "SHADER_FLOAT32_ATOMIC");
    rejected(check_float_atomics(&adds("atomic<f32>", "atomicMax(&sums[i], 1.0);")), "atomic");
    rejected(check_float_atomics(&adds("u32", "sums[i] = subgroupAdd(i);")), "ubgroup");
    rejected(check_float_atomics("@compute @workgroup_size(64) fn other() {}"), "other");
}

#[test]
fn directives_are_rejected() {
    check_directives("// enable f16;\nfn f() {}").unwrap();
    rejected(check_directives("enable f16;\nfn f() {}"), "enable f16");
    rejected(check_directives("  requires unrestricted_pointer_parameters;"), "requires");
    rejected(check_directives("#include \"shared/hash.wgsl\""), "#include");
    rejected(check_directives("override WIDTH: u32 = 64u;"), "override");
}

#[test]
fn other_entry_points_are_rejected() {
    check_entry(&parse(GOOD).unwrap()).unwrap();
    rejected(check_entry(&parse("fn f() {}").unwrap()), "found []");
    rejected(check_entry(&parse("@compute @workgroup_size(1) fn probe() {}").unwrap()), "probe");
    rejected(check_entry(&parse("@fragment fn main() {}").unwrap()), "compute");
    let two = "@compute @workgroup_size(1) fn main() {} @compute @workgroup_size(1) fn other() {}";
    rejected(check_entry(&parse(two).unwrap()), "other");
}

#[test]
fn hlsl_that_dxc_refuses_is_rejected() {
    let main = |head: &str, body: &str| {
        let to = "@group(0) @binding(0) var<storage, read_write> to: array<vec4<f32>>;";
        check_hlsl_names(&parse(&format!("{to} {head} {{ {body} }}")).unwrap())
    };
    let entry = "@compute @workgroup_size(32) fn main";
    let lane = |builtin: &str| {
        main(&format!("struct Lane {{ @builtin({builtin}) i: u32 }} {entry}(lane: Lane)"), "to[lane.i].x = 1.0;")
    };
    rejected(lane("subgroup_invocation_id"), "in a struct");
    rejected(lane("num_subgroups"), "in a struct");
    lane("local_invocation_index").unwrap();
    main(&format!("{entry}(@builtin(subgroup_invocation_id) i: u32)"), "to[i].x = 1.0;").unwrap();
    let alias = format!("alias Quad = vec4<f32>; {entry}()");
    rejected(main(&alias, "to[0] = to[1] * Quad();"), "a zero value of Some(\"Quad\")");
    rejected(main(&alias, "to[0] = to[1] * vec4<f32>() + Quad();"), "a zero value");
    main(&alias, "to[0] = to[1] * vec4<f32>() + Quad(0.0);").unwrap();
    let arrays = "let i = u32(to[0].x); to[0] = array<Quad, 2>()[i] + array<vec4<f32>, 2>()[i];";
    rejected(main(&alias, arrays), "a zero value");
}

#[test]
fn too_many_buffers_are_rejected() {
    check_buffers(&parse(&with_buffers(8)).unwrap(), MAX_STORAGE_BUFFERS).unwrap();
    rejected(check_buffers(&parse(&with_buffers(9)).unwrap(), MAX_STORAGE_BUFFERS), "9 storage buffers");
    rejected(check_pipeline(&with_buffers(9), false, MAX_STORAGE_BUFFERS), "max_storage_buffers_per_shader_stage");
    // The limit of a windowed cache, and one buffer more.
    let three = Sizes { windows: 2, pieces: 2, ..Sizes::ONE };
    check_buffers(&parse(&with_buffers(10)).unwrap(), most_buffers(three)).unwrap();
    check_pipeline(&with_buffers(10), false, most_buffers(three)).unwrap();
    rejected(check_buffers(&parse(&with_buffers(11)).unwrap(), most_buffers(three)), "11 storage buffers");
    rejected(check_pipeline(&with_buffers(11), false, most_buffers(three)), "max_storage_buffers_per_shader_stage");
    let uniforms: String = (0..13).map(|i| format!("@group(0) @binding({i}) var<uniform> u{i}: u32;\n")).collect();
    rejected(check_buffers(&parse(&uniforms).unwrap(), MAX_STORAGE_BUFFERS), "13 uniform buffers");
    rejected(
        check_buffers(&parse("@group(4) @binding(0) var<uniform> u: u32;").unwrap(), MAX_STORAGE_BUFFERS),
        "bind group 4",
    );
}

#[test]
fn too_large_workgroups_are_rejected() {
    let sized = |size: &str| valid(&format!("@compute @workgroup_size({size}) fn main() {{}}")).0;
    check_workgroup(&sized("256")).unwrap();
    check_workgroup(&sized("16, 16")).unwrap();
    rejected(check_workgroup(&sized("512")), "512");
    rejected(check_workgroup(&sized("16, 16, 2")), "[16, 16, 2]");
    rejected(check_workgroup(&sized("1, 1, 128")), "z 64");
    rejected(check_pipeline("@compute @workgroup_size(512) fn main() {}", false, MAX_STORAGE_BUFFERS), "512");
}

#[test]
fn too_much_workgroup_memory_is_rejected() {
    check_workgroup(&valid(&with_tile(4096)).0).unwrap();
    rejected(check_workgroup(&valid(&with_tile(4097)).0), "16400 bytes");
    let two = with_tile(4096)
        .replace("var<workgroup> tile", "var<workgroup> flag: u32;\nvar<workgroup> tile")
        .replace("workgroupBarrier", "flag = 1u; workgroupBarrier");
    rejected(check_workgroup(&valid(&two).0), "16400 bytes");
}

#[test]
fn untranslatable_shaders_are_rejected() {
    let (module, info) = valid(VOTE);
    check_translations(&module, &info, true).unwrap();
    rejected(to_spirv(&module, &info, (1, 3), &[]), "GroupNonUniform");
    rejected(to_hlsl(&valid("fn main() {}").0, &valid("fn main() {}").1, false), "HLSL");
    rejected(entry_written::<String>(&[Err("missing binding".to_owned())]), "missing binding");
    rejected(entry_written::<String>(&[]), "0 entry points");
}

#[test]
fn what_wgpu_refuses_is_rejected() {
    check_pipeline(GOOD, false, MAX_STORAGE_BUFFERS).unwrap();
    rejected(check_pipeline("@compute @workgroup_size(1) fn other() {}", false, MAX_STORAGE_BUFFERS), "main");
    rejected(check_pipeline("fn main( {", false, MAX_STORAGE_BUFFERS), "wgpu");
    rejected(check_pipeline(VOTE, false, MAX_STORAGE_BUFFERS), "ubgroup");
}

#[test]
fn forgotten_shaders_are_rejected() {
    let files: BTreeSet<String> = ["probe", "gather"].map(String::from).into();
    let right = [("probe", "", false), ("gather", "", false), ("gather", "subgroup32", true)];
    check_complete(&files, &right).unwrap();
    rejected(check_complete(&files, &right[..1]), "gather.wgsl is never checked");
    rejected(check_complete(&files, &[right[0], right[2]]), "no portable variant");
    rejected(check_complete(&files, &[right[0], right[1], right[1]]), "listed twice");
    rejected(check_complete(&files, &[right[0], right[1], ("sort", "", false)]), "no file");
}

#[test]
fn disagreeing_structs_are_rejected() {
    let module = parse(GOOD).unwrap();
    let right = [("count", 0), ("scale", 4), ("origin", 16), ("last", 28)];
    check_struct(&module, "Params", 32, &right).unwrap();
    rejected(check_struct(&module, "Param", 32, &right), "not in the shader");
    rejected(check_struct(&module, "Params", 28, &right), "32 bytes in the shader, 28 on the host");
    rejected(check_struct(&module, "Params", 32, &right[..3]), "members");
    rejected(check_struct(&module, "Params", 32, &[right[1], right[0], right[2], right[3]]), "members");
    rejected(check_struct(&module, "Params", 32, &[("size", 0), right[1], right[2], right[3]]), "members");
    rejected(check_struct(&module, "Params", 32, &[right[0], right[1], ("origin", 8), right[3]]), "members");
}

#[test]
fn disagreeing_constants_are_rejected() {
    let module = parse("const DIRTY: u32 = 1u; const LAST: i32 = 1; fn f() -> u32 { return DIRTY; }").unwrap();
    assert_eq!(check_constant(&module, "DIRTY", 1), Ok(true));
    assert_eq!(check_constant(&module, "PINNED", 2), Ok(false));
    rejected(check_constant(&module, "DIRTY", 2), "2u on the host");
    rejected(check_constant(&module, "LAST", 1), "LAST");
}

#[test]
fn unknown_structs_are_rejected() {
    let module = parse(GOOD).unwrap();
    check_known_structs(&module, &["Params", "Step"]).unwrap();
    rejected(check_known_structs(&module, &["Step"]), "struct Params");
    let listed = parse("struct Row { a: u32 } @group(0) @binding(0) var<storage> rows: array<Row>;").unwrap();
    rejected(check_known_structs(&listed, &[]), "struct Row");
    // A struct that no buffer holds needs no host struct.
    check_known_structs(&parse("struct Lane { a: u32 } fn f(lane: Lane) {}").unwrap(), &[]).unwrap();
}

#[test]
fn disagreeing_bindings_are_rejected() {
    let module = parse(GOOD).unwrap();
    let right = [(0, "params", Access::Uniform), (1, "source", Access::Read), (2, "sink", Access::ReadWrite)];
    check_bindings(&module, &right).unwrap();
    check_bindings(&module, &[right[2], right[0], right[1]]).unwrap();
    rejected(check_bindings(&module, &right[..2]), "binding 2");
    rejected(check_bindings(&module, &[right[0], right[1], right[2], (3, "more", Access::Uniform)]), "binding 3");
    rejected(check_bindings(&module, &[right[0], right[1], right[2], right[2]]), "twice");
    rejected(check_bindings(&module, &[right[0], (1, "source", Access::ReadWrite), right[2]]), "binding 1");
    rejected(check_bindings(&module, &[right[0], (1, "sink", Access::Read), right[2]]), "binding 1");
    let far = parse("@group(1) @binding(0) var<uniform> far: u32;").unwrap();
    rejected(check_bindings(&far, &[(0, "far", Access::Uniform)]), "bind group 1");
}

#[test]
fn disagreeing_workgroup_sizes_are_rejected() {
    let module = valid(GOOD).0;
    check_workgroup_size(&module, [64, 1, 1]).unwrap();
    rejected(check_workgroup_size(&module, [128, 1, 1]), "[128, 1, 1]");
}

#[test]
fn isa_figures_are_of_these_texts() {
    const FAMILIES: [&str; 4] = ["navi21", "vega20", "gfx1201", "ampere"];
    let csv = include_str!("../benches/results/isa.csv");
    let stale = isa::stale(csv, &FAMILIES).unwrap();
    assert!(stale.is_empty(), "benches/results/isa.csv: run scripts/isa and commit it:\n{}", stale.join("\n"));
    // A row of another text, a row that is gone, and a row of no text are each found.
    let row = csv.lines().nth(9).unwrap();
    let (start, hash) = row.rsplit_once(',').unwrap();
    let [_, family, kernel, text, mode, ..] = row.split(',').collect::<Vec<_>>()[..] else { panic!("{row}") };
    for (instead, fault) in [
        (format!("{start},{:016x}\n", u64::from_str_radix(hash, 16).unwrap() ^ 1), "of an older text"),
        (String::new(), "no row"),
        (format!("{row}\n{}\n", row.replace(text, "no text")), "no such text"),
    ] {
        let text = if fault == "no such text" { "no text" } else { text };
        let planted = csv.replace(&format!("{row}\n"), &instead);
        assert_eq!(isa::stale(&planted, &FAMILIES).unwrap(), [format!("{family} {kernel} {text} {mode}: {fault}")]);
    }
    assert!(isa::stale("head\na,b", &FAMILIES).is_err());
}
