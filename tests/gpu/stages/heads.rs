use hotrow::internals::layout::{DedupInfo, NONE, count};
use hotrow::internals::stages;
use rand::RngExt as _;
use rand_pcg::Pcg64;

use super::{check, guarded, junk, of, on_each, read, rng, step, words};

/// `n` ascending keys from `0..reach`, the last `left_out` of them NONE.
pub(super) fn sorted_keys(source: &mut Pcg64, n: usize, reach: u32, left_out: usize) -> Vec<u32> {
    let mut keys: Vec<u32> = (0..n).map(|_| source.random_range(0..reach)).collect();
    keys.sort_unstable();
    keys[n - left_out..].fill(NONE);
    keys
}

#[test]
pub(super) fn matches_the_mirror() {
    on_each(|context| {
        let mut changed = 0;
        for (seed, capacity) in [1usize, 2, 255, 256, 257, 2047, 2048, 2049, 9000].into_iter().enumerate() {
            for live in [0, capacity / 2, capacity] {
                for (reach, left_out) in [(1, 0), (300, 0), (300, live / 3), (u32::MAX, live)] {
                    let mut source = rng(seed as u64);
                    let which = [count::INDICES, count::UNIQUE][seed % 2];
                    let mut keys = sorted_keys(&mut source, live, reach, left_out);
                    // Keys behind the live ones must not count, even if they continue the last live key.
                    keys.resize(capacity, keys.last().copied().unwrap_or(5));
                    let info = DedupInfo { capacity: capacity as u32, count: which as u32, segments: 1, valid: 2 };
                    let bindings = [
                        words(&info),
                        words(&step(&mut source, 1, &[(which, live as u32)])),
                        guarded(&keys),
                        guarded(&junk(&mut source, capacity.div_ceil(2048))),
                    ];
                    let case = format!("{live} of {capacity} below {reach}, {left_out} left out");
                    let groups = capacity.div_ceil(4096) as u32;
                    changed += check(context, "heads", &case, &bindings, groups, &[], |b| {
                        let [info, step, keys, heads] = b else { unreachable!() };
                        stages::heads(&read(info), of(step), keys, heads);
                    })
                    .changed;
                }
            }
        }
        assert!(changed > 0);
    });
}
