//! The stages of sorts and dedups.

use hotrow::{
    Context, RankBody,
    internals::layout::{DedupInfo, NONE, Pass, ScanInfo, SmallInfo, count},
    internals::stages,
};
use hotrow_harness::device::{again, options, with_gpu};
use rand::RngExt as _;

use super::{check, each, each_on, guarded, junk, of, one_of, read, step, words};

/// One pass of a sort: sizes about one block of 3,072, and more blocks than workgroups, so that workgroups loop.
#[test]
pub(crate) fn histogram_and_scatter() {
    with_gpu(|context| passes(&[context.clone(), again(&options().rank(RankBody::Portable).max_groups(3))]));
}

pub(crate) fn passes(contexts: &[Context]) {
    each_on(
        contexts,
        "scatter",
        [8, 4, 3, 4, 3, 2],
        |case, mut source, [capacity, live, spread, digit, next, positions]| {
            let capacity = [1, 255, 256, 257, 3071, 3072, 3073, 20_000][capacity];
            let live = [0, capacity / 2, capacity, capacity + 7][live];
            let which = one_of(&mut source, &[count::INDICES, count::MOVES]);
            let (shift, mask) = (8 * digit as u32, [255, 255, 1, 31][digit]);
            let next_mask = if shift == 24 { 0 } else { [255, 0, 3][next] };
            let pass = Pass { shift, mask, count: which as u32, capacity, positions: positions as u32, next_mask };
            // Keys with many distinct digits, with few, and with one.
            let spread = [0xffff_ffff, 0x0303_0303, 0][spread];
            let keys: Vec<u32> = (0..capacity).map(|_| source.random::<u32>() & spread).collect();
            let step = step(&mut source, 3, &[(which, live)]);
            let (n, blocks) = (capacity as usize, capacity.div_ceil(3072));
            let groups = blocks.div_ceil(2);
            let counters = 256 * blocks as usize;
            let bindings = [words(&pass), words(&step), guarded(&keys), guarded(&junk(&mut source, counters))];
            let run = check(case, "histogram", &bindings, groups, &[], |[pass, step, keys, digits]| {
                stages::histogram(&read(pass), of(step), keys, digits);
            });
            // The scanned digit counts of the pass, and the total of each digit.
            let (mut digits, mut totals) = (run.wanted[3][..counters].to_vec(), vec![0; 256]);
            let info = ScanInfo { count: pass.count, capacity, per_block: 3072, rows: 256, clears: 0 };
            stages::scan(&info, &step, &mut digits, &mut totals, &mut []);
            let bindings = [
                words(&pass),
                words(&step),
                guarded(&keys),
                guarded(&junk(&mut source, n)),
                guarded(&digits),
                guarded(&totals),
                guarded(&junk(&mut source, n)),
                guarded(&junk(&mut source, n)),
                guarded(&vec![0; counters]),
            ];
            let run = check(case, "scatter", &bindings, groups, &[], |b| {
                let [pass, step, keys, values, digits, totals, keys_out, values_out, next] = b;
                let (pass, step) = (read(pass), of(step));
                stages::scatter(&pass, step, keys, values, digits, totals, keys_out, values_out, next);
            });
            // Checked without the mirror: scatter counts what a histogram of its output would count.
            if next_mask != 0 {
                let next = Pass { shift: shift + 8, mask: next_mask, ..pass };
                let mut counted = vec![0; counters];
                stages::histogram(&next, &step, &run.found[6], &mut counted);
                assert_eq!(run.found[8][..counters], counted, "{case}");
                counted[0] ^= 1;
                assert_ne!(run.found[8][..counters], counted, "a wrong count is noticed");
            }
            // Checked without the mirror: the pass is stable, so equal digits keep their order.
            if positions == 1 {
                let key = |i: u32| ((keys[i as usize] >> shift) & mask, i);
                let live = live.min(capacity) as usize;
                assert!(run.found[7][..live].is_sorted_by_key(|&i| key(i)), "{case}");
            }
        },
    );
}

