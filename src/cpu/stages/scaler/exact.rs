//! Functions of floats made of sums and products only, each rounded by itself, so that a device and the CPU give the
//! same bits. Mirror of `shaders/shared/exact.wgsl`.

/// 1 / d, for d from 2^-126 to 2^126.
pub(crate) fn reciprocal(d: f32) -> f32 {
    let bits = d.to_bits();
    if bits & 0x7f_ffff == 0 {
        return f32::from_bits(0x7f00_0000 - bits);
    }
    let mut r = f32::from_bits(0x7ef3_11c7 - bits);
    for _ in 0..4 {
        r *= 2.0 - d * r;
    }
    r
}

/// The square root of x, for x from 2^-80 to 2^80; 0 for smaller x.
pub(crate) fn root(x: f32) -> f32 {
    if x < f32::from_bits((127 - 80) << 23) {
        return 0.0;
    }
    let mut r = f32::from_bits(0x5f37_5a86 - (x.to_bits() >> 1));
    for _ in 0..4 {
        r *= 1.5 - (0.5 * x) * (r * r);
    }
    x * r
}

/// log2 of a normal x > 0.
pub(crate) fn logarithm(x: f32) -> f32 {
    let bits = x.to_bits();
    let mut exponent = (bits >> 23) as f32 - 127.0;
    let mut m = f32::from_bits(bits & 0x7f_ffff | 0x3f80_0000);
    #[allow(clippy::approx_constant, reason = "the shader has the same digits")]
    if m > 1.414_213_5 {
        m *= 0.5;
        exponent += 1.0;
    }
    let z = (m - 1.0) * reciprocal(m + 1.0);
    let w = z * z;
    let p = [0.142_857_15, 0.2, 0.333_333_34, 1.0].iter().fold(0.111_111_11, |p, term| term + w * p);
    exponent + 2.885_39 * (z * p)
}

/// 2 to the power of x, clamped to -126 .. 126.
pub(crate) fn power(x: f32) -> f32 {
    let held = x.clamp(-126.0, 126.0);
    let whole = (held + 0.5).floor();
    #[allow(clippy::approx_constant, reason = "the shader has the same digits")]
    let u = (held - whole) * 0.693_147_2;
    let p = 1.0 + u * 0.142_857_15;
    let p = [0.166_666_67, 0.2, 0.25, 0.333_333_34, 0.5].iter().fold(p, |p, part| 1.0 + (u * part) * p);
    let p = 1.0 + u * p;
    p * f32::from_bits(((whole as i32 + 127) as u32) << 23)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The largest error over `xs`, relative to the value or to `least`, whichever is larger.
    fn worst(xs: impl Iterator<Item = f32>, least: f64, f: impl Fn(f32) -> f32, truth: impl Fn(f64) -> f64) -> f64 {
        xs.map(|x| {
            let wanted = truth(f64::from(x));
            (f64::from(f(x)) - wanted).abs() / wanted.abs().max(least)
        })
        .fold(0.0, f64::max)
    }

    /// Random floats of every exponent between two powers of two.
    fn sizes(low: i32, high: i32) -> impl Iterator<Item = f32> + Clone {
        (0..200_000u32).map(move |i| {
            let exponent = low + (i % (high - low) as u32) as i32;
            f32::from_bits(((exponent + 127) as u32) << 23 | i.wrapping_mul(0x9e37_79b9) >> 9)
        })
    }

    #[test]
    fn errors_are_as_stated() {
        let ulp = f64::from(f32::EPSILON);
        let errors = [
            ("reciprocal", worst(sizes(-126, 126), 0.0, reciprocal, |x| 1.0 / x), 2.0 * ulp),
            ("root", worst(sizes(-80, 80), 0.0, root, f64::sqrt), 4.0 * ulp),
            ("logarithm", worst(sizes(-126, 126), 1.0, logarithm, f64::log2), 4.0 * ulp),
            ("power", worst((-1_260_000..1_260_000).map(|i| i as f32 * 1e-4), 0.0, power, f64::exp2), 4.0 * ulp),
        ];
        for (name, error, bound) in errors {
            assert!(error <= bound, "{name}: {error:e}, {} ULP", error / ulp);
            println!("{name}: {} ULP", error / ulp);
        }
        let bent = |x: f32| reciprocal(x) * (1.0 + 4.0 * f32::EPSILON);
        assert!(worst(sizes(-126, 126), 0.0, bent, |x| 1.0 / x) > 2.0 * ulp, "the comparison can fail");
    }

    #[test]
    fn powers_of_two_are_exact() {
        for k in -126..=126 {
            let x = 2f32.powi(k);
            assert_eq!((reciprocal(x), logarithm(x), power(k as f32)), (2f32.powi(-k), k as f32, x));
        }
        assert_eq!((root(0.0), power(1e9), power(-1e9)), (0.0, 2f32.powi(126), 2f32.powi(-126)));
    }
}
