use bytemuck::{cast_slice, cast_slice_mut};
use hotrow::{Context, LossScale, ScalerState, internals::stages};
use rand::RngExt as _;

use super::{check, guarded, on_each, read, rng, words};

fn configurations() -> Vec<LossScale> {
    let original = |original, log_max, deviations| LossScale::LogNormal {
        min: 0.5,
        max: 100_000.0,
        log_max,
        beta1: 0.9,
        beta2: 0.97,
        deviations,
        original,
    };
    vec![
        LossScale::Static { scale: 1000.0 },
        LossScale::Static { scale: 0.25 },
        LossScale::BACKOFF,
        LossScale::Backoff { min: 0.3, max: 50_000.0, factor: 3.0, window: 2 },
        LossScale::LOG_NORMAL,
        LossScale::LOG_NORMAL_ORIGINAL,
        original(false, 15.5, 2.0),
        original(true, 12.0, 0.0),
    ]
}

/// Runs steps of the kernel and of its mirror, each from the state that the kernel left. Returns the number of distinct scales.
fn run(context: &Context, seed: u64, config: &LossScale, steps: u32) -> usize {
    let mut source = rng(seed);
    let mut state = ScalerState::new(config).unwrap();
    let rule = config.rule().unwrap();
    let mut scales = std::collections::BTreeSet::new();
    for step in 0..steps {
        let size = 2f32.powf(source.random_range(-30.0..18.0)) * state.scale;
        let greatest: u32 = match source.random_range(0..8) {
            0 => 0,
            1 => source.random_range(0..0x0080_0000), // subnormal: counts as zero
            2 => 0x7f80_0000,
            3 => 0x7fc0_0000,
            4 => 0x7f7f_ffff,
            _ => size.to_bits(),
        };
        let bindings = [words(&rule), guarded(&[greatest]), guarded(&[state])];
        let what = format!("seed {seed}, step {step}, {config:?}, greatest {greatest:x}, {state:?}");
        let run = check(context, "rescale", &what, &bindings, 1, &[], |b| {
            let [rule, greatest, state] = b else { unreachable!() };
            stages::rescale(&read(rule), greatest, cast_slice_mut(&mut state[..ScalerState::WORDS]));
        });
        state = cast_slice(&run.found[2][..ScalerState::WORDS])[0];
        state.check(config).unwrap_or_else(|error| panic!("{what}: {error}"));
        scales.insert(state.scale.to_bits());
        // States at the beginning and the end of the averages, and states that no step leads to.
        if step % 7 == 6 {
            state.iteration = source.random_range(state.iteration..state.iteration + 5000);
            let words: &mut [f32] = cast_slice_mut(std::slice::from_mut(&mut state));
            for (at, low) in [(7, -30.0), (8, -30.0), (9, 0.0)] {
                words[at] = source.random_range(low..30.0f32) * 2f32.powi(source.random_range(-70..1));
            }
            (words[10], words[11]) = (source.random_range(0.0..0.999), source.random_range(0.0..0.999));
        }
    }
    scales.len()
}

#[test]
pub(super) fn matches_the_mirror_bit_for_bit() {
    on_each(|context| {
        for (seed, config) in (0..).zip(configurations()) {
            let scales = run(context, seed, &config, 60);
            assert!(matches!(config, LossScale::Static { .. }) || scales > 2, "{config:?}: {scales} scales");
        }
    });
}
