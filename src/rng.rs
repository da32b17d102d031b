//! Counter-based random numbers: a function of what is rounded, not of who rounds it when.
//!
//! pcg4d of Jarzynski & Olano 2020, "Hash Functions for GPU Rendering". The same bits come out of `shaders/shared/rng.wgsl`.

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

/// 32 random bits for one element of one row at one step (SPEC 2). `purpose` is below 256, `element` below 2^24.
#[inline]
#[must_use]
pub const fn random(seed: u32, step: u32, row: u32, element: u32, purpose: u32) -> u32 {
    pcg4d([seed, step, row, element.wrapping_add(purpose << 24)])[0]
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

    const KNOWN: [[u32; 4]; 3] = [
        [0x0f02_f829, 0x2d56_8769, 0x32b0_c43b, 0xd325_48ea],
        [0x3622_cd16, 0xf114_71d8, 0xe110_9b3f, 0x02b9_4c2f],
        [0x5d0c_9a43, 0x6098_8e62, 0x0cd1_70f0, 0xea51_3882],
    ];
}
