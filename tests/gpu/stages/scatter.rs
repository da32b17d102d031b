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
        for (seed, capacity) in [1, 255, 256, 257, 2047, 2048, 2049, 9000].into_iter().enumerate() {
            for live in [0, capacity / 2, capacity] {
                for mask in [0xffff_ffff, 0x0101_0101, 0] {
                    let mut source = rng(seed as u64);
                    let which = [count::INDICES, count::SLOTS][seed % 2];
                    let blocks = u32::div_ceil(capacity, 2048);
                    let first = source.random_range(0..2);
                    let pass = Pass { shift: 8 * (seed as u32 % 4), count: which as u32, blocks, first };
                    let keys: Vec<u32> = (0..capacity).map(|_| source.random::<u32>() & mask).collect();
                    let mut step = step(&mut source, 3, &[(which, live)]);
                    let mut digits = vec![0; 256 * blocks as usize];
                    cpu::histogram(&pass, &step, &keys, &mut digits);
                    let mut before = 0;
                    digits.iter_mut().for_each(|digit| (*digit, before) = (before, before + *digit));
                    let n = capacity as usize;
                    let bindings = [
                        words(&pass),
                        words(&step),
                        guarded(&keys),
                        guarded(&junk(&mut source, n)),
                        guarded(&digits),
                        guarded(&junk(&mut source, n)),
                        guarded(&junk(&mut source, n)),
                    ];
                    let case = format!("{live} of {capacity}, mask {mask:#x}, first {first}");
                    let run = check(context, "scatter", &case, &bindings, blocks, &[], |b| {
                        let [pass, step, keys_in, values_in, digits, keys_out, values_out] = b else { unreachable!() };
                        cpu::scatter(&read(pass), of(step), keys_in, values_in, digits, keys_out, values_out);
                    });
                    changed += run.changed;
                    // Stable, said without the mirror: equal digits keep their order.
                    if first == 1 {
                        let key = |i: u32| ((keys[i as usize] >> pass.shift) & 255, i);
                        step.counts[which] = live;
                        assert!(run.found[6][..live as usize].is_sorted_by_key(|&i| key(i)), "{case}");
                    }
                }
            }
        }
        assert!(changed > 0);
    });
}
