//! The adapter and the clock of the benchmarks on a device.

use std::time::{Duration, Instant};

use hotrow::{Context, Timeline, wgpu};

/// Prints the adapter and the clock, because a figure means nothing without them.
pub(crate) fn announce(what: &str, context: &Context) {
    let info = context.device().adapter_info();
    let clock = if context.caps().timestamps { "device timestamps" } else { "wall clock" };
    println!("{what} on {} ({:?}), driver {} {}, {clock}", info.name, info.backend, info.driver, info.driver_info);
}

/// Submits the commands of `record`, waits, and returns their time: by the timestamps of a [`Timeline`], or by the wall clock if the device
/// has none. `before` is recorded ahead of the first timestamp.
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
