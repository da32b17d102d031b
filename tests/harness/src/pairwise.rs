//! Settings for a test that has too many for all of them.

use std::collections::BTreeSet;

use rand::RngExt as _;
use rand_pcg::Pcg64;

/// Settings of factors with so many values each, in which any two values of two factors come together at least once. Each setting is the best
/// of some random ones: the one with most pairs that no earlier setting has.
pub fn pairwise(source: &mut Pcg64, sizes: &[usize]) -> Vec<Vec<usize>> {
    let mut missing = BTreeSet::new();
    for b in 1..sizes.len() {
        for a in 0..b {
            missing.extend((0..sizes[a]).flat_map(|x| (0..sizes[b]).map(move |y| [a, x, b, y])));
        }
    }
    let mut settings = Vec::new();
    while let Some(&[a, x, b, y]) = missing.first() {
        let mut random = || {
            let mut setting: Vec<usize> = sizes.iter().map(|&size| source.random_range(0..size)).collect();
            (setting[a], setting[b]) = (x, y);
            setting
        };
        let has = |setting: &[usize], [a, x, b, y]: [usize; 4]| setting[a] == x && setting[b] == y;
        let new = |setting: &Vec<usize>| missing.iter().filter(|&&pair| has(setting, pair)).count();
        let best = (0..50).map(|_| random()).max_by_key(new).expect("some were drawn");
        missing.retain(|&pair| !has(&best, pair));
        settings.push(best);
    }
    settings
}
