//! Counter-based random numbers: a function of what is rounded, not of who rounds it when.
//!
//! pcg4d of Jarzynski & Olano 2020, "Hash Functions for GPU Rendering". The same bits come out of `shaders/shared/rng.wgsl`.
//!
//! Rounding noise: see [`noise`], which says how the 128 bits of a hash are shared out.

use crate::config::RandomBits;

/// What a random number is for, so that no two uses share one. Each use has two: the weight's, then the state's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Purpose {
    /// Down-conversion of an evicted or flushed row.
    WriteBack = 0,
    /// Down-conversion of a bypassed row after its update.
    Update = 2,
    /// Down-conversion of rows written by the caller.
    Write = 4,
    /// Down-conversion of initial values.
    Init = 6,
    /// The initial values themselves.
    Value = 8,
    /// Initial values that are normally distributed: two at a time, from all four words.
    Normal = 10,
    /// Which access of a stretch a sampled profile counts.
    Profile = 12,
    /// Where in the window a shuffled sample waits.
    Shuffle = 14,
}

/// Four words in, four well mixed words out.
#[inline]
#[must_use]
pub const fn pcg4d(x: [u32; 4]) -> [u32; 4] {
    let mut v = [0u32; 4];
    let mut i = 0;
    while i < 4 {
        v[i] = x[i].wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        i += 1;
    }
    v[0] = v[0].wrapping_add(v[1].wrapping_mul(v[3]));
    v[1] = v[1].wrapping_add(v[2].wrapping_mul(v[0]));
    v[2] = v[2].wrapping_add(v[0].wrapping_mul(v[1]));
    v[3] = v[3].wrapping_add(v[1].wrapping_mul(v[2]));
    i = 0;
    while i < 4 {
        v[i] ^= v[i] >> 16;
        i += 1;
    }
    v[0] = v[0].wrapping_add(v[1].wrapping_mul(v[3]));
    v[1] = v[1].wrapping_add(v[2].wrapping_mul(v[0]));
    v[2] = v[2].wrapping_add(v[0].wrapping_mul(v[1]));
    v[3] = v[3].wrapping_add(v[1].wrapping_mul(v[2]));
    v
}

/// 32 random bits for one element of one row at one step, of a hash of its own (SPEC 2). `purpose` is below 256, `element` below 2^24.
#[inline]
#[must_use]
pub const fn random(seed: u32, step: u32, row: u32, element: u32, purpose: u32) -> u32 {
    pcg4d([seed, step, row, element.wrapping_add(purpose << 24)])[0]
}

/// What decides whether an element is rounded up: its k random bits as a number r, put as `(r + 1/2) * 2^-k` in units of 2^-32.
///
/// The element's hash is `pcg4d(seed, step, row, first + 2^24 * purpose)`, `first` being the element rounded down to a multiple of n =
/// [`RandomBits::elements`]. Each of its four words is xored with itself shifted right by 16, since pcg4d leaves its lower bits short
/// periods. The words, x first, low bits first, are 128 bits in a row; they are cut into n equal parts. Element e takes part `e mod n`,
/// and of it the k highest bits: a word's upper 24 bits, a half of a word, or a byte of it.
///
/// The element goes up if its fraction is above the noise: never at 0, and with a probability within `2^-(k+1)` of the fraction.
#[inline]
#[must_use]
pub const fn noise(bits: RandomBits, seed: u32, step: u32, row: u32, element: u32, purpose: u32) -> u32 {
    let n = bits.elements();
    let (first, part) = (element & !(n - 1), element & (n - 1));
    let words = pcg4d([seed, step, row, first.wrapping_add(purpose << 24)]);
    let width = 128 / n;
    let at = part * width;
    // The part, brought to the top of a word.
    let top = folded(words[(at / 32) as usize]) << (32 - width - at % 32);
    centred(bits, top)
}

/// A word of a hash whose lower bits know what the upper ones know.
#[inline(always)]
pub(crate) const fn folded(word: u32) -> u32 {
    word ^ word >> 16
}

