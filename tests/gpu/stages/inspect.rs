use bytemuck::cast_slice;
use hotrow::{Context, GradSlice, internals::layout::Inspected, internals::stages};
use rand::RngExt as _;

use super::{check, guarded, on_each, read, rng, words};

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

fn run(context: &Context, seed: u64, elements: u32, half: bool, top: (u16, u32), before: u32) -> u32 {
    let mut source = rng(seed);
    let words_of = elements.div_ceil(1 + u32::from(half)) as usize;
    // No element has a greater magnitude than the top. The values behind the last element are greater, and must not count.
    let mut array: Vec<u32> = if half {
        let most = u32::from(top.0 & 0x7fff) + 1;
        let one = |source: &mut rand_pcg::Pcg64| source.random_range(0..most) | source.random_range(0..2) << 15;
        (0..words_of).map(|_| one(&mut source) | one(&mut source) << 16).collect()
    } else {
        let most = (top.1 & 0x7fff_ffff) + 1;
        (0..words_of).map(|_| source.random_range(0..most) | source.random_range(0..2) << 31).collect()
    };
    let at = source.random_range(0..elements.max(1));
    if elements > 0 && half {
        let halves: &mut [u16] = bytemuck::cast_slice_mut(&mut array);
        halves[at as usize] = top.0;
        if elements % 2 == 1 {
            halves[elements as usize] = 0x7fff;
        }
    } else if elements > 0 {
        array[at as usize] = top.1;
    }
    let inspected = Inspected { elements, half: u32::from(half), ..Inspected::default() };
    let bindings = [words(&inspected), guarded(&array), guarded(&[before])];
    let what = format!("seed {seed}, {elements} elements, half {half}, top {top:x?}, before {before:x}");
    let groups = [1, 2, words_of.div_ceil(1024).max(1) as u32][source.random_range(0..3)];
    let run = check(context, "inspect", &what, &bindings, groups, &[], |b| {
        let [inspected, gradients, greatest] = b else { unreachable!() };
        let Inspected { elements, half, .. } = read(inspected);
        let n = elements as usize;
        if half == 1 {
            stages::inspect(GradSlice::F16(&cast_slice(gradients)[..n]), greatest);
        } else {
            stages::inspect(GradSlice::F32(&cast_slice(gradients)[..n]), greatest);
        }
    });
    // Checked without the mirror: the greatest magnitude.
    let found = run.found[2][0];
    let top = if half { half::f16::from_bits(top.0).to_f32().to_bits() } else { top.1 } & 0x7fff_ffff;
    let wanted = if elements > 0 { before.max(top) } else { before };
    if f32::from_bits(wanted).is_nan() {
        assert!(f32::from_bits(found).is_nan(), "{what}: {found:x}");
    } else {
        assert_eq!(found, wanted, "{what}");
    }
    u32::from(found != before)
}

#[test]
pub(super) fn matches_the_mirror() {
    on_each(|context| {
        let mut changed = 0;
        let mut seed = 0;
        for elements in [0, 1, 2, 3, 255, 256, 257, 2047, 2048, 2049, 5000] {
            for half in [false, true] {
                for top in TOPS {
                    for before in [0, 0x3f00_0000] {
                        seed += 1;
                        changed += run(context, seed, elements, half, top, before);
                    }
                }
            }
        }
        assert!(changed > 100);
    });
}
