//! `hotrow bench capture`: a step's dispatches as plain files with an index. `hotrow bench replay` runs them again.

use super::common::Table;
use anyhow::{Context as _, anyhow, ensure};
use hotrow::internals::{self, layout, shader, shader::Access};
use hotrow::{Bags, Context, Group, Init, Mode, Policy, Pooling, prelude::*};
use hotrow_report::clock::gradients;
use hotrow_report::failure::{Failure, ensure_usage};
use hotrow_report::names::{admitting, one_of};
use hotrow_report::options::{Options, whole};
use hotrow_report::output;
use hotrow_report::run::{Machine, Run};
use naga::{ShaderStage, back};
use serde::{Deserialize, Serialize};
use std::fs;
use std::hash::{DefaultHasher, Hasher as _};
use std::path::{Path, PathBuf};

/// Write a step's dispatches into a folder: texts, constants, grids, and every bound buffer before and after
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    to: Dir,
    /// A trace whose bags are looked up: a file, a name in the data folder, or generated; see `hotrow simulate --help`
    #[arg(long, value_name = "T", default_value = "zipf:rows=5000,s=1.05,n=15000")]
    trace: String,
    #[command(flatten)]
    table: Table,
    /// Replacement policy
    #[arg(long, default_value_t = Policy::Lru, value_parser = one_of(admitting()))]
    policy: Policy,
    /// What is made of a bag's rows
    #[arg(long, default_value_t = Pooling::Sum, value_parser = one_of(Pooling::ALL))]
    pooling: Pooling,
    /// Bags of a batch
    #[arg(long, value_name = "N", default_value_t = 400, value_parser = whole(1u32..=1 << 20))]
    batch: u32,
    /// Steps before the one that is captured
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = whole(0u32..=1 << 16))]
    warm: u32,
}

/// Run a capture's dispatches again, each from its own buffers, and compare what they leave bit for bit
#[derive(Debug, clap::Args)]
pub(super) struct Dir {
    /// Folder of the capture
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

/// A dispatch in `index.json`. The text's file is `texts/TEXT.wgsl`; its entry point is `main`.
#[derive(Serialize, Deserialize)]
struct Dispatch {
    kernel: String,
    text: String,
    constants: serde_json::Value,
    /// Workgroups in x and y.
    grid: [u32; 2],
    /// Those of group 0 in the order of their numbers.
    bindings: Vec<Binding>,
}

/// A bound range. Its files are `buffers/BEFORE.bin` and `buffers/AFTER.bin`; equal ranges share a file.
#[derive(Serialize, Deserialize)]
struct Binding {
    name: String,
    kind: String,
    bytes: usize,
    before: String,
    after: String,
    /// Each of the first so many words goes with the word as far behind that word. The order of these pairs is free.
    pairs: Option<[usize; 2]>,
    /// Of each so many words only the sum is fixed.
    sums: Option<usize>,
}

impl Binding {
    /// The words of a file, in one of their orders; `None` if it is shorter than its list.
    fn settled(&self, mut words: Vec<u32>) -> Option<Vec<u32>> {
        if let Some([number, second]) = self.pairs {
            let seconds = words.get(second..second.checked_add(number)?)?;
            let mut pairs: Vec<_> = words.get(..number)?.iter().copied().zip(seconds.iter().copied()).collect();
            pairs.sort_unstable();
            pairs.into_iter().enumerate().for_each(|(at, pair)| (words[at], words[second + at]) = pair);
        }
        let sum = |part: &[u32]| part.iter().fold(0, |sum: u32, word| sum.wrapping_add(*word));
        Some(self.sums.map_or(words.clone(), |of| words.chunks(of.max(1)).map(sum).collect()))
    }

    fn words(&self, folder: &Path, stem: &str) -> anyhow::Result<Vec<u32>> {
        let bytes = read(folder, "buffers", stem, "bin").with_context(|| self.name.clone())?;
        let (name, wanted, found) = (&self.name, self.bytes, bytes.len());
        ensure!(
            wanted == found && found.is_multiple_of(4),
            "{name}: wanted {wanted} bytes in buffers/{stem}.bin, found {found}; copy the whole folder, or capture again"
        );
        Ok(bytemuck::pod_collect_to_vec(&bytes))
    }
}

fn kind(access: Access) -> &'static str {
    match access {
        Access::Uniform => "uniform",
        Access::Read => "read",
        Access::ReadWrite => "read_write",
    }
}

