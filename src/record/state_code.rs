//! The optimiser's states in INT8 (SPEC 3, "States in INT8"): floats of 3 bits of fraction whose exponents are relative to the block's
//! largest value. Encoding and decoding shift and compare integers, so every backend makes the same bits.
//!
//! `shaders/shared/half.wgsl` does the same on the device.

/// Bits of a float that a code cuts off.
const CUT: u32 = 20;
/// Sign, exponent and 3 bits of fraction of the largest value that is coded; a larger one saturates.
const MOST: u32 = 0x7f7;
/// The smallest normal float, shifted as a code is.
const NORMAL: u32 = 8;

/// The base of a block's codes: code c stands for the float of the bits `(base + c) << 20`. `largest` holds the bits of the block's largest
/// magnitude. Signed codes have 127 magnitudes and reach down to at least 2^-14 of the largest, the smallest of them a power of two;
/// unsigned codes have 255 and reach down to 2^-31.
#[inline]
#[must_use]
pub(crate) fn base(largest: u32, signed: bool) -> u32 {
    let top = ((largest + (1 << CUT) - 1) >> CUT).min(MOST);
    if signed {
        // Rounded up to a power of two less one code.
        return (((top.max(NORMAL + 127) - 127) + 8) & !7) - 1;
    }
    top.max(NORMAL + 255) - 255
}

/// The code of a value that is not negative, given as bits. A value above 0 never gets code 0: one below the smallest code gets that code.
/// `noise` decides as in [`crate::record::codec::moment_from_f32`].
#[inline]
#[must_use]
pub(crate) fn unsigned(bits: u32, base: u32, noise: u32) -> u32 {
    if bits == 0 {
        return 0;
    }
    let kept = (bits >> CUT) + u32::from(noise < bits << (32 - CUT));
    kept.clamp(base + 1, base + 255) - base
}

/// The code of a value of either sign, given as bits: the sign above 7 bits of magnitude. Values below the smallest code become 0 or that
/// code, in proportion.
#[inline]
#[must_use]
pub(crate) fn signed(bits: u32, base: u32, noise: u32) -> u32 {
    let magnitude = bits & 0x7fff_ffff;
    let kept = if magnitude >> CUT > base {
        ((magnitude >> CUT) + u32::from(noise < magnitude << (32 - CUT))).min(base + 127).min(MOST) - base
    } else {
        // The smallest code is 2^k, so the share of it is the value with another exponent; its 32 bits behind the point.
        u32::from(noise < share(magnitude, (base + 1) << CUT))
    };
    // 0 has no sign.
    if kept == 0 { 0 } else { kept | bits >> 31 << 7 }
}

/// `value / step` for a normal float `value` below the power of two `step`, both as bits, as a number of 2^-32, rounded down. Subnormal
/// values count as 0.
#[inline]
fn share(value: u32, step: u32) -> u32 {
    let below = (step >> 23) - (value >> 23); // 1 or more
    let mantissa = (value & 0x7f_ffff | 0x80_0000) << 8; // of [1, 2) in units of 2^-31
    if value >> 23 == 0 || below > 32 { 0 } else { mantissa >> (below - 1) }
}

/// The value of a code, exactly. Infinite for a base that [`base`] never makes.
#[inline]
#[must_use]
pub(crate) fn value(code: u32, base: u32, signed: bool) -> f32 {
    let magnitude = if signed { code & 127 } else { code };
    if magnitude == 0 {
        return 0.0;
    }
    if base + magnitude > MOST {
        return f32::INFINITY;
    }
    let sign = if signed { code >> 7 << 31 } else { 0 };
    f32::from_bits((base + magnitude) << CUT | sign)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values over 40 binades in steps of a factor below 2.
    fn values() -> impl Iterator<Item = f32> {
        (0..400).map(|k| 3.7 * 0.93f32.powi(k))
    }

    /// The mean over evenly spread noise, and the codes met.
    fn mean(code: impl Fn(u32) -> u32, value: impl Fn(u32) -> f32) -> f64 {
        const N: u32 = 4096;
        let all = (0..N).map(|k| f64::from(value(code((k << 20) + (1 << 19)))));
        all.sum::<f64>() / f64::from(N)
    }

    #[test]
    fn codes_keep_the_mean_and_stored_values() {
        let largest = 3.7f32.to_bits();
        for sign in [false, true] {
            let base = base(largest, sign);
            for x in values().flat_map(|x| if sign { vec![x, -x] } else { vec![x] }) {
                let code = |noise| match sign {
                    true => signed(x.to_bits(), base, noise),
                    false => unsigned(x.to_bits(), base, noise),
                };
                let found = mean(code, |code| value(code, base, sign));
                let smallest = f64::from(value(1, base, sign));
                // The distance of neighbours over the number of noises; below the smallest unsigned code there is a bias.
                let fine = (f64::from(x.abs()) / 8.0).max(smallest) / 4096.0;
                let bias = if sign || f64::from(x) > smallest { 0.0 } else { smallest };
                assert!((found - f64::from(x)).abs() <= fine + bias, "{x}: {found}");
                // A stored value is stored again as itself, whatever the noise.
                for noise in [1 << 19, 1 << 31, u32::MAX] {
                    let kept = value(code(noise), base, sign);
                    let again = if sign {
                        signed(kept.to_bits(), base, !noise)
                    } else {
                        unsigned(kept.to_bits(), base, !noise)
                    };
                    assert_eq!((again, sign || again > 0), (code(noise), true), "{x}");
                    assert!(
                        (f64::from(kept) - f64::from(x)).abs() <= f64::from(x.abs()) / 8.0 + smallest,
                        "{x}: {kept}"
                    );
                }
            }
        }
    }

    #[test]
    fn the_range_is_as_wide_as_stated() {
        for largest in [3.7f32, 1.0, 4.0, 3.999, 1e30, f32::MAX, 1e-30, f32::MIN_POSITIVE, 0.0] {
            let bits = largest.to_bits();
            let top = f32::from_bits(bits.div_ceil(1 << 20).min(0x7f7) << 20);
            for (sign, codes, power) in [(false, 255, -31), (true, 127, -14)] {
                let base = base(bits, sign);
                assert!((base + codes) << CUT >= top.to_bits(), "{largest}");
                let smallest = value(1, base, sign);
                assert!(smallest >= f32::MIN_POSITIVE, "{largest}");
                assert!(largest < 1e-20 || smallest <= largest * 2f32.powi(power), "{largest}: {smallest}");
                assert!(!sign || smallest.to_bits() & 0x7f_ffff == 0, "a power of two");
            }
        }
        // The largest float saturates and stays finite.
        assert!(value(255, base(f32::MAX.to_bits(), false), false).is_finite());
        assert!(
            value(signed(f32::MAX.to_bits(), base(f32::MAX.to_bits(), true), 0), base(f32::MAX.to_bits(), true), true)
                .is_finite()
        );
        // A state that is not 0 stays so, however small beside the largest; a first moment may vanish.
        assert_eq!((unsigned(1e-35f32.to_bits(), base(3.7f32.to_bits(), false), u32::MAX), signed(1, 1000, 0)), (1, 0));
    }
}
