use hotrow::{
    cpu,
    layout::{DedupInfo, NONE, count},
};

use super::{check, guarded, heads::sorted_keys, junk, of, on_each, read, rng, step, words};

#[test]
fn matches_the_mirror() {
    on_each(|context| {
        let mut changed = 0;
        for (seed, capacity) in [1usize, 2, 255, 256, 257, 512, 2000].into_iter().enumerate() {
            for live in [0, capacity / 2, capacity] {
                for (reach, left_out) in [(1, 0), (300, 0), (300, live / 3), (u32::MAX, live)] {
                    let mut source = rng(seed as u64);
                    let (which, segments, valid) =
                        [(count::INDICES, count::UNIQUE, count::VALID), (count::UNIQUE, count::SETS, count::MISSES)]
                            [seed % 2];
                    let mut keys = sorted_keys(&mut source, live, reach, left_out);
                    keys.resize(capacity, 5);
                    let mut scanned = Vec::new();
                    let mut heads = 0;
                    for (i, &key) in keys[..live].iter().enumerate() {
                        scanned.push(heads);
                        heads += u32::from(key != NONE && (i == 0 || keys[i - 1] != key));
                    }
                    scanned.extend(junk(&mut source, capacity - live));
                    let info = DedupInfo {
                        capacity: capacity as u32,
                        count: which as u32,
                        segments: segments as u32,
                        valid: valid as u32,
                    };
                    let bindings = [
                        words(&info),
                        words(&step(&mut source, 1, &[(which, live as u32)])),
                        guarded(&keys),
                        guarded(&scanned),
                        guarded(&junk(&mut source, capacity)),
                    ];
                    let case = format!("{live} of {capacity} below {reach}, {left_out} left out");
                    let groups = capacity.div_ceil(256) as u32;
                    changed += check(context, "segments", &case, &bindings, groups, &[], |b| {
                        let [info, step, keys, segment, starts] = b else { unreachable!() };
                        cpu::segments(&read(info), of(step), keys, segment, starts);
                    })
                    .changed;
                }
            }
        }
        assert!(changed > 0);
    });
}
