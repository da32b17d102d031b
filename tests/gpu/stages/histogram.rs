use hotrow::{
    cpu,
    layout::{Pass, count},
};
use rand::RngExt as _;

use super::{check, guarded, junk, of, on_each, read, rng, step, words};

#[test]
fn matches_the_mirror() {
    on_each(|context| {
        let mut changed = 0;
        for (seed, capacity) in [1, 2047, 2048, 2049, 4096, 9000].into_iter().enumerate() {
            for live in [0, capacity / 2, capacity] {
                let mut source = rng(seed as u64);
                let which = [count::INDICES, count::MISSES][seed % 2];
                let blocks = u32::div_ceil(capacity, 2048);
                let pass = Pass { shift: 8 * (seed as u32 % 4), count: which as u32, blocks, first: 0 };
                // Few digits and many.
                let mask = [0xffff_ffff, 0x0303_0303][seed / 3];
                let keys: Vec<u32> = (0..capacity).map(|_| source.random::<u32>() & mask).collect();
                let bindings = [
                    words(&pass),
                    words(&step(&mut source, 3, &[(which, live)])),
                    guarded(&keys),
                    guarded(&junk(&mut source, 256 * blocks as usize)),
                ];
                changed += check(context, "histogram", &format!("{live} of {capacity}"), &bindings, blocks, &[], |b| {
                    let [pass, step, keys, digits] = b else { unreachable!() };
                    cpu::histogram(&read(pass), of(step), keys, digits);
                })
                .changed;
            }
        }
        assert!(changed > 0);
    });
}