/// The device. A software driver is one only for `--backend gpu`.
fn device(options: &Options) -> Result<Context, Failure> {
    let opened = options.backend.open("running")?;
    opened.ok_or_else(|| {
        Failure::Usage(
            "--backend: wanted a device for kernels, found the CPU; --backend gpu takes a software driver too".into(),
        )
    })
}

pub(super) fn run(options: &Options, args: &Args) -> Result<(), Failure> {
    let (folder, name) = (&args.to.dir, args.to.dir.display());
    ensure_usage!(
        fs::read_dir(folder).map_or_else(|_| !folder.exists(), |mut files| files.next().is_none()),
        "{name}: wanted a new or an empty folder, found something there; name another"
    );
    let trace = options.trace(&args.trace, &args.table.reading, None)?;
    let offsets = args.table.bags(&trace)?;
    let (bags, batch, steps) = (offsets.len() - 1, args.batch as usize, args.warm as usize + 1);
    ensure_usage!(
        batch * steps <= bags,
        "--batch: wanted {steps} batches of the {bags} bags of {}, found --batch {batch}; take fewer, or a longer trace",
        trace.name
    );
    let context = internals::capturing(&device(options)?);
    let config = args.table.config(&trace, options.group_seed()).with_policy(args.policy).with_pooling(args.pooling);
    let config = config.with_init(Init::Uniform { low: -1.0, high: 1.0 });
    let (mut group, mut kept) = (Group::new(&context, config.clone())?, Vec::new());
    for step in offsets[..=batch * steps].windows(batch + 1).step_by(batch) {
        let starts: Vec<u32> = step.iter().map(|start| start - step[0]).collect();
        let outputs =
            group.forward(Bags::new(&trace.ids[step[0] as usize..step[batch] as usize], &starts), Mode::Train)?;
        group.backward(&gradients(outputs.len(), 1e-3))?;
        kept = internals::captured(&context)?;
    }
    let dispatches = kept.iter().map(|dispatch| keep(folder, dispatch).with_context(|| dispatch.kernel));
    let dispatches: Vec<Dispatch> = dispatches.collect::<anyhow::Result<_>>()?;
    let mut run = Run::new("bench capture", None, options.seed, "given");
    run.on(Machine::of(&context));
    let mut index = serde_json::to_value(&run)?;
    index["config"] = serde_json::to_value(&config)?;
    index["dispatches"] = serde_json::to_value(&dispatches)?;
    // Last: a folder without an index is no capture.
    output::write_json(&folder.join("index.json"), &index)?;
    options.write_json(&index)?;
    Ok(output::print(&format!("wrote {} dispatches into {name}", dispatches.len()))?)
}

/// Writes a file under a name made of its bytes, and returns that without its ending.
fn write(folder: &Path, ending: &str, start: &str, bytes: &[u8]) -> anyhow::Result<String> {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    let stem = format!("{start}{:016x}", hasher.finish());
    let path = folder.join(&stem).with_extension(ending);
    if !path.exists() {
        fs::create_dir_all(folder).with_context(|| format!("{}: wanted to make this folder", folder.display()))?;
        output::write_file(&path, bytes)?;
    }
    Ok(stem)
}

