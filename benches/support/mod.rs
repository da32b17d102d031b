//! What the benchmarks on a device share: who measures, and how.

use std::time::{Duration, Instant};

use hotrow::{Context, Timeline, wgpu};

/// Names the adapter and the clock: a figure is worth nothing without them.
pub(crate) fn announce(what: &str, context: &Context) {
    let info = context.device().adapter_info();
    let clock = if context.caps().timestamps { "device timestamps" } else { "wall clock" };
    println!("{what} on {} ({:?}), driver {} {}, {clock}", info.name, info.backend, info.driver, info.driver_info);
}

/// Submits what `record` records, waits, and returns how long it took: by the stamps of a [`Timeline`], or by the wall clock where the
/// device has none. `before` is recorded ahead of the first stamp.
pub(crate) fn timed(
    context: &Context,
    timeline: &Timeline,
    before: impl FnOnce(&mut wgpu::CommandEncoder),
    record: impl FnOnce(&mut wgpu::CommandEncoder),
) -> Duration {
    let mut encoder = context.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    before(&mut encoder);
    timeline.around(&mut encoder, "benchmark", record);
    timeline.resolve(&mut encoder);
    let start = Instant::now();
    context.queue().submit([encoder.finish()]);
    let spans = timeline.read().unwrap().spans;
    let waited = start.elapsed();
    spans[0].nanoseconds.map_or(waited, |nanoseconds| Duration::from_secs_f64(nanoseconds * 1e-9))
}
