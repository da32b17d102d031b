//! `hotrow info`: adapters, their limits, the kernels and memory paths they get with the reasons, and a self-test.

use crate::self_test::{self, Case};
use anyhow::anyhow;
use hotrow::{
    Caps, Context, adapter,
    internals::{LookupBody, RankBody},
    requirements, wgpu,
};
use hotrow_report::clock;
use hotrow_report::failure::Failure;
use hotrow_report::object::{Field, Object};
use hotrow_report::options::{Backend, Options};
use hotrow_report::output;

/// List adapters, their limits, the kernels and memory paths they get with the reasons, and run a self-test
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Skip the self-test
    #[arg(long)]
    no_self_test: bool,
}

/// An adapter with the properties of its device.
struct Adapter {
    name: String,
    hardware: bool,
    /// Its part of `--json`, without the two fields below.
    found: Object,
    /// The reason why its device cannot be used; `None` if it can.
    unusable: Option<String>,
    /// The cases of the self-test; `None` if it was skipped.
    self_test: Option<Vec<Case>>,
}

pub(crate) fn run(options: &Options, args: &Args) -> Result<(), Failure> {
    let on_gpu = options.backend != Backend::Cpu;
    let found = if on_gpu { adapter::adapters() } else { Vec::new() };
    let adapters: Vec<Adapter> = found.iter().map(|adapter| Adapter::new(adapter, options, args)).collect();
    let best = adapters.iter().find(|adapter| adapter.hardware && adapter.unusable.is_none());
    // The adapter that `--backend auto` chooses.
    let auto = best.map_or("cpu", |adapter| &adapter.name);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let cpu_test = (!args.no_self_test).then(|| self_test::cpu(options.group_seed()));
    let remedy = (on_gpu && best.is_none()).then(|| remedy(&adapters));
    let cpu = Object::default().with("threads", threads).with("self_test", self_test::json(cpu_test.as_deref()));
    let json = Object::default()
        .with("version", env!("CARGO_PKG_VERSION"))
        .with("auto", auto)
        .with("adapters", adapters.iter().map(Adapter::json).collect::<Field>())
        .with("cpu", cpu)
        .with("remedy", remedy.clone());
    options.write_json(&json)?;
    let mut text = format!("hotrow {}; --backend auto computes on: {auto}\n", env!("CARGO_PKG_VERSION"));
    for adapter in &adapters {
        text += &format!("\n{}\n{}", adapter.table(), failures(adapter.self_test.as_deref()));
    }
    if adapters.is_empty() && on_gpu {
        text += "\nNo adapter was found.\n";
    }
    if let Some(remedy) = &remedy {
        text += &format!("\nFor a GPU: {remedy}.\n");
    }
    let (tested, wrong) = (verdict(cpu_test.as_deref()), failures(cpu_test.as_deref()));
    output::print(&format!("{text}\nThe CPU backend has {threads} threads; self-test: {tested}.{wrong}"))?;
    let tests = adapters.iter().filter_map(|adapter| adapter.self_test.as_ref()).chain(&cpu_test);
    let failed = tests.flatten().filter(|case| case.difference.is_some()).count();
    if failed > 0 {
        return Err(anyhow!("self-test: {failed} cases failed; report them with the text above").into());
    }
    match remedy {
        Some(remedy) if options.backend == Backend::Gpu && adapters.iter().all(|one| one.unusable.is_some()) => {
            Err(anyhow!("--backend gpu: wanted an adapter that will do, found none; {remedy}").into())
        }
        _ => Ok(()),
    }
}