/// Writes the files of a dispatch.
fn keep(folder: &Path, dispatch: &internals::Dispatch) -> anyhow::Result<Dispatch> {
    let internals::Dispatch { kernel, text, sizes, grid, bindings, words } = dispatch;
    let (texts, buffers) = (folder.join("texts"), folder.join("buffers"));
    let stem = write(&texts, "wgsl", &format!("{kernel}-"), text.as_bytes())?;
    for (ending, text) in translated(text)? {
        output::write_file(&texts.join(&stem).with_extension(ending), &text)?;
    }
    let (before, after) = words.split_at(bindings.len());
    // Probe lists the misses in any order: keys, then indices; and counts digits of keys by blocks of 3,072 (`shaders/shared/sort.wgsl`).
    let (mut pairs, mut sums) = (None, None);
    if *kernel == "probe" {
        let params: layout::Params = bytemuck::pod_read_unaligned(bytemuck::cast_slice(&before[0]));
        let step: &[u8] = bytemuck::cast_slice(&after[1]);
        let step: layout::Step = bytemuck::pod_read_unaligned(&step[..size_of::<layout::Step>()]);
        pairs = Some([step.counts[layout::count::MISSED] as usize, params.miss_values as usize]);
        sums = Some(params.indices.div_ceil(3072) as usize);
    }
    let bound = |((access, name), (before, after)): (&(_, String), (&Vec<u32>, &Vec<u32>))| {
        let write = |words: &[u32]| write(&buffers, "bin", "", bytemuck::cast_slice(words));
        let (kind, bytes, pairs) = (kind(*access).to_owned(), before.len() * 4, pairs.filter(|_| name == "misses"));
        let (name, sums, before) = (name.clone(), sums.filter(|_| name == "miss_digits"), write(before)?);
        Ok(Binding { name, kind, bytes, before, after: write(after)?, pairs, sums })
    };
    let bindings = bindings.iter().zip(before.iter().zip(after)).map(bound).collect::<anyhow::Result<_>>()?;
    let mut constants = serde_json::json!({ "format": sizes.format });
    let all = [("width", sizes.width), ("windows", sizes.windows), ("pieces", sizes.pieces), ("item", sizes.item)];
    all.into_iter().chain(sizes.constants.named()).for_each(|(name, value)| constants[name] = value.into());
    Ok(Dispatch { kernel: (*kernel).to_owned(), text: stem, constants, grid: *grid, bindings })
}

/// A text for Metal, DX12 and Vulkan by the endings of their files, without checks of bounds. Buffers have the numbers of their bindings; Metal's list of
/// lengths has 30.
fn translated(text: &str) -> anyhow::Result<[(&'static str, Vec<u8>); 3]> {
    use naga::valid::{Capabilities, ValidationFlags, Validator};
    let module = naga::front::wgsl::parse_str(text)?;
    let info = Validator::new(ValidationFlags::all(), Capabilities::all()).validate(&module)?;
    let bound = module.global_variables.iter().filter_map(|(_, variable)| variable.binding);
    let target = |slot| back::msl::BindTarget { buffer: Some(slot), mutable: true, ..Default::default() };
    let resources = bound.map(|at| (at, target(at.binding as u8))).collect();
    let resources = back::msl::EntryPointResources { resources, sizes_buffer: Some(30), ..Default::default() };
    let per_entry_point_map = [("main".to_owned(), resources)].into();
    let options = back::msl::Options { lang_version: (2, 4), per_entry_point_map, ..Default::default() };
    let (metal, _) = back::msl::write_string(&module, &info, &options, &back::msl::PipelineOptions::default())?;
    let options = back::hlsl::Options { shader_model: back::hlsl::ShaderModel::V6_0, ..Default::default() };
    let (mut hlsl, entry_point) = (String::new(), Some((ShaderStage::Compute, "main".to_owned())));
    let pipeline = back::hlsl::PipelineOptions { entry_point };
    back::hlsl::Writer::new(&mut hlsl, &options, &pipeline).write(&module, &info, None)?;
    let options = back::spv::Options { lang_version: (1, 3), ..Default::default() };
    let spirv = back::spv::write_vec(&module, &info, &options, None)?;
    let spirv = spirv.into_iter().flat_map(u32::to_le_bytes).collect();
    Ok([("metal", metal.into()), ("hlsl", hlsl.into()), ("spv", spirv)])
}

/// The bytes of a file that an index names.
fn read(folder: &Path, kind: &str, stem: &str, ending: &str) -> anyhow::Result<Vec<u8>> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    ensure!(stem.chars().all(is_plain), "wanted letters and digits as the name of a file in {kind}, found {stem}");
    fs::read(folder.join(kind).join(stem).with_extension(ending)).map_err(|error| {
        anyhow!("wanted {kind}/{stem}.{ending}, found {error}; copy the whole folder, or capture again")
    })
}

