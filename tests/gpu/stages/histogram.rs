use hotrow::internals::layout::{Pass, count};
use hotrow::internals::stages;
use rand::RngExt as _;

use super::{check, guarded, junk, of, on_each, read, rng, step, words};

#[test]
pub(super) fn matches_the_mirror() {
    on_each(|context| {
        let mut changed = 0;
        // Sizes about one block of 3,072, and more blocks than workgroups, so that workgroups loop.
        for (seed, capacity) in [1, 3071, 3072, 3073, 6144, 20_000].into_iter().enumerate() {
            for live in [0, capacity / 2, capacity, capacity + 7] {
                let mut source = rng(seed as u64);
                let which = [count::INDICES, count::MOVES][seed % 2];
                let mask = [255, 255, 1, 31][seed % 4];
                let pass = Pass {
                    shift: 8 * (seed as u32 % 4),
                    mask,
                    count: which as u32,
                    capacity,
                    positions: 0,
                    next_mask: 255,
                };
                // Keys with many distinct digits, and with few.
                let spread = [0xffff_ffff, 0x0303_0303][seed / 3];
                let keys: Vec<u32> = (0..capacity).map(|_| source.random::<u32>() & spread).collect();
                let blocks = capacity.div_ceil(3072);
                let bindings = [
                    words(&pass),
                    words(&step(&mut source, 3, &[(which, live)])),
                    guarded(&keys),
                    guarded(&junk(&mut source, 256 * blocks as usize)),
                ];
                let (case, groups) = (format!("{live} of {capacity}"), blocks.div_ceil(2));
                changed += check(context, "histogram", &case, &bindings, groups, &[], |b| {
                    let [pass, step, keys, digits] = b else { unreachable!() };
                    stages::histogram(&read(pass), of(step), keys, digits);
                })
                .changed;
            }
        }
        assert!(changed > 0);
    });
}