impl Adapter {
    fn new(adapter: &wgpu::Adapter, options: &Options, args: &Args) -> Self {
        let (info, limits) = (adapter.get_info(), adapter.limits());
        let opened = adapter::open(adapter);
        let caps = match &opened {
            Ok(context) => context.caps().clone(),
            Err(_) => {
                let wanted = requirements(adapter);
                Caps::from_parts(&info, wanted.required_features, &wanted.required_limits)
            }
        };
        let test = |context: &Context| self_test::gpu(context, options.group_seed());
        let hardware = adapter::is_hardware(adapter);
        let piece_bytes = caps.choose_piece_bytes();
        // Limits of the adapter; its device may have lower ones.
        let limits = Object::default()
            .with("binding_bytes", limits.max_storage_buffer_binding_size)
            .with("buffer_bytes", limits.max_buffer_size)
            .with("storage_buffers", limits.max_storage_buffers_per_shader_stage)
            .with("invocations", limits.max_compute_invocations_per_workgroup)
            .with("shared_bytes", limits.max_compute_workgroup_storage_size)
            .with("groups", limits.max_compute_workgroups_per_dimension)
            .with("offset_alignment", limits.min_storage_buffer_offset_alignment)
            .with("subgroup_min", info.subgroup_min_size)
            .with("subgroup_max", info.subgroup_max_size);
        let memory = Object::default()
            .with("device", true)
            .with("mapped", caps.mappable)
            .with("mapped_why", format!("it {} MAPPABLE_PRIMARY_BUFFERS", if caps.mappable { "has" } else { "lacks" }))
            .with("piece_bytes", piece_bytes)
            .with("cache_bytes", u64::from(caps.choose_windows()) * piece_bytes);
        let found = Object::default()
            .with("name", info.name.as_str())
            .with("backend", format!("{:?}", info.backend))
            .with("driver", format!("{} {}", info.driver, info.driver_info).trim())
            .with("device_type", format!("{:?}", info.device_type))
            .with("hardware", hardware)
            .with("limits", limits)
            .with("rank", caps.choose_rank().name())
            .with("rank_why", rank_why(&caps))
            .with("lookup", caps.choose_lookup().name())
            .with("lookup_why", lookup_why(&caps))
            // The way of atomic float additions.
            .with("add", caps.choose_add().name())
            .with("memory", memory)
            .with("timestamps", caps.timestamps)
            .with("timestamp_step", opened.as_ref().ok().and_then(clock::step));
        let self_test = opened.as_ref().ok().filter(|_| !args.no_self_test).map(test);
        let unusable = opened.err().map(|error| error.to_string());
        Self { name: info.name, hardware, found, unusable, self_test }
    }

    fn json(&self) -> Object {
        let tested = self_test::json(self.self_test.as_deref());
        self.found.clone().with("unusable", self.unusable.clone()).with("self_test", tested)
    }

    fn table(&self) -> String {
        let not_run = |reason| format!("not run, no device: {reason}");
        let tested = self.unusable.as_ref().map_or_else(|| verdict(self.self_test.as_deref()), not_run);
        self.found.clone().with("self-test against the CPU", tested).table("adapter")
    }
}

fn rank_why(caps: &Caps) -> String {
    match caps.choose_rank() {
        RankBody::Subgroup32 => "every subgroup has 32 lanes".to_owned(),
        RankBody::Subgroup64 => "every subgroup has 32 or 64 lanes".to_owned(),
        RankBody::Portable => other_subgroups(caps),
    }
}

fn lookup_why(caps: &Caps) -> String {
    match caps.choose_lookup() {
        LookupBody::Lanes32 => "every subgroup has 32 lanes".to_owned(),
        LookupBody::Lanes8 => other_subgroups(caps),
        LookupBody::Lane1 => "its driver runs on a CPU".to_owned(),
    }
}

/// The reason why the bodies for 32 lanes do not run.
fn other_subgroups(caps: &Caps) -> String {
    match caps.subgroup {
        None => "it has no subgroup operations".to_owned(),
        Some((least, most)) if least == most => format!("its subgroups have {least} lanes, not 32"),
        Some((least, most)) => format!("its subgroups have {least} to {most} lanes and wgpu cannot fix them at 32"),
    }
}

fn remedy(adapters: &[Adapter]) -> String {
    let is_set = ["WGPU_ADAPTER_NAME", "WGPU_BACKEND"].iter().any(|name| std::env::var_os(name).is_some());
    let chosen = if is_set { "unset WGPU_ADAPTER_NAME and WGPU_BACKEND, or " } else { "" };
    let software = if adapters.is_empty() { " (Debian's mesa-vulkan-drivers has a software one)" } else { "" };
    format!(
        "{chosen}install a Vulkan driver{software}; for NVIDIA in a container set NVIDIA_DRIVER_CAPABILITIES=all and have an \
         ICD file that names libGLX_nvidia.so.0 or, without X libraries, libEGL_nvidia.so.0"
    )
}

fn verdict(cases: Option<&[Case]>) -> String {
    let Some(cases) = cases else { return "not run".to_owned() };
    match cases.iter().filter(|case| case.difference.is_some()).count() {
        0 => format!("passed, {} cases", cases.len()),
        failed => format!("FAILED, {failed} of {} cases", cases.len()),
    }
}

/// A line for each case that failed.
fn failures(cases: Option<&[Case]>) -> String {
    let line = |case: &Case| {
        let difference = case.difference.as_ref()?;
        Some(format!("\nFAILED {} {} {}: {difference}", case.precision, case.policy, case.placement))
    };
    cases.unwrap_or_default().iter().filter_map(line).collect()
}
