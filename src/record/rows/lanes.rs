//! Arrays that stay in registers, because no index into them depends on a length.

/// `values`, fewer than N, followed by `filler`.
#[inline(always)]
pub(crate) fn padded<const N: usize>(values: &[f32], filler: f32) -> [f32; N] {
    let mut all = [filler; N];
    all[..values.len()].copy_from_slice(values);
    all
}

/// Folds the upper half onto the lower half until one value is left. N is a power of two.
#[inline(always)]
pub(crate) fn fold<T: Copy, const N: usize>(mut values: [T; N], join: impl Fn(T, T) -> T) -> T {
    let mut reach = N / 2;
    while reach > 0 {
        for j in 0..reach {
            values[j] = join(values[j], values[j + reach]);
        }
        reach /= 2;
    }
    values[0]
}
