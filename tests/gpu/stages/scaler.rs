//! The stages of loss scales.

use bytemuck::{cast_slice, cast_slice_mut};
use hotrow::{
    GradSlice, LossScale, ScalerState,
    internals::{layout::Inspected, stages},
};
use rand::RngExt as _;
use rand_pcg::Pcg64;

use super::{check, each, guarded, one_of, read, words};

/// The greatest magnitude of a case: bits of a half, and of a float.
const TOPS: [(u16, u32); 9] = [
    (0, 0),
    (0x8000, 0x8000_0000),
    (1, 1),
    (0x83ff, 0x807f_ffff), // the largest subnormal, negative
    (0x3c00, 0x3f80_0000),
    (0xfbff, 0xff7f_ffff), // the largest that is finite, negative
    (0x7c00, 0x7f80_0000), // infinity
    (0xfc00, 0xff80_0000),
    (0xfe01, 0xff80_0001), // NaN
];

#[test]
pub(crate) fn inspect() {
    each("inspect", [9, 2, 9, 2], |case, mut source, [elements, half, top, before]| {
        let elements = [0u32, 1, 2, 3, 255, 256, 257, 2049, 5000][elements];
        let (half, top, before) = (half == 1, TOPS[top], [0, 0x3f00_0000][before]);
        let words_of = elements.div_ceil(1 + u32::from(half)) as usize;
        // No element has a greater magnitude than the top. The values behind the last element are greater, and must not count.
        let mut array: Vec<u32> = if half {
            let most = u32::from(top.0 & 0x7fff) + 1;
            let one = |source: &mut Pcg64| source.random_range(0..most) | source.random_range(0..2) << 15;
            (0..words_of).map(|_| one(&mut source) | one(&mut source) << 16).collect()
        } else {
            let most = (top.1 & 0x7fff_ffff) + 1;
            (0..words_of).map(|_| source.random_range(0..most) | source.random_range(0..2) << 31).collect()
        };
        let at = source.random_range(0..elements.max(1)) as usize;
        if elements > 0 && half {
            let halves: &mut [u16] = cast_slice_mut(&mut array);
            halves[at] = top.0;
            if elements % 2 == 1 {
                halves[elements as usize] = 0x7fff;
            }
        } else if elements > 0 {
            array[at] = top.1;
        }
        let inspected = Inspected { elements, half: u32::from(half), ..Inspected::default() };
        let bindings = [words(&inspected), guarded(&array), guarded(&[before])];
        let groups = one_of(&mut source, &[1, 2, words_of.div_ceil(1024).max(1) as u32]);
        let run = check(case, "inspect", &bindings, groups, &[], |[_, gradients, greatest]| {
            let n = elements as usize;
            let gradients = match half {
                true => GradSlice::F16(&cast_slice(gradients)[..n]),
                false => GradSlice::F32(&cast_slice(gradients)[..n]),
            };
            stages::inspect(gradients, greatest);
        });
        // Checked without the mirror: the greatest magnitude.
        let found = run.found[2][0];
        let top = if half { half::f16::from_bits(top.0).to_f32().to_bits() } else { top.1 } & 0x7fff_ffff;
        let wanted = if elements > 0 { before.max(top) } else { before };
        if f32::from_bits(wanted).is_nan() {
            assert!(f32::from_bits(found).is_nan(), "{case}: {found:x}");
        } else {
            assert_eq!(found, wanted, "{case}");
        }
    });
}

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

/// Steps of the kernel and of its mirror, bit for bit, each from the state that the kernel left.
#[test]
pub(crate) fn rescale() {
    each("rescale", [8, 5], |case, mut source, [config, _]| {
        let config = &configurations()[config];
        let mut state = ScalerState::new(config).unwrap();
        let rule = config.rule().unwrap();
        for step in 0..8 {
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
            let run = check(case, "rescale", &bindings, 1, &[], |[rule, greatest, state]| {
                stages::rescale(&read(rule), greatest, cast_slice_mut(&mut state[..ScalerState::WORDS]));
            });
            state = cast_slice(&run.found[2][..ScalerState::WORDS])[0];
            state.check(config).unwrap_or_else(|error| panic!("{case}, {config:?}: {error}"));
            // States at the beginning and the end of the averages, and states that no step leads to.
            if step % 4 == 3 {
                state.iteration = source.random_range(state.iteration..state.iteration + 5000);
                let words: &mut [f32] = cast_slice_mut(std::slice::from_mut(&mut state));
                for (at, low) in [(7, -30.0), (8, -30.0), (9, 0.0)] {
                    words[at] = source.random_range(low..30.0f32) * 2f32.powi(source.random_range(-70..1));
                }
                (words[10], words[11]) = (source.random_range(0.0..0.999), source.random_range(0.0..0.999));
            }
        }
    });
}
