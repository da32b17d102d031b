//! `hotrow-isa TO BODIES [FILE.wgsl ..]`: kernels as wgpu 30 gives them to a Vulkan driver that has `robustBufferAccess2`, for `scripts/isa`.
//!
//! BODIES is `amd`, `amd-native` or `nvidia`: what `Caps` chooses there. Writes SPIR-V of each text to TO, once with wgpu's checks and once
//! without, and `texts.tsv`: the name `kernel.text.mode`, the bytes of shared memory, and the bindings in order, each as `u:name`, `r:name` or
//! `w:name`. The texts are those of `texts.csv`, and every kernel that has no row there, for one window and one piece. With files it writes these
//! instead.
//!
//! `texts.csv` has each kernel with each width, item, number of windows and of pieces that it depends on, any two of these together in some row,
//! and texts with a group's constants. A text for more windows or pieces has all that one for fewer has.

use std::{collections::BTreeSet, error::Error, fmt::Write as _, fs, path::Path, process::ExitCode};

use hotrow::{
    GroupConfig, Layout,
    internals::{
        kernels,
        shader::{AddBody, Bodies, Constants, Cut, Kernel, LookupBody, RankBody, compose},
    },
};
use naga::{
    AddressSpace, Module, ShaderStage, StorageAccess,
    back::spv::{Options, PipelineOptions, WriterFlags, ZeroInitializeWorkgroupMemoryMode, write_vec},
    proc::{BoundsCheckPolicies, BoundsCheckPolicy},
    valid::{Capabilities, ValidationFlags, Validator},
};

type Failed = Box<dyn Error>;

const TEXTS: &str = include_str!("../texts.csv");
/// The most texts of a family.
const MOST: usize = 60;

fn bodies(name: &str) -> Result<Bodies, Failed> {
    let (rank, add, lookup) = match name {
        "amd" => (RankBody::Subgroup64, AddBody::Exchange, LookupBody::Lanes8),
        "amd-native" => (RankBody::Subgroup64, AddBody::Native, LookupBody::Lanes8),
        "nvidia" => (RankBody::Subgroup32, AddBody::Native, LookupBody::Lanes32),
        _ => return Err(format!("wanted amd, amd-native or nvidia, found {name}").into()),
    };
    Ok(Bodies { rank, add, lookup, cut: Cut::ONE })
}

/// The constants of a group, of words such as `int8 adagrad 64`: of its plain calls, or with `any` of all its calls. Without words, none.
fn constants(words: &str) -> Result<Constants, Failed> {
    let (precision, optimizer, dim, any) = match words.split_whitespace().collect::<Vec<_>>()[..] {
        [] => return Ok(Constants::NONE),
        [precision, optimizer, dim] => (precision, optimizer, dim, false),
        [precision, optimizer, dim, "any"] => (precision, optimizer, dim, true),
        _ => return Err(format!("texts.csv: wanted precision, optimiser, dim and perhaps any, found {words}").into()),
    };
    let mut config = GroupConfig::new(&[1000], dim.parse()?).with_precision(precision.parse()?);
    config.optimizer.kind = optimizer.parse()?;
    let params = hotrow::internals::params(&config, &Layout::new(&config, u64::MAX)?, 0, 0);
    Ok(Constants::texts(&params)[usize::from(any)])
}

/// As wgpu-hal 30 (`src/vulkan/adapter.rs` and `device.rs`) for Vulkan 1.3.
fn spirv(wgsl: &str, checked: bool) -> Result<(Module, Vec<u8>), Failed> {
    let module = naga::front::wgsl::parse_str(wgsl).map_err(|error| error.emit_to_string(wgsl))?;
    let info = Validator::new(ValidationFlags::all(), Capabilities::all())
        .validate(&module)
        .map_err(|error| error.emit_to_string(wgsl))?;
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

/// Kernel, name and WGSL of each text.
fn texts(bodies: Bodies) -> Result<Vec<(String, String, String)>, Failed> {
    let composed = |kernel: &Kernel, cut: Cut, name: &str| {
        (kernel.name.to_owned(), name.replace(' ', "_"), compose(kernel, bodies.cut(cut)))
    };
    let (mut all, mut named) = (Vec::new(), BTreeSet::new());
    for row in TEXTS.lines().skip(1) {
        let [name, text, width, item, windows, pieces, words] = row.split(',').collect::<Vec<_>>()[..] else {
            return Err(format!("texts.csv: wanted 7 columns, found {row}").into());
        };
        let kernel = kernels()
            .iter()
            .find(|kernel| kernel.name == name)
            .ok_or(format!("texts.csv: no kernel {name}: mend the row"))?;
        let [width, windows, pieces, item] = [width.parse()?, windows.parse()?, pieces.parse()?, item.parse()?];
        let cut = Cut { width, windows, pieces, item, constants: constants(words)? };
        all.push(composed(kernel, cut.of(kernel), text));
        named.insert(name);
    }
    for kernel in kernels().iter().filter(|kernel| !named.contains(kernel.name)) {
        all.push(composed(kernel, Cut::ONE, "-"));
    }
    if all.len() > MOST {
        return Err(
            format!("wanted at most {MOST} texts, found {}: take rows from tests/isa/texts.csv", all.len()).into()
        );
    }
    Ok(all)
}

fn run() -> Result<(), Failed> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [to, family, files @ ..] = &arguments[..] else { return Err("wanted TO BODIES [FILE.wgsl ..]".into()) };
    let to = Path::new(to);
    fs::create_dir_all(to)?;
    let all = if files.is_empty() {
        texts(bodies(family)?)?
    } else {
        let stem = |file| Path::new(file).file_stem().unwrap_or_default().to_string_lossy().into_owned();
        files
            .iter()
            .map(|file| Ok((stem(file), "-".to_owned(), fs::read_to_string(file)?)))
            .collect::<Result<_, Failed>>()?
    };
    let mut listed = String::new();
    for (kernel, text, wgsl) in all {
        for (mode, checked) in [("checked", true), ("trusted", false)] {
            let name = format!("{kernel}.{text}.{mode}");
            let (module, words) = spirv(&wgsl, checked).map_err(|error| format!("{name}: {error}"))?;
            fs::write(to.join(format!("{name}.spv")), words)?;
            let shared = module.global_variables.iter().filter(|(_, one)| one.space == AddressSpace::WorkGroup);
            let bytes: u32 = shared.map(|(_, one)| module.types[one.ty].inner.size(module.to_ctx())).sum();
            writeln!(listed, "{name}\t{bytes}\t{}", bindings(&module))?;
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
