//! The seed of a run, from which all random tests draw. Each run of a test program has a new one and prints it; `HOTROW_TEST_SEED` sets it.

use std::{
    hash::{BuildHasher as _, RandomState},
    ops::Range,
    sync::OnceLock,
};

use proptest::test_runner::{Config, RngSeed};

use crate::device::tell;

/// The run's seed: `HOTROW_TEST_SEED`, or a new one. It is printed when a test first asks for it.
pub fn seed() -> u64 {
    static SEED: OnceLock<u64> = OnceLock::new();
    *SEED.get_or_init(|| {
        let seed = match std::env::var("HOTROW_TEST_SEED") {
            Ok(text) => text.parse().unwrap_or_else(|_| {
                panic!("HOTROW_TEST_SEED: wanted a whole number from 0 to 2^64 - 1, found {text:?}")
            }),
            Err(_) => RandomState::new().hash_one(0) >> 32,
        };
        tell(&format!("random tests: HOTROW_TEST_SEED={seed} makes the same run again"));
        seed
    })
}

/// A seed below 2^31 that is drawn from the run's seed for the test `name`. Tests may count on from it, and multiply it by small numbers.
pub fn seed_for(name: &str) -> u64 {
    // FNV-1a over the name, and the last steps of SplitMix64. The same numbers on every platform and with every compiler.
    let named = name
        .bytes()
        .fold(0xCBF2_9CE4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3));
    let mut mixed = seed().wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ named;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (mixed ^ (mixed >> 31)) >> 33
}

/// The seeds of `runs` random runs of the test `name`, one after another, so that they have every remainder.
pub fn seeds(name: &str, runs: u64) -> Range<u64> {
    let first = seed_for(name);
    first..first + runs
}

/// The options of proptest for `cases` cases of the test `name`. `PROPTEST_CASES` sets another number.
pub fn proptest(name: &str, cases: u32) -> Config {
    let cases =
        std::env::var("PROPTEST_CASES").map_or(cases, |text| text.parse().expect("PROPTEST_CASES: wanted a number"));
    Config { cases, failure_persistence: None, rng_seed: RngSeed::Fixed(seed_for(name)), ..Config::default() }
}
