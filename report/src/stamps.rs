//! How finely a device's clock counts, and how often work is repeated so that its steps do not matter: some GPUs count in steps of 65 us.

use hotrow::{Context, Timeline, wgpu};

/// The least steps of a measured time. The step in which it begins or ends is then at most 2 % of it.
const STEPS: f64 = 50.0;
/// The most times that work is repeated in one measurement.
const MOST: u32 = 256;

/// The seconds of a step of the device's time stamps; `None` without stamps.
pub fn step(context: &Context) -> Option<f64> {
    let timeline = Timeline::new(context);
    let mut encoder = context.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    for _ in 0..512 {
        timeline.around(&mut encoder, "clock", |_| ());
    }
    timeline.resolve(&mut encoder);
    context.queue().submit([encoder.finish()]);
    let spans = timeline.read().ok()?.spans;
    let tick = f64::from(context.queue().get_timestamp_period());
    let ticks = spans.iter().filter_map(|span| Some((span.nanoseconds? / tick).round() as u64));
    common(ticks).map(|ticks| ticks as f64 * tick * 1e-9)
}

/// The largest number of ticks of which all these times are multiples; `None` if no time is above 0.
fn common(times: impl Iterator<Item = u64>) -> Option<u64> {
    let divisor = |a: u64, b| std::iter::successors(Some((a, b)), |&(a, b)| (b > 0).then(|| (b, a % b))).last();
    times.reduce(|a, b| divisor(a, b).map_or(a, |both| both.0)).filter(|&ticks| ticks > 0)
}

/// Whether a time of this length counts too few steps.
pub fn is_coarse(step: Option<f64>, seconds: f64) -> bool {
    step.is_some_and(|step| seconds < STEPS * step)
}

/// How often work that took `seconds` in `turns` turns is to be repeated in one measurement.
pub fn turns(step: Option<f64>, seconds: f64, turns: u32) -> u32 {
    let Some(step) = step.filter(|_| is_coarse(step, seconds)) else { return turns };
    // A fifth more, since a first time may be a slow one. Below a step, a time may be anything up to that.
    let more = f64::from(turns) * 1.2 * STEPS / (seconds / step).max(1.0);
    (more.ceil() as u32).clamp(turns, MOST.max(turns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coarse_clocks_repeat_work() {
        let (coarse, fine) = (Some(65_536e-9), Some(1e-9));
        // 15 steps, where 60 are wanted; 61 are enough. If nothing was seen to pass, 60 turns; then as many as these show to be needed.
        for (seconds, before, wanted) in [(1e-3, 1, 4), (4e-3, 4, 4), (0.0, 1, 60), (131_072e-9, 60, MOST)] {
            assert_eq!(turns(coarse, seconds, before), wanted, "{seconds}");
        }
        assert_eq!([1e-3, 60e-9, 10e-9].map(|seconds| turns(fine, seconds, 1)), [1, 1, 6]);
        assert_eq!(common([0, 65_536, 131_072, 0, 196_608].into_iter()), Some(65_536));
        assert_eq!([common([1311, 1024, 992].into_iter()), common([0, 0].into_iter())], [Some(1), None]);
    }
}
