use bytemuck::cast_slice;
use hotrow::{Context, internals::layout::Halves, internals::stages};
use rand::RngExt as _;

use super::{check, floats, guarded, junk, on_each, read, rng, words};

/// Floats whose halves are known: their bits, and those of the half.
const KNOWN: [(u32, u16); 22] = [
    (0x0000_0000, 0x0000),
    (0x8000_0000, 0x8000),
    (0x3f80_0000, 0x3c00),
    (0x3f80_1000, 0x3c00), // half way between two halves: to the even one below
    (0x3f80_3000, 0x3c02), // half way: to the even one above
    (0x3f80_1001, 0x3c01),
    (0xbf80_0fff, 0xbc00),
    (0x3880_0000, 0x0400), // 2^-14, the smallest normal half
    (0x387f_ffff, 0x0400),
    (0x3380_0000, 0x0001), // 2^-24, the smallest half
    (0x3300_0000, 0x0000), // half of it
    (0x3300_0001, 0x0001),
    (0xb340_0000, 0x8001),
    (0x0000_0001, 0x0000), // subnormal as a float
    (0x477f_e000, 0x7bff), // 65504
    (0x477f_f000, 0x7bff), // 65520 saturates
    (0xff7f_ffff, 0xfbff), // the largest float
    (0x7f80_0000, 0x7c00), // infinity
    (0xff80_0000, 0xfc00),
    (0x7f80_0001, 0x7e00), // NaN
    (0xffc0_1234, 0x7e00),
    (0x7fff_ffff, 0x7e00),
];

/// The half as the crate `half` rounds, and saturated.
fn half_of(bits: u32) -> u16 {
    let x = f32::from_bits(bits);
    if x.is_nan() {
        return 0x7e00;
    }
    half::f16::from_f32(if x.is_infinite() { x } else { x.clamp(-65504.0, 65504.0) }).to_bits()
}

fn run(context: &Context, seed: u64, elements: u32) -> usize {
    let mut source = rng(seed);
    let n = elements as usize;
    let mut sums: Vec<u32> = match seed % 3 {
        0 => junk(&mut source, n), // any bits
        1 => floats(&mut source, n, 70_000.0).into_iter().map(f32::to_bits).collect(),
        _ => floats(&mut source, n, 1e-4).into_iter().map(f32::to_bits).collect(),
    };
    for (sum, (bits, _)) in sums.iter_mut().skip(source.random_range(0..3)).step_by(2).zip(KNOWN) {
        *sum = bits;
    }
    let before = junk(&mut source, n.div_ceil(2));
    let bindings = [words(&Halves { elements, ..Halves::default() }), guarded(&sums), guarded(&before)];
    let what = format!("seed {seed}, {elements} outputs");
    let run = check(context, "halves", &what, &bindings, elements.div_ceil(512).max(1), &[], |b| {
        let [halves, sums, outputs] = b else { unreachable!() };
        stages::halves(&read(halves), cast_slice(sums), outputs);
    });
    // Checked without the mirror, and without the crate's own rounding.
    let found: &[u16] = cast_slice(&run.found[2]);
    for (i, &bits) in sums.iter().enumerate() {
        assert_eq!(found[i], half_of(bits), "{what}: output {i}, {bits:#x}");
    }
    assert!(elements.is_multiple_of(2) || found[n] == 0, "{what}: the upper half of the last word");
    run.changed
}

#[test]
pub(super) fn matches_the_mirror() {
    for (bits, half) in KNOWN {
        assert_eq!(half_of(bits), half, "{bits:#x}");
    }
    on_each(|context| {
        let mut changed = 0;
        for (seed, elements) in [0, 1, 2, 3, 7, 64, 255, 256, 511, 512, 513, 1025, 5000].into_iter().enumerate() {
            for k in 0..3 {
                changed += run(context, 3 * seed as u64 + k, elements);
            }
        }
        assert!(changed > 10_000);
    });
}
