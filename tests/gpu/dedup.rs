//! Sort and dedup are right at every size and for any key width, and stable.

use hotrow::{
    Context,
    internals::{Deduped, RankBody, layout::NONE},
};
use rand::{RngExt, SeedableRng};

use hotrow_harness::{
    device::{again, options, share, with_gpu},
    gpu_test,
};

/// The expected result by the standard library's sort, which shares nothing with the shaders.
pub(crate) fn expected(keys: &[u32], live: usize) -> Deduped {
    let mut pairs: Vec<(u32, u32)> = keys[..live].iter().copied().zip(0..).collect();
    pairs.sort(); // by key, then by position, as a stable sort does
    let mut wanted = Deduped { keys: Vec::new(), order: Vec::new(), segment: Vec::new(), starts: Vec::new() };
    for (place, (key, position)) in pairs.into_iter().enumerate() {
        if key != NONE {
            if wanted.keys.last() != Some(&key) {
                wanted.starts.push(place as u32);
            }
            wanted.segment.push(wanted.starts.len() as u32 - 1);
        }
        wanted.keys.push(key);
        wanted.order.push(position);
    }
    wanted
}

pub(crate) fn check(context: &Context, what: &str, keys: &[u32], live: usize, key_bits: u32) {
    let wanted = expected(keys, live);
    // Few keys can take the small sort or the large one. Both give the same bits.
    for large in [false, true] {
        if !large && keys.len() > 1024 {
            continue;
        }
        let found = context.run_dedup(keys, live as u32, key_bits, large).unwrap();
        assert!(found == wanted, "{what}: {} keys, {live} live, {key_bits} bits, large {large}", keys.len());
    }
}

pub(crate) fn rng(seed: u64) -> rand_pcg::Pcg64 {
    rand_pcg::Pcg64::seed_from_u64(seed)
}

#[gpu_test]
fn sizes(context: &Context) {
    // Sizes next to a round, the small sort, a block of dedup, a block of the sort, and several blocks.
    let around = [1, 2, 31, 32, 33, 255, 256, 257, 1023, 1024, 1025, 2047, 2048, 2049, 3071, 3072, 3073];
    for n in around.into_iter().chain(share([70_001, 300_007])) {
        let keys = vec![rng(n as u64).random(); n];
        check(context, "all equal", &keys, n, 32);
        let mut source = rng(n as u64);
        let keys: Vec<u32> = (0..n).map(|_| source.random()).collect();
        check(context, "random", &keys, n, 32);
        check(context, "fewer live than there is room", &keys, n / 2, 32);
        check(context, "none live", &keys, 0, 32);
        check(context, "one live", &keys, 1, 32);
    }
}

/// The longest rows of which a workgroup of scan takes eight, and one block more: both clear the digits that scatter counts next.
#[gpu_test]
fn rows_of_a_scan_that_are_just_short(context: &Context) {
    for n in [256 * 3072, 256 * 3072 + 1] {
        let mut source = rng(n as u64);
        let keys: Vec<u32> = (0..n).map(|_| source.random_range(0..1 << 18)).collect();
        check(context, "256 blocks", &keys, n, 18);
    }
}

/// So many keys that a histogram counts the digits of every pass.
#[gpu_test]
fn more_than_are_counted_ahead(context: &Context) {
    let n = (1 << 21) + 5;
    let mut source = rng(4);
    let keys: Vec<u32> = (0..n).map(|_| source.random_range(0..60_000)).collect();
    check(context, "beyond 2^21", &keys, n, 16);
    check(context, "room for more than 2^21", &keys, 5000, 16);
}

#[test]
pub(crate) fn shapes() {
    with_gpu(|context| {
        let zipf = rand_distr::Zipf::new(5000.0, 1.05).unwrap();
        let mut source = rng(1);
        for n in [1000u32, 10_000] {
            let cases: [(&str, Vec<u32>); 5] = [
                ("sorted", (0..n).collect()),
                ("reversed", (0..n).rev().collect()),
                ("zipf", (0..n).map(|_| source.sample(zipf) as u32).collect()),
                ("some left out", (0..n).map(|i| if i % 3 == 0 { NONE } else { i % 97 }).collect()),
                ("all left out", vec![NONE; n as usize]),
            ];
            for (what, keys) in cases {
                check(context, what, &keys, n as usize, 32);
            }
        }
    });
}

#[gpu_test]
fn every_key_width(context: &Context) {
    let mut source = rng(2);
    for bits in 1..=32u32 {
        let top = ((1u64 << bits) - 1) as u32;
        let mut keys: Vec<u32> = (0..4000).map(|_| source.random::<u32>() & top).collect();
        keys[17] = top;
        // To a sort of so few bits, a key with every low bit set looks like NONE. Real rows are smaller.
        keys.iter_mut().for_each(|key| *key = if *key == top && bits < 32 { NONE } else { *key });
        check(context, "width", &keys, 4000, bits);
        check(context, "width, few keys", &keys[..1000], 1000, bits);
    }
}

#[gpu_test]
fn more_blocks_than_workgroups(context: &Context) {
    // Three workgroups in x stand for the 65,535 of a real device, and twelve for the largest grid that loops over blocks.
    let narrow = again(&options().rank(RankBody::Portable).max_groups(3));
    for block in [2048, 3072] {
        for n in [3, 12, 36].map(|groups| groups * block) {
            for n in [n - 1, n, n + 1] {
                let mut source = rng(n as u64);
                let keys: Vec<u32> = (0..n).map(|_| source.random::<u32>() % 5000).collect();
                check(&narrow, "narrow", &keys, n, 13);
            }
        }
    }
    // Once at full size: the largest grid of any device, and one block more.
    let n = 2048 * 3072 + 1;
    let mut source = rng(3);
    let keys: Vec<u32> = (0..n).map(|_| source.random::<u32>() % 60_000).collect();
    check(context, "large", &keys, n, 16);
}

#[test]
fn a_wrong_result_is_told_apart() {
    let right = expected(&[5, 3, 5, NONE, 3], 5);
    assert_eq!(right.keys, [3, 3, 5, 5, NONE]);
    assert_eq!(right.order, [1, 4, 0, 2, 3]);
    assert_eq!(right.segment, [0, 0, 1, 1]);
    assert_eq!(right.starts, [0, 2]);
    let mut unstable = right.clone();
    unstable.order.swap(0, 1);
    assert_ne!(unstable, right);
    let mut lost = right.clone();
    lost.starts.pop();
    assert_ne!(lost, right);
}