/// Runs a dispatch again. Returns for each binding that it may write the first other word, if there is one.
fn again(folder: &Path, context: &Context, dispatch: &Dispatch) -> anyhow::Result<Vec<Option<String>>> {
    let text = String::from_utf8(read(folder, "texts", &dispatch.text, "wgsl")?)?;
    let number = |name: &str| dispatch.constants[name].as_u64().unwrap_or(1).min(64) as u32;
    let sizes = shader::Sizes { windows: number("windows"), pieces: number("pieces"), ..shader::Sizes::ONE };
    let kernel = internals::kernels().iter().find(|kernel| kernel.name == dispatch.kernel);
    let kernel =
        kernel.context("wanted a kernel of this version, found another; replay with the commit of the index")?;
    let known = shader::bindings(kernel, sizes).into_iter().map(|(access, name)| (kind(access).to_owned(), name));
    let found = dispatch.bindings.iter().map(|bound| (bound.kind.clone(), bound.name.clone()));
    ensure!(known.eq(found), "wanted this version's bindings, found others; replay with the commit of the index");
    let most = context.device().limits().max_compute_workgroups_per_dimension;
    let grid = dispatch.grid;
    ensure!(
        grid.iter().all(|side| (1..=most).contains(side)),
        "wanted a grid of 1 to {most} workgroups a side, found {grid:?}; capture again"
    );
    let is_bound = |bound: &Binding| (4..=1 << 31).contains(&bound.bytes);
    ensure!(
        dispatch.bindings.iter().all(is_bound),
        "wanted bindings of 4 bytes to 2 GiB, found another; capture again"
    );
    let words = |bound: &Binding| bound.words(folder, &bound.before);
    let before: Vec<_> = dispatch.bindings.iter().map(words).collect::<anyhow::Result<_>>()?;
    let found = context.run_text(text, (kernel, sizes), &before, dispatch.grid)?;
    let compared = dispatch.bindings.iter().zip(found).filter(|(bound, _)| bound.kind == "read_write");
    let compare = |(bound, found): (&Binding, _)| {
        let (name, short) = (&bound.name, || format!("{}: wanted its whole list, found fewer words", bound.name));
        let wanted = bound.settled(bound.words(folder, &bound.after)?).with_context(short)?;
        let found = bound.settled(found).with_context(short)?;
        let mut others = wanted.iter().zip(&found).enumerate().filter(|(_, (wanted, found))| wanted != found);
        let Some((word, (wanted, found))) = others.next() else { return Ok(None) };
        let more = others.count();
        Ok(Some(format!("{name}, word {word}: wanted {wanted:#010x}, found {found:#010x}, and {more} more")))
    };
    compared.map(compare).collect()
}

pub(super) fn replay(options: &Options, args: &Dir) -> Result<(), Failure> {
    let path = args.dir.join("index.json");
    let refused = |found: &dyn std::fmt::Display| {
        anyhow!(
            "{}: wanted the index of a capture, found {found}; name a folder of `hotrow bench capture`",
            path.display()
        )
    };
    let text = fs::read(&path).map_err(|error| refused(&error))?;
    let mut index: serde_json::Value = serde_json::from_slice(&text).map_err(|error| refused(&error))?;
    let dispatches = index.get_mut("dispatches").map(serde_json::Value::take).unwrap_or_default();
    let dispatches: Vec<Dispatch> = serde_json::from_value(dispatches).map_err(|error| refused(&error))?;
    if dispatches.is_empty() {
        return Err(refused(&"no dispatch").into());
    }
    let context = device(options)?;
    let (mut compared, mut differing) = (0, 0);
    for (at, dispatch) in dispatches.iter().enumerate() {
        let title = format!("dispatch {at} ({})", dispatch.kernel);
        for other in again(&args.dir, &context, dispatch).with_context(|| title.clone())? {
            compared += 1;
            differing += usize::from(other.is_some());
            other.map_or(Ok(()), |other| output::print(&format!("{title}, {other}")))?;
        }
    }
    let (number, name) = (dispatches.len(), &context.caps().name);
    if differing > 0 {
        return Err(anyhow!("bench replay: wanted {compared} buffers as captured, found {differing} that differ, on {name}; where a driver fuses products and sums, floats differ in their last bits").into());
    }
    options.write_json(&serde_json::json!({ "dispatches": number, "buffers": compared, "device": name }))?;
    Ok(output::print(&format!("{number} dispatches left the captured bits in {compared} buffers, on {name}"))?)
}
