//! The seed of a run, from which all random tests draw: each run of a test program has a new one and prints it; `HOTROW_TEST_SEED` sets it. And
//! how much of a long test a run takes.

use std::{
    hash::{BuildHasher as _, RandomState},
    io::Write as _,
    sync::OnceLock,
};

use proptest::test_runner::{Config, RngSeed};

/// Prints to stderr directly, because libtest hides the output of a passing test.
pub fn tell(text: &str) {
    writeln!(std::io::stderr().lock(), "{text}").unwrap();
}

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
    // The last steps of SplitMix64.
    let mut mixed = seed().wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ hash(name);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (mixed ^ (mixed >> 31)) >> 33
}

/// FNV-1a: the same number on every platform and with every compiler.
pub fn hash(text: &str) -> u64 {
    text.bytes().fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3))
}

/// For the name of a test the seeds that each of its runs takes before new ones: those that meet rare cases for certain. A seed that failed comes here.
const HELD: [(&str, &[u64]); 4] = [
    ("ranks on a device", &[0]),
    ("scaler", &[0, 1, 2, 3]),
    ("paths", &[0, 1, 2, 3]),
    ("paths of large batches", &[0, 1, 2, 3]),
];

/// The seeds of the test `name` that are held.
pub fn held(name: &str) -> impl Iterator<Item = u64> + Clone + use<> {
    let held = HELD.iter().find(|(of, _)| *of == name);
    held.into_iter().flat_map(|(_, seeds)| *seeds).copied()
}

/// The seeds of the test `name`: those that are held, and of `runs` new ones, one after another, so that they have every remainder.
pub fn seeds(name: &str, runs: u64) -> impl Iterator<Item = u64> + Clone + use<> {
    let first = seed_for(name);
    held(name).chain(first..first + runs)
}

/// As [`seeds`], but of the new ones a [`sample`].
pub fn sample_seeds(one_in: u32, name: &str, runs: u64) -> impl Iterator<Item = u64> + use<> {
    held(name).chain(sample(one_in, seed_for(name)..seed_for(name) + runs))
}

/// The options of proptest for `cases` cases of the test `name`. `PROPTEST_CASES` sets another number.
pub fn proptest(name: &str, cases: u32) -> Config {
    let cases =
        std::env::var("PROPTEST_CASES").map_or(cases, |text| text.parse().expect("PROPTEST_CASES: wanted a number"));
    Config { cases, failure_persistence: None, rng_seed: RngSeed::Fixed(seed_for(name)), ..Config::default() }
}

/// Picks what a run takes of a long test: one in `one_in` items and always the first; all of them with `HOTROW_TEST_SHARE=1`, and one in five with
/// `HOTROW_TEST_SHARE=5`. The choice follows the golden ratio, so it is even over any modulus, and begins where the run's seed says.
pub fn sample<T>(one_in: u32, items: impl IntoIterator<Item = T>) -> impl Iterator<Item = T> {
    pick(asked_share().unwrap_or(one_in), seed_for("sample") as u32, items)
}

/// Picks the runs of a test: all, or about one in `HOTROW_TEST_SHARE` and always the first. Every case that a test must meet is also among one in
/// five runs.
pub fn share<T>(runs: impl IntoIterator<Item = T>) -> impl Iterator<Item = T> {
    pick(asked_share().unwrap_or(1), 0, runs)
}

/// True if this run takes the whole of every long test.
pub fn whole() -> bool {
    asked_share() == Some(1)
}

fn asked_share() -> Option<u32> {
    let text = std::env::var("HOTROW_TEST_SHARE").ok()?;
    let number = text.parse().ok().filter(|n| (1..=5).contains(n));
    // A typing error must not leave tests out.
    Some(number.unwrap_or_else(|| panic!("HOTROW_TEST_SHARE: wanted a number from 1 to 5, found {text}")))
}

fn pick<T>(one_in: u32, start: u32, items: impl IntoIterator<Item = T>) -> impl Iterator<Item = T> {
    let taken = move |at: u32| start.wrapping_add(at).wrapping_mul(0x9E37_79B9) <= u32::MAX / one_in;
    (0..).zip(items).filter(move |&(at, _)| at == 0 || taken(at)).map(|(_, item)| item)
}
