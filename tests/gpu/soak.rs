//! Many steps of long-lived groups in every placement, GPU against CPU: `tests/harness/src/soak.rs`. `scripts/soak` runs more of them.

use hotrow::Context;
use std::io::Write as _;

use hotrow_harness::{
    gpu_test, seed_for,
    soak::{growth, soak},
};

/// `HOTROW_SOAK_STEPS` sets the number of steps, `HOTROW_SOAK_OUT` a file for the samples.
#[gpu_test]
fn steps_agree_and_nothing_grows(context: &Context) {
    let number = |text: String| {
        text.parse().unwrap_or_else(|_| panic!("HOTROW_SOAK_STEPS: wanted a number of steps, found {text:?}"))
    };
    let steps: u64 = std::env::var("HOTROW_SOAK_STEPS").map_or(200, number);
    let heap = || crate::HEAP.allocated() as u64;
    let mut out = std::env::var_os("HOTROW_SOAK_OUT").map(|path| std::fs::File::create(path).unwrap());
    if let Some(out) = &mut out {
        writeln!(out, "step,resident bytes,heap bytes,allocated bytes,allocations,handles").unwrap();
    }
    let (samples, codes) = soak(context, steps, seed_for("soak"), 200, heap, |sample| {
        if let Some(out) = &mut out {
            let hotrow_harness::soak::Sample { step, resident, heap, allocated, allocations, handles } = sample;
            writeln!(out, "{step},{resident},{heap},{allocated},{allocations},{handles}").unwrap();
        }
    })
    .unwrap_or_else(|difference| panic!("{difference}"));
    eprintln!("{steps} steps; {} of {} written elements differ by one code", codes.different, codes.written);
    assert!(codes.few(), "too many codes differ");
    // In a short run groups that come and go hide a slope, or look like one; and other tests run beside it.
    if steps < 20_000 {
        return eprintln!("memory and handles: not judged, wanted at least 20000 steps, found {steps}");
    }
    for (what, of) in [
        ("resident", (|sample| sample.resident) as fn(&hotrow_harness::soak::Sample) -> u64),
        ("heap", |sample| sample.heap),
        ("allocated", |sample| sample.allocated),
        ("allocations", |sample| sample.allocations),
        ("handles", |sample| sample.handles),
    ] {
        let values: Vec<_> = samples.iter().map(|sample| of(sample) as f64).collect();
        let most = values.iter().copied().fold(0.0, f64::max);
        eprintln!("{what}: from {} to {}, at most {most}", values[values.len() / 4], values[values.len() - 1]);
        assert_eq!(growth(&values), None, "{what} grows");
    }
}

/// Noise is no growth; a leak beneath as much noise is.
#[test]
fn growth_is_told_from_noise() {
    let noise = |i: u32| f64::from(i.wrapping_mul(2_654_435_761) >> 22) / 1024.0;
    let flat: Vec<_> = (0..200).map(|i| 100.0 + 10.0 * noise(i)).collect();
    assert_eq!(growth(&flat), None);
    let leaking: Vec<_> = (0..200).map(|i| 100.0 + 10.0 * noise(i) + 0.05 * f64::from(i)).collect();
    assert!((6.0..9.0).contains(&growth(&leaking).unwrap()), "{:?}", growth(&leaking));
    let filling: Vec<_> = (0..200).map(|i| 100.0 + 10.0 * noise(i) - 50.0 * f64::from(u8::from(i < 40))).collect();
    assert_eq!(growth(&filling), None, "what grows at first does not count");
}
