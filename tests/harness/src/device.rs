//! One device for all tests, or the reason why there is none.

use std::{
    cell::RefCell,
    sync::{Mutex, OnceLock, PoisonError},
};

use hotrow::{
    Context, ContextOptions, CpuGroup, Embedding, Error, Group, GroupConfig, Placement, adapter,
    internals::{
        context_with_texts,
        shader::{Sizes, compose},
    },
};

pub use crate::seed::{share, tell};

use crate::lanes;

/// The shaders of `HOTROW_TEST_SHADERS=checked|trusted`, the pipelines of `HOTROW_TEST_PIPELINES=shared|own` and the sums of
/// `HOTROW_TEST_SUMS=plain|settled` (those of DX12): the suite passes with all.
pub fn options() -> ContextOptions {
    let trusted = match std::env::var("HOTROW_TEST_SHADERS").as_deref() {
        Err(_) | Ok("checked") => false,
        Ok("trusted") => true,
        Ok(other) => panic!("HOTROW_TEST_SHADERS: wanted checked or trusted, found {other}"),
    };
    // Each kind of group would have pipelines of its own, which a software driver compiles for seconds. `tests/gpu/trusted.rs` and `tests/gpu/pipelines.rs` have those.
    let shared = match std::env::var("HOTROW_TEST_PIPELINES").as_deref() {
        Err(_) | Ok("shared") => true,
        Ok("own") => false,
        Ok(other) => panic!("HOTROW_TEST_PIPELINES: wanted shared or own, found {other}"),
    };
    let settled = match std::env::var("HOTROW_TEST_SUMS").as_deref() {
        Err(_) | Ok("plain") => false,
        Ok("settled") => true,
        Ok(other) => panic!("HOTROW_TEST_SUMS: wanted plain or settled, found {other}"),
    };
    ContextOptions::default().trusted_shaders(trusted).shared_pipelines(shared).settled_sums(settled)
}

thread_local! {
    /// The context that stands for the device of all tests on this thread.
    static INSTEAD: RefCell<Option<Context>> = const { RefCell::new(None) };
}

/// Runs a test with `context` in place of the device of all tests.
pub fn instead(context: &Context, test: impl FnOnce()) {
    struct Restore(Option<Context>);
    impl Drop for Restore {
        fn drop(&mut self) {
            INSTEAD.set(self.0.take());
        }
    }
    let _restore = Restore(INSTEAD.replace(Some(context.clone())));
    test();
}

/// Another context on the device of all tests. It is built once for each set of options, because all pipelines take seconds to build.
pub fn again(options: &ContextOptions) -> Context {
    static MADE: Mutex<Vec<(ContextOptions, Context)>> = Mutex::new(Vec::new());
    if let Some(context) = INSTEAD.with_borrow(Clone::clone) {
        return on_device_of(&context, options);
    }
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, known)) = made.iter().find(|(with, _)| with == options) {
        return known.clone();
    }
    let other = on_device_of(context().expect("only tests that have a device call this"), options);
    made.push((options.clone(), other.clone()));
    other
}

/// A context on a device that binds at most `buffers` storage buffers a stage: fewer pieces at a time. It is built once for each number.
pub fn with_storage_buffers(buffers: u32) -> Context {
    static MADE: Mutex<Vec<(u32, Context)>> = Mutex::new(Vec::new());
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, known)) = made.iter().find(|(with, _)| *with == buffers) {
        return known.clone();
    }
    let most = hotrow::requirements(&adapter::adapters()[0]).required_limits;
    let limits = wgpu::Limits { max_storage_buffers_per_shader_stage: buffers, ..most };
    let (device, queue) = own(wgpu::Features::all(), Some(limits));
    let context = Context::with_options(&device, &queue, &options()).unwrap_or_else(|error| panic!("{error}"));
    made.push((buffers, context.clone()));
    context
}

fn on_device_of(context: &Context, options: &ContextOptions) -> Context {
    Context::with_options(context.device(), context.queue(), options).unwrap_or_else(|error| panic!("{error}"))
}