/// Lengths about four (one invocation's share), about a tile of 2,048, and of several tiles.
#[test]
pub(crate) fn scan() {
    each("scan", [13, 3, 2], |case, mut source, [length, rows, clears]| {
        let length = [0u32, 1, 3, 4, 5, 15, 16, 17, 255, 2047, 2048, 2049, 7000][length];
        let (rows, per_block) = [(1, 2048), (3, 10), (256, 3072)][rows];
        // The last block has one element.
        let n = (length * per_block).saturating_sub(per_block - 1);
        let which = count::UNIQUE;
        let info = ScanInfo { count: which as u32, capacity: n + length % 2, per_block, rows, clears: clears as u32 };
        // Any words will do, because sums wrap alike on both sides.
        let bindings = [
            words(&info),
            words(&step(&mut source, 3, &[(which, n)])),
            guarded(&junk(&mut source, (rows * length) as usize)),
            guarded(&junk(&mut source, rows as usize)),
            guarded(&junk(&mut source, (rows * length) as usize)),
        ];
        check(case, "scan", &bindings, rows.div_ceil(3), &[], |[info, step, data, totals, cleared]| {
            stages::scan(&read(info), of(step), data, totals, cleared);
        });
    });
}

/// The counts that a dedup reads and writes.
const COUNTS: [(usize, usize, usize); 2] =
    [(count::INDICES, count::UNIQUE, count::VALID), (count::UNIQUE, count::MISSED, count::MOVES)];

#[test]
pub(crate) fn heads_and_segments() {
    each("segments", [8, 3, 4, 2], |case, mut source, [capacity, live, kind, counts]| {
        let capacity = [one_of(&mut source, &[1, 2]), 255, 256, 257, 2047, 2048, 2049, 9000][capacity];
        let live = [0, capacity / 2, capacity][live];
        let (reach, left_out) = [(1, 0), (300, 0), (300, live / 3), (u32::MAX, live)][kind];
        let (which, segments, valid) = COUNTS[counts];
        // Ascending keys, the last of them NONE.
        let mut keys: Vec<u32> = (0..live).map(|_| source.random_range(0..reach)).collect();
        keys.sort_unstable();
        keys[live - left_out..].fill(NONE);
        // Keys behind the live ones must not count, even if they continue the last live key.
        keys.resize(capacity, keys.last().copied().unwrap_or(5));
        let [info_of, segments, valid] = [which, segments, valid].map(|count| count as u32);
        let info = DedupInfo { capacity: capacity as u32, count: info_of, segments, valid };
        let step = words(&step(&mut source, 1, &[(which, live as u32)]));
        let groups = capacity.div_ceil(4096) as u32;
        let heads = guarded(&junk(&mut source, capacity.div_ceil(2048)));
        let bindings = [words(&info), step.clone(), guarded(&keys), heads];
        let run = check(case, "heads", &bindings, groups, &[], |[info, step, keys, heads]| {
            stages::heads(&read(info), of(step), keys, heads);
        });
        let [segment, starts] = [(); 2].map(|()| guarded(&junk(&mut source, capacity)));
        let bindings = [words(&info), step, guarded(&keys), run.wanted[3].clone(), segment, starts];
        check(case, "segments", &bindings, groups, &[], |[info, step, keys, heads, segment, starts]| {
            stages::segments(&read(info), of(step), keys, heads, segment, starts);
        });
    });
}

#[test]
pub(crate) fn sort_small() {
    each("sort_small", [10, 4, 5, 2, 2, 2], |case, mut source, [capacity, live, kind, counts, positions, dedup]| {
        let capacity = [1u32, 2, 3, 31, 255, 256, 257, 1000, 1023, 1024][capacity];
        let live = [0, capacity / 2, capacity, capacity + 1][live];
        let (reach, left_out) = [(1, 0.0), (300, 0.0), (300, 0.3), (u32::MAX, 1.0), (u32::MAX, 0.1)][kind];
        let (which, segments, valid) = COUNTS[counts];
        let info = SmallInfo {
            capacity,
            count: which as u32,
            mask: if reach == 300 { 511 } else { u32::MAX },
            positions: positions as u32,
            dedup: dedup as u32,
            segments: segments as u32,
            valid: valid as u32,
            pad0: 0,
        };
        let mut key = || if source.random_bool(left_out) { NONE } else { source.random_range(0..reach) };
        let keys: Vec<u32> = (0..capacity).map(|_| key()).collect();
        let arrays = [(); 5].map(|()| guarded(&junk(&mut source, capacity as usize)));
        let [values_in, keys_out, values_out, segment, starts] = arrays;
        let step = words(&step(&mut source, 1, &[(which, live)]));
        let bindings = [words(&info), step, guarded(&keys), values_in, keys_out, values_out, segment, starts];
        check(case, "sort_small", &bindings, 1, &[], |b| {
            let [info, step, keys_in, values_in, keys_out, values_out, segment, starts] = b;
            let (info, step) = (read(info), of(step));
            stages::sort_small(&info, step, keys_in, values_in, keys_out, values_out, segment, starts);
        });
    });
}
