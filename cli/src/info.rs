//! `hotrow info`: adapters, what each gets and why, and a self-test.

use crate::failure::Failure;
use crate::options::{Backend, Options};
use crate::output;
use crate::self_test::{self, Case};
use anyhow::anyhow;
use hotrow::{Caps, Context, RankBody, adapter, requirements, wgpu};
use serde::Serialize;

/// Adapters, limits, which kernels and memory paths each gets and why, and a self-test
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Leave the self-test out
    #[arg(long)]
    no_self_test: bool,
}

/// Everything found out. The fields and their order are the schema of `--json`.
#[derive(Clone, Debug, Serialize)]
struct Info {
    version: &'static str,
    /// What a subcommand with `--backend auto` computes on: an adapter's name, or "cpu".
    auto: String,
    adapters: Vec<Adapter>,
    cpu: Cpu,
    /// What to do for more or better adapters.
    remedy: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
struct Adapter {
    name: String,
    backend: String,
    driver: String,
    device_type: String,
    hardware: bool,
    limits: Limits,
    rank: &'static str,
    rank_why: String,
    /// How floats in memory are added to atomically.
    add: &'static str,
    memory: Memory,
    timestamps: bool,
    /// Why it gives no device that will do; null if it does.
    unusable: Option<String>,
    /// Null if it was not run.
    self_test: Option<Vec<Case>>,
}

/// The adapter's own; a device may have less.
#[derive(Clone, Debug, Serialize)]
struct Limits {
    binding_bytes: u64,
    buffer_bytes: u64,
    storage_buffers: u32,
    invocations: u32,
    shared_bytes: u32,
    groups: u32,
    offset_alignment: u32,
    subgroup_min: u32,
    subgroup_max: u32,
}

#[derive(Clone, Debug, Serialize)]
struct Memory {
    device: bool,
    mapped: bool,
    mapped_why: &'static str,
    shard_bytes: u64,
    cache_bytes: u64,
}

#[derive(Clone, Debug, Serialize)]
struct Cpu {
    threads: usize,
    self_test: Option<Vec<Case>>,
}

/// Runs the subcommand.
pub(crate) fn run(options: &Options, args: &Args) -> Result<(), Failure> {
    let found = if options.backend == Backend::Cpu { Vec::new() } else { adapter::adapters() };
    let adapters: Vec<Adapter> = found.iter().map(|adapter| examine(adapter, options, args)).collect();
    let auto = adapters.iter().find(|adapter| adapter.hardware && adapter.unusable.is_none());
    let info = Info {
        version: env!("CARGO_PKG_VERSION"),
        auto: auto.map_or_else(|| "cpu".to_owned(), |adapter| adapter.name.clone()),
        cpu: Cpu {
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            self_test: (!args.no_self_test).then(|| self_test::cpu(options.group_seed())),
        },
        remedy: (options.backend != Backend::Cpu && auto.is_none()).then(|| remedy(&adapters)),
        adapters,
    };
    if let Some(path) = &options.json {
        output::write_json(path, &info)?;
    }
    output::print(&text(&info, options.backend))?;
    let tests = info.adapters.iter().filter_map(|adapter| adapter.self_test.as_ref()).chain(&info.cpu.self_test);
    let failed = tests.flatten().filter(|case| !case.passed).count();
    if failed > 0 {
        return Err(anyhow!("self-test: {failed} cases failed; report them with the text above").into());
    }
    if options.backend == Backend::Gpu && info.adapters.iter().all(|adapter| adapter.unusable.is_some()) {
        return Err(
            anyhow!("--backend gpu: wanted an adapter that will do, found none; {}", remedy(&info.adapters)).into()
        );
    }
    Ok(())
}

fn examine(adapter: &wgpu::Adapter, options: &Options, args: &Args) -> Adapter {
    let (info, limits) = (adapter.get_info(), adapter.limits());
    let opened = adapter::open(adapter);
    let caps = match &opened {
        Ok(context) => context.caps().clone(),
        Err(_) => {
            let (features, limits) = requirements(adapter);
            Caps::from_parts(&info, features, &limits)
        }
    };
    let test = |context: &Context| self_test::gpu(context, options.group_seed());
    Adapter {
        name: info.name.clone(),
        backend: format!("{:?}", info.backend),
        driver: format!("{} {}", info.driver, info.driver_info).trim().to_owned(),
        device_type: format!("{:?}", info.device_type),
        hardware: adapter::is_hardware(adapter),
        limits: Limits {
            binding_bytes: limits.max_storage_buffer_binding_size,
            buffer_bytes: limits.max_buffer_size,
            storage_buffers: limits.max_storage_buffers_per_shader_stage,
            invocations: limits.max_compute_invocations_per_workgroup,
            shared_bytes: limits.max_compute_workgroup_storage_size,
            groups: limits.max_compute_workgroups_per_dimension,
            offset_alignment: limits.min_storage_buffer_offset_alignment,
            subgroup_min: info.subgroup_min_size,
            subgroup_max: info.subgroup_max_size,
        },
        rank: caps.choose_rank().name(),
        rank_why: rank_why(&caps),
        memory: Memory {
            device: true,
            mapped: caps.mappable,
            mapped_why: if caps.mappable {
                "it has MAPPABLE_PRIMARY_BUFFERS"
            } else {
                "it lacks MAPPABLE_PRIMARY_BUFFERS"
            },
            shard_bytes: caps.choose_shard_bytes(),
            cache_bytes: u64::from(caps.choose_windows()) * caps.choose_shard_bytes(),
        },
        add: caps.choose_add().name(),
        timestamps: caps.timestamps,
        self_test: opened.as_ref().ok().filter(|_| !args.no_self_test).map(test),
        unusable: opened.err().map(|error| error.to_string()),
    }
}

fn rank_why(caps: &Caps) -> String {
    match (caps.choose_rank(), caps.subgroup) {
        (RankBody::Subgroup32, _) => "every subgroup has 32 lanes".to_owned(),
        (RankBody::Portable, None) => "it has no subgroup operations".to_owned(),
        (RankBody::Portable, Some((least, most))) if least == most => {
            format!("its subgroups have {least} lanes, not 32")
        }
        (RankBody::Portable, Some((least, most))) => {
            format!("its subgroups have {least} to {most} lanes and wgpu cannot fix them at 32")
        }
    }
}

fn remedy(adapters: &[Adapter]) -> String {
    let chosen = if std::env::var_os("WGPU_ADAPTER_NAME").is_some() || std::env::var_os("WGPU_BACKEND").is_some() {
        "unset WGPU_ADAPTER_NAME and WGPU_BACKEND, or "
    } else {
        ""
    };
    let software = if adapters.is_empty() { " (Debian's mesa-vulkan-drivers has a software one)" } else { "" };
    format!(
        "{chosen}install a Vulkan driver{software}; for NVIDIA in a container set NVIDIA_DRIVER_CAPABILITIES=all and have an \
         ICD file that names libGLX_nvidia.so.0 or, without X libraries, libEGL_nvidia.so.0"
    )
}

fn text(info: &Info, backend: Backend) -> String {
    let mut text = format!("hotrow {}; --backend auto computes on: {}\n", info.version, info.auto);
    for adapter in &info.adapters {
        text.push_str(&format!("\n{}\n", table(adapter)));
        failures(&mut text, adapter.self_test.as_deref());
    }
    if info.adapters.is_empty() && backend != Backend::Cpu {
        text.push_str("\nNo adapter was found.\n");
    }
    if let Some(remedy) = &info.remedy {
        text.push_str(&format!("\nFor a GPU: {remedy}.\n"));
    }
    let tested = verdict(info.cpu.self_test.as_deref());
    text.push_str(&format!("\nThe CPU backend has {} threads; self-test: {tested}.", info.cpu.threads));
    failures(&mut text, info.cpu.self_test.as_deref());
    text
}

fn table(adapter: &Adapter) -> comfy_table::Table {
    let limits = &adapter.limits;
    let yes_no = |yes| if yes { "yes" } else { "no" };
    let mapped = format!("{}: {}", yes_no(adapter.memory.mapped), adapter.memory.mapped_why);
    let mut table = output::table(["adapter", adapter.name.as_str()], 2);
    table.add_row(["backend", &adapter.backend]);
    table.add_row(["driver", &adapter.driver]);
    table.add_row(["type", &adapter.device_type]);
    table.add_row(["one binding", &mebibytes(limits.binding_bytes)]);
    table.add_row(["one buffer", &mebibytes(limits.buffer_bytes)]);
    table.add_row(["storage buffers a stage", &limits.storage_buffers.to_string()]);
    table.add_row(["invocations a workgroup", &limits.invocations.to_string()]);
    table.add_row(["shared memory a workgroup", &format!("{} KiB", limits.shared_bytes >> 10)]);
    table.add_row(["lanes of a subgroup", &format!("{} to {}", limits.subgroup_min, limits.subgroup_max)]);
    table.add_row(["sort kernels", &format!("{}: {}", adapter.rank, adapter.rank_why)]);
    table.add_row(["atomic addition of floats", adapter.add]);
    table.add_row(["tables in device memory", "yes"]);
    table.add_row(["tables in mapped host memory", &mapped]);
    table.add_row(["largest shard of a table", &mebibytes(adapter.memory.shard_bytes)]);
    table.add_row(["largest cache", &mebibytes(adapter.memory.cache_bytes)]);
    table.add_row(["timestamps", yes_no(adapter.timestamps)]);
    let tested = match &adapter.unusable {
        Some(reason) => format!("not run, no device: {reason}"),
        None => verdict(adapter.self_test.as_deref()),
    };
    table.add_row(["self-test against the CPU", &tested]);
    table
}

fn mebibytes(bytes: u64) -> String {
    format!("{} B ({:.0} MiB)", bytes, bytes as f64 / f64::from(1 << 20))
}

fn verdict(cases: Option<&[Case]>) -> String {
    let Some(cases) = cases else { return "not run".to_owned() };
    match cases.iter().filter(|case| !case.passed).count() {
        0 => format!("passed, {} cases", cases.len()),
        failed => format!("FAILED, {failed} of {} cases", cases.len()),
    }
}

fn failures(text: &mut String, cases: Option<&[Case]>) {
    for case in cases.unwrap_or_default() {
        if let Some(difference) = &case.difference {
            text.push_str(&format!("\nFAILED {} {} {}: {difference}", case.precision, case.policy, case.placement));
        }
    }
}
