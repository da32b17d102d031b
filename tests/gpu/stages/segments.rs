use hotrow::internals::layout::{DedupInfo, count};
use hotrow::internals::stages;

use super::{check, guarded, heads::sorted_keys, junk, of, on_each, read, rng, step, words};

#[test]
pub(super) fn matches_the_mirror() {
    on_each(|context| {
        let mut changed = 0;
        for (seed, capacity) in [1usize, 2, 255, 256, 257, 2047, 2048, 2049, 9000].into_iter().enumerate() {
            for live in [0, capacity / 2, capacity] {
                for (reach, left_out) in [(1, 0), (300, 0), (300, live / 3), (u32::MAX, live)] {
                    let mut source = rng(seed as u64);
                    let (which, segments, valid) =
                        [(count::INDICES, count::UNIQUE, count::VALID), (count::UNIQUE, count::MISSED, count::MOVES)]
                            [seed % 2];
                    let mut keys = sorted_keys(&mut source, live, reach, left_out);
                    keys.resize(capacity, 5);
                    let info = DedupInfo {
                        capacity: capacity as u32,
                        count: which as u32,
                        segments: segments as u32,
                        valid: valid as u32,
                    };
                    let step = step(&mut source, 1, &[(which, live as u32)]);
                    let mut heads = junk(&mut source, capacity.div_ceil(2048));
                    stages::heads(&info, &step, &keys, &mut heads);
                    let bindings = [
                        words(&info),
                        words(&step),
                        guarded(&keys),
                        guarded(&heads),
                        guarded(&junk(&mut source, capacity)),
                        guarded(&junk(&mut source, capacity)),
                    ];
                    let case = format!("{live} of {capacity} below {reach}, {left_out} left out");
                    let groups = capacity.div_ceil(4096) as u32;
                    changed += check(context, "segments", &case, &bindings, groups, &[], |b| {
                        let [info, step, keys, heads, segment, starts] = b else { unreachable!() };
                        stages::segments(&read(info), of(step), keys, heads, segment, starts);
                    })
                    .changed;
                }
            }
        }
        assert!(changed > 0);
    });
}
