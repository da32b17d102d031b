use hotrow::internals::layout::{NONE, SmallInfo, count};
use hotrow::internals::stages;
use rand::RngExt as _;

use super::{check, guarded, junk, of, on_each, read, rng, step, words};

#[test]
pub(super) fn matches_the_mirror() {
    on_each(|context| {
        let mut changed = 0;
        for (seed, capacity) in [1u32, 2, 3, 31, 255, 256, 257, 1000, 1023, 1024].into_iter().enumerate() {
            for live in [0, capacity / 2, capacity, capacity + 1] {
                for (reach, left_out) in [(1, 0.0), (300, 0.0), (300, 0.3), (u32::MAX, 1.0), (u32::MAX, 0.1)] {
                    let mut source = rng(seed as u64);
                    let (which, segments, valid) =
                        [(count::INDICES, count::UNIQUE, count::VALID), (count::UNIQUE, count::MISSED, count::MOVES)]
                            [seed % 2];
                    let info = SmallInfo {
                        capacity,
                        count: which as u32,
                        mask: if reach == 300 { 511 } else { u32::MAX },
                        positions: source.random_range(0..2),
                        dedup: u32::from(seed % 5 != 4),
                        segments: segments as u32,
                        valid: valid as u32,
                        pad0: 0,
                    };
                    let mut key = || if source.random_bool(left_out) { NONE } else { source.random_range(0..reach) };
                    let keys: Vec<u32> = (0..capacity).map(|_| key()).collect();
                    let n = capacity as usize;
                    let mut array = || guarded(&junk(&mut source, n));
                    let arrays = [array(), array(), array(), array(), array()];
                    let [values_in, keys_out, values_out, segment, starts] = arrays;
                    let step = words(&step(&mut source, 1, &[(which, live)]));
                    let bindings =
                        [words(&info), step, guarded(&keys), values_in, keys_out, values_out, segment, starts];
                    let case = format!("{live} of {capacity} below {reach}, {left_out} left out");
                    changed += check(context, "sort_small", &case, &bindings, 1, &[], |b| {
                        let [info, step, keys_in, values_in, keys_out, values_out, segment, starts] = b else {
                            unreachable!()
                        };
                        let (info, step) = (read(info), of(step));
                        stages::sort_small(&info, step, keys_in, values_in, keys_out, values_out, segment, starts);
                    })
                    .changed;
                }
            }
        }
        assert!(changed > 0);
    });
}