fn context() -> Result<&'static Context, &'static str> {
    static CONTEXT: OnceLock<Result<Context, String>> = OnceLock::new();
    let made = CONTEXT.get_or_init(|| {
        let mode = std::env::var("HOTROW_TEST_GPU").unwrap_or_else(|_| "allow".into());
        if mode == "off" {
            return Err("HOTROW_TEST_GPU=off".into());
        }
        if mode == "lanes" {
            return Ok(on_lanes());
        }
        assert!(
            mode == "allow" || mode == "require",
            "HOTROW_TEST_GPU: wanted require, allow, off or lanes, found {mode}"
        );
        let opened = match adapter::open_best() {
            Ok(context) => context,
            // Only a missing adapter is a reason to skip. The tests must find an adapter that fails.
            Err(error @ Error::Unsupported { what: "gpu", .. }) if mode == "allow" => return Err(error.to_string()),
            Err(error) => panic!("HOTROW_TEST_GPU={mode}: {error}"),
        };
        let context = if options() == ContextOptions::default() { opened } else { on_device_of(&opened, &options()) };
        let caps = context.caps();
        tell(&format!(
            "GPU tests on {} ({:?}), subgroup {:?}, {:?}",
            caps.name,
            caps.backend,
            caps.subgroup,
            if context.trusted_shaders() { "trusted shaders" } else { "checked shaders" }
        ));
        Ok(context)
    });
    made.as_ref().map_err(String::as_str)
}

/// The lane executor as a device, as `HOTROW_TEST_LANES` describes it.
fn on_lanes() -> Context {
    let asked = std::env::var("HOTROW_TEST_LANES").unwrap_or_default();
    let config = lanes::config().with(&asked).unwrap_or_else(|error| panic!("HOTROW_TEST_LANES: {error}"));
    let (device, queue, _) = wgsl_lanes::open(&config);
    let context = Context::with_options(&device, &queue, &options()).unwrap_or_else(|error| panic!("{error}"));
    tell(&format!("GPU tests on the lane executor: {config:?}"));
    context
}

/// Runs `test` on the device, or prints why it is skipped.
pub fn with_gpu(test: impl FnOnce(&Context)) {
    if let Some(context) = INSTEAD.with_borrow(Clone::clone) {
        return test(&context);
    }
    match context() {
        Ok(context) => test(context),
        Err(reason) => skipped(&format!("a GPU test: {reason}")),
    }
}

/// A device of its own on the first adapter, so that other tests make nothing on it, or do not lose it: with those of the features that the crate asks
/// for, and with these limits or those that it asks for.
pub fn own(features: wgpu::Features, limits: Option<wgpu::Limits>) -> (wgpu::Device, wgpu::Queue) {
    let adapter = &adapter::adapters()[0];
    let mut wanted = hotrow::requirements(adapter);
    wanted.required_features |= adapter.features() & wgpu::Features::MAPPABLE_PRIMARY_BUFFERS;
    wanted.required_features &= features;
    wanted.required_limits = limits.unwrap_or(wanted.required_limits);
    pollster::block_on(adapter.request_device(&wanted)).unwrap()
}

/// The placements that the device has; one that it lacks is told of.
pub fn placements(context: &Context) -> impl Iterator<Item = Placement> + use<> {
    let mappable = context.caps().mappable;
    if !mappable {
        skipped(&format!("mapped placement: {} has no MAPPABLE_PRIMARY_BUFFERS", context.caps().name));
    }
    let all = [Placement::Device, Placement::Mapped, Placement::Staged].into_iter();
    all.filter(move |&placement| mappable || placement != Placement::Mapped)
}

/// A context on the device in which a text of stages is changed, wherever `sizes` takes how their cache and records are bound: for tests which show that
/// a wrong stage is noticed.
pub fn spoiled(
    context: &Context,
    stages: &[&'static str],
    sizes: fn(Sizes) -> bool,
    (from, to): (&'static str, &'static str),
) -> Context {
    let stages = stages.to_vec();
    let made = context_with_texts(context.device(), context.queue(), 65_535, move |kernel, bodies| {
        let text = compose(kernel, bodies);
        if !stages.contains(&kernel.name) || !sizes(bodies.sizes) {
            return text;
        }
        assert!(text.contains(from), "{}: {from}", kernel.name);
        text.replace(from, to)
    });
    made.unwrap()
}

/// The same group on both backends, so that one test covers both.
pub fn both(context: &Context, config: &GroupConfig) -> [Box<dyn Embedding>; 2] {
    [Box::new(Group::new(context, config.clone()).unwrap()), Box::new(CpuGroup::new(config.clone()).unwrap())]
}

/// Prints that something was not tested.
pub fn skipped(what: &str) {
    tell(&format!("SKIPPED: {what}"));
}
