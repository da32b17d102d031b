//! `hotrow-isa TO FAMILY [FILE.wgsl ..]`: kernels as wgpu 30 gives them to a Vulkan driver that has `robustBufferAccess2`, for `scripts/isa`.
//!
//! FAMILY is `navi21`, `vega20`, `gfx1201` or `ampere`: a text has the bodies that `Caps` chooses there. Writes SPIR-V of each text to TO, once with
//! wgpu's checks and once without, and `texts.tsv`: the name `kernel.text.mode`, the bytes of shared memory, the bindings in order, each as
//! `u:name`, `r:name` or `w:name`, and the hash of the WGSL. The texts are those of `hotrow_harness::isa`. With files it writes these instead.
//!
//! `hotrow-isa TO hlsl FILE.wgsl ..`: each file as HLSL as wgpu 30 gives it to Microsoft's compilers, with wgpu's checks and without, for
//! `scripts/portability dxc` and `fxc`.

use std::{error::Error, fmt::Write as _, fs, path::Path, process::ExitCode};

use hotrow_harness::isa::{Text, texts};
use naga::{
    AddressSpace, Module, ShaderStage, StorageAccess,
    back::{
        hlsl,
        spv::{Options, PipelineOptions, WriterFlags, ZeroInitializeWorkgroupMemoryMode, write_vec},
    },
    proc::{BoundsCheckPolicies, BoundsCheckPolicy},
    valid::{Capabilities, ModuleInfo, ValidationFlags, Validator},
};

type Failed = Box<dyn Error>;

fn parsed(wgsl: &str) -> Result<(Module, ModuleInfo), Failed> {
    let module = naga::front::wgsl::parse_str(wgsl).map_err(|error| error.emit_to_string(wgsl))?;
    let info = Validator::new(ValidationFlags::all(), Capabilities::all())
        .validate(&module)
        .map_err(|error| error.emit_to_string(wgsl))?;
    Ok((module, info))
}

/// As wgpu-hal 30 (`src/dx12/device.rs`). Naga writes the same text for every shader model from 5.1 to 6.6.
fn hlsl(wgsl: &str, checked: bool) -> Result<String, Failed> {
    let (module, info) = parsed(wgsl)?;
    let target = |space, register| hlsl::BindTarget { space, register, restrict_indexing: true, ..Default::default() };
    let bound = module.global_variables.iter().filter_map(|(_, one)| one.binding);
    let options = hlsl::Options {
        shader_model: hlsl::ShaderModel::V6_0,
        binding_map: bound.map(|at| (at, target(u8::try_from(at.group).unwrap_or(u8::MAX), at.binding))).collect(),
        fake_missing_bindings: false,
        special_constants_binding: Some(target(250, 0)),
        zero_initialize_workgroup_memory: false,
        restrict_indexing: checked,
        force_loop_bounding: checked,
        ..hlsl::Options::default()
    };
    let pipeline = hlsl::PipelineOptions { entry_point: Some((ShaderStage::Compute, "main".into())) };
    let mut text = String::new();
    hlsl::Writer::new(&mut text, &options, &pipeline).write(&module, &info, None)?;
    Ok(text)
}

/// As wgpu-hal 30 (`src/vulkan/adapter.rs` and `device.rs`) for Vulkan 1.3.
fn spirv(wgsl: &str, checked: bool) -> Result<(Module, Vec<u8>), Failed> {
    let (module, info) = parsed(wgsl)?;
    let policy = BoundsCheckPolicy::Unchecked;
    let options = Options {
        lang_version: (1, 6),
        flags: WriterFlags::LABEL_VARYINGS | WriterFlags::FORCE_POINT_SIZE,
        capabilities: None,
        bounds_check_policies: BoundsCheckPolicies {
            index: if checked { BoundsCheckPolicy::Restrict } else { policy },
            buffer: policy,
            image_load: policy,
            binding_array: policy,
        },
        zero_initialize_workgroup_memory: ZeroInitializeWorkgroupMemoryMode::None,
        force_loop_bounding: checked,
        emit_int_div_checks: checked,
        ..Options::default()
    };
    let pipeline = PipelineOptions { shader_stage: ShaderStage::Compute, entry_point: "main".into() };
    let words = write_vec(&module, &info, &options, Some(&pipeline))?;
    Ok((module, words.iter().flat_map(|word| word.to_le_bytes()).collect()))
}

/// The bindings of a text in order.
fn bindings(module: &Module) -> String {
    let mut all: Vec<_> =
        module.global_variables.iter().filter_map(|(_, one)| Some((one.binding?.binding, one))).collect();
    all.sort_by_key(|(binding, _)| *binding);
    let words = all.iter().map(|(_, one)| {
        let access = match one.space {
            AddressSpace::Uniform => 'u',
            AddressSpace::Storage { access } if access.contains(StorageAccess::STORE) => 'w',
            _ => 'r',
        };
        format!("{access}:{}", one.name.as_deref().unwrap_or_default())
    });
    words.collect::<Vec<_>>().join(" ")
}

fn run() -> Result<(), Failed> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [to, family, files @ ..] = &arguments[..] else { return Err("wanted TO FAMILY [FILE.wgsl ..]".into()) };
    let to = Path::new(to);
    fs::create_dir_all(to)?;
    let all = if files.is_empty() {
        texts(family)?
    } else {
        let stem = |file| Path::new(file).file_stem().unwrap_or_default().to_string_lossy().into_owned();
        files
            .iter()
            .map(|file| Ok(Text::new(&stem(file), "-", fs::read_to_string(file)?)))
            .collect::<Result<_, Failed>>()?
    };
    let mut listed = String::new();
    for Text { kernel, name, wgsl, hash } in all {
        for (mode, checked) in [("checked", true), ("trusted", false)] {
            let name = format!("{kernel}.{name}.{mode}");
            if family == "hlsl" {
                let text = hlsl(&wgsl, checked).map_err(|error| format!("{name}: {error}"))?;
                fs::write(to.join(format!("{name}.hlsl")), text)?;
                continue;
            }
            let (module, words) = spirv(&wgsl, checked).map_err(|error| format!("{name}: {error}"))?;
            fs::write(to.join(format!("{name}.spv")), words)?;
            let shared = module.global_variables.iter().filter(|(_, one)| one.space == AddressSpace::WorkGroup);
            let bytes: u32 = shared.map(|(_, one)| module.types[one.ty].inner.size(module.to_ctx())).sum();
            writeln!(listed, "{name}\t{bytes}\t{}\t{hash}", bindings(&module))?;
        }
    }
    Ok(fs::write(to.join("texts.tsv"), listed)?)
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hotrow-isa: {error}");
            ExitCode::FAILURE
        }
    }
}
