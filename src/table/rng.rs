//! Counter-based random numbers: the bits depend on the group's seed, the step, the row, the element and the purpose
//! (SPEC 2), not on the backend or the order of the work.
//!
//! The hash is pcg4d (Jarzynski & Olano 2020). `shaders/shared/rng.wgsl` computes the same bits.
//!
//! [`noise`] turns the 128 bits of a hash into the random bits of several elements.

use crate::config::{GroupConfig, RandomBits, Rounding};

/// The purpose of a random number, so that no two uses share one. Rounding takes two purposes: this one for weights,
/// the next for state.
///
/// ```
/// use hotrow::{RandomBits, internals::rng::{Purpose, noise}};
///
/// let of = |purpose| noise(RandomBits::TwentyFour, 7, 1, 42, 0, purpose as u32); // seed 7, step 1, row 42, element 0
/// assert_ne!(of(Purpose::WriteBack), of(Purpose::Update));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Purpose {
    /// Down-conversion of an evicted or flushed row.
    WriteBack = 0,
    /// Down-conversion of a bypassed row after its update.
    Update = 2,
    /// Down-conversion of weights that the caller gives: written rows, and sources.
    Write = 4,
    /// Down-conversion of drawn initial values.
    Init = 6,
    /// The initial values themselves.
    Value = 8,
    /// Normally distributed initial values; one hash gives two of them.
    Normal = 10,
    /// The access of a stretch that a sampled profile counts.
    Profile = 12,
    /// Rows, and gradients, that are rounded between ranks.
    Wire = 16,
}

impl Purpose {
    /// The rounding of what a group of this configuration rounds for this purpose.
    pub(crate) const fn rounding(self, config: &GroupConfig) -> Rounding {
        if matches!(self, Self::Write) { config.write_rounding } else { config.rounding }
    }
}

/// pcg4d: hashes four words to four words.
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

/// 32 random bits for one element of one row at one step, from a hash of their own (SPEC 2). `purpose` is below 256,
/// `element` below 2^24.
#[inline]
#[must_use]
pub const fn random(seed: u32, step: u32, row: u32, element: u32, purpose: u32) -> u32 {
    pcg4d([seed, step, row, element.wrapping_add(purpose << 24)])[0]
}

/// The rounding noise of an element, in units of 2^-32: `(r + 1/2) * 2^-k`, where r is the element's random number of k
/// bits (SPEC 2).
///
/// One hash `pcg4d(seed, step, row, first + 2^24 * purpose)` serves n = [`RandomBits::elements`] neighbouring elements;
/// `first` is the element rounded down to a multiple of n. Each of the four words is xored with itself shifted right by
/// 16, because pcg4d's low bits have short periods. The words, first word first and low bits first, are 128 bits in a
/// row, cut into n equal parts. Element e takes part `e mod n`, and of it the k highest bits.
///
/// The element is rounded up if its fraction is above the noise: never at a fraction of 0, else with a probability
/// within `2^-(k+1)` of the fraction.
#[inline]
#[must_use]
pub const fn noise(bits: RandomBits, seed: u32, step: u32, row: u32, element: u32, purpose: u32) -> u32 {
    let n = bits.elements();
    let (first, part) = (element & !(n - 1), element & (n - 1));
    let words = pcg4d([seed, step, row, first.wrapping_add(purpose << 24)]);
    let width = 128 / n;
    let at = part * width;
    // Shifts the element's part to the top of a word.
    let top = folded(words[(at / 32) as usize]) << (32 - width - at % 32);
    centred(bits, top)
}

/// Xors a word of a hash with itself shifted right by 16.
#[inline(always)]
pub(crate) const fn folded(word: u32) -> u32 {
    word ^ word >> 16
}

/// Keeps the k highest bits of a word and appends the half: `(r + 1/2) * 2^-k`.
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

    /// SPEC 2's definition, with the hash as one number of 128 bits.
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
                // Xors the lower half of each word with its upper half.
                let upper = hash >> 16 & 0x0000_ffff_0000_ffff_0000_ffff_0000_ffff;
                let hash = hash ^ upper;
                let found = noise(bits, 1, 2, 3, element, 6);
                assert_eq!(found, defined(bits, element, hash), "{bits:?} {element}");
                // Another element's bits differ, except by chance.
                seen.insert((bits.bits(), element, found == defined(bits, element ^ 1, hash)));
            }
        }
        assert!(seen.iter().filter(|&&(_, _, same)| same).count() < 30);
    }

    /// Chi-square of counts that should be even, in standard deviations from its mean.
    fn unevenness(counts: &[u32]) -> f64 {
        let (n, cells) = (f64::from(counts.iter().sum::<u32>()), counts.len() as f64);
        let expected = n / cells;
        let chi = counts.iter().map(|&count| (f64::from(count) - expected).powi(2) / expected).sum::<f64>();
        (chi - (cells - 1.0)) / (2.0 * (cells - 1.0)).sqrt()
    }

    #[test]
    fn noise_is_even_and_neighbours_are_strangers() {
        // Along each argument as training walks it: the elements of a row, the rows of a step, the steps of a row.
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
        // The measure must reject a plain counter, and bits that repeat.
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