/// Of a word whose highest bits are random: those that count, and the half behind them.
#[inline(always)]
pub(crate) const fn centred(bits: RandomBits, top: u32) -> u32 {
    (top & !(u32::MAX >> bits.bits())) | (1 << 31) >> bits.bits()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pcg4d_known_answers() {
        // Computed once by a separate program from the paper's listing.
        assert_eq!(pcg4d([0, 0, 0, 0]), KNOWN[0]);
        assert_eq!(pcg4d([1, 2, 3, 4]), KNOWN[1]);
        assert_eq!(pcg4d([u32::MAX, 0xdead_beef, 1 << 31, 12345]), KNOWN[2]);
        assert_ne!(pcg4d([1, 2, 3, 5]), KNOWN[1]);
    }

    #[test]
    fn every_argument_counts() {
        let base = random(1, 2, 3, 4, 5);
        let others = [
            random(2, 2, 3, 4, 5),
            random(1, 3, 3, 4, 5),
            random(1, 2, 4, 4, 5),
            random(1, 2, 3, 5, 5),
            random(1, 2, 3, 4, 6),
        ];
        assert!(others.iter().all(|&other| other != base));
    }

    #[test]
    fn bits_are_even() {
        let n = 1 << 16;
        let mut ones = [0u32; 32];
        for i in 0..n {
            let bits = random(7, i % 16, i / 16, i % 100, 1);
            for (k, ones) in ones.iter_mut().enumerate() {
                *ones += bits >> k & 1;
            }
        }
        // Six standard deviations of a fair coin.
        let spread = 6.0 * (f64::from(n) / 4.0).sqrt();
        assert!(ones.iter().all(|&k| (f64::from(k) - f64::from(n) / 2.0).abs() < spread), "{ones:?}");
    }

    #[test]
    fn noise_known_answers() {
        // Computed once by a separate program from the definition.
        let [eight, sixteen, twenty_four] = RandomBits::ALL;
        assert_eq!(noise(twenty_four, 7, 3, 5, 0, 2), 0x69c4_d980);
        assert_eq!(noise(twenty_four, 7, 3, 5, 6, 2), 0x1f29_ce80);
        assert_eq!(noise(sixteen, 7, 3, 5, 12, 3), 0x0c62_8000);
        assert_eq!(noise(eight, 7, 3, 5, 29, 0), 0x5a80_0000);
        assert_eq!(noise(eight, u32::MAX, 1 << 31, u32::MAX - 5, (1 << 24) - 4, 255), 0x0780_0000);
        assert_ne!(noise(eight, 7, 3, 5, 28, 0), 0x5a80_0000);
    }

    /// The definition, on a hash as one number of 128 bits.
    fn defined(bits: RandomBits, element: u32, hash: u128) -> u32 {
        let (k, n) = (bits.bits(), bits.elements());
        let width = 128 / n;
        let part = (hash >> (element % n * width)) as u32 & (u32::MAX >> (32 - width));
        let r = f64::from(part >> (width - k));
        ((r + 0.5) * 2f64.powi(32 - k as i32)) as u32
    }

    #[test]
    fn noise_is_shared_out_as_defined() {
        let mut seen = std::collections::BTreeSet::new();
        for bits in RandomBits::ALL {
            for element in 0..1000u32 {
                let first = element / bits.elements() * bits.elements();
                let words = pcg4d([1, 2, 3, first + (6 << 24)]);
                let hash = (0..4).fold(0, |hash, i| hash | u128::from(words[i]) << (32 * i));
                // Each word's lower half, xored with its upper one.
                let upper = hash >> 16 & 0x0000_ffff_0000_ffff_0000_ffff_0000_ffff;
                let hash = hash ^ upper;
                let found = noise(bits, 1, 2, 3, element, 6);
                assert_eq!(found, defined(bits, element, hash), "{bits:?} {element}");
                // A neighbour's bits are others, but for chance.
                seen.insert((bits.bits(), element, found == defined(bits, element ^ 1, hash)));
            }
        }
        assert!(seen.iter().filter(|&&(_, _, same)| same).count() < 30);
    }

    /// Chi-square of values that shall be even, in standard deviations from its mean.
    fn unevenness(counts: &[u32]) -> f64 {
        let (n, cells) = (f64::from(counts.iter().sum::<u32>()), counts.len() as f64);
        let expected = n / cells;
        let chi = counts.iter().map(|&count| (f64::from(count) - expected).powi(2) / expected).sum::<f64>();
        (chi - (cells - 1.0)) / (2.0 * (cells - 1.0)).sqrt()
    }

    #[test]
    fn noise_is_even_and_neighbours_are_strangers() {
        // Along each argument, as training walks them: a row's elements, a step's rows, a row's steps.
        type Walk = fn(u32) -> [u32; 4];
        let walks: [(&str, Walk); 4] = [
            ("elements", |i| [7, 5, i >> 10, i & 1023]),
            ("rows", |i| [7, 5, i, 3]),
            ("rows far apart", |i| [7, 5, i << 12, 8]),
            ("steps", |i| [7, i, 1_000_003, 17]),
        ];
        for bits in RandomBits::ALL {
            for (name, walk) in walks {
                let at = |i: u32| {
                    let [seed, step, row, element] = walk(i);
                    noise(bits, seed, step, row, element, Purpose::Update as u32)
                };
                let (mut high, mut low, mut pairs) = (vec![0; 256], vec![0; 256], vec![0; 256]);
                for i in 0..1 << 18 {
                    let (x, next) = (at(i), at(i + 1));
                    high[x as usize >> 24] += 1;
                    low[x as usize >> (32 - bits.bits()) & 255] += 1;
                    pairs[x as usize >> 28 << 4 | next as usize >> 28] += 1;
                }
                for (what, counts) in [("high", &high), ("low", &low), ("pairs", &pairs)] {
                    let found = unevenness(counts);
                    assert!(found.abs() < 6.0, "{bits:?}, {name}, {what} bits: {found} standard deviations");
                }
            }
        }
        // What the test would say of a counter, and of bits that come twice.
        let counter: Vec<u32> = (0..256).map(|i| 1000 + i).collect();
        assert!(unevenness(&counter) > 6.0);
        let mut twice = vec![0; 256];
        (0..1u32 << 18)
            .for_each(|i| twice[random(7, 5, i, 0, 2) as usize >> 28 << 4 | random(7, 5, i, 0, 2) as usize >> 28] += 1);
        assert!(unevenness(&twice) > 6.0);
    }

    const KNOWN: [[u32; 4]; 3] = [
        [0x0f02_f829, 0x2d56_8769, 0x32b0_c43b, 0xd325_48ea],
        [0x3622_cd16, 0xf114_71d8, 0xe110_9b3f, 0x02b9_4c2f],
        [0x5d0c_9a43, 0x6098_8e62, 0x0cd1_70f0, 0xea51_3882],
    ];
}
