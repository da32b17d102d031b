//! The range of a row's codes, searched (SPEC 2): of 625 ranges within that of the weights the one with the least sum of squared errors.

/// The ends that are tried on either side of a range, each a 64th of the range within the one before.
const ENDS: u8 = 25;

/// The ends whose error is least, added in the order of the weights; of equal errors those with the lower low end, then those with the higher high end.
/// `decoder` gives the value of a weight that is rounded under a range, or nothing for a range that cannot be.
pub(crate) fn range<D: Fn(f32) -> f32>(weights: &[f32], decoder: impl Fn([f32; 2]) -> Option<D>) -> [f32; 2] {
    let (low, high) = weights.iter().fold((f32::MAX, f32::MIN), |(low, high), &x| (low.min(x), high.max(x)));
    let step = (high - low) * 2f32.powi(-6);
    let (mut best, mut least) = ([low, high], f64::INFINITY);
    for (t, u) in (0..ENDS).flat_map(|t| (0..ENDS).map(move |u| (t, u))) {
        let ends = [low + f32::from(t) * step, high - f32::from(u) * step];
        let Some(decoded) = decoder(ends) else { continue };
        let found: f64 = weights.iter().map(|&x| (f64::from(decoded(x)) - f64::from(x)).powi(2)).sum();
        if found < least {
            (best, least) = (ends, found);
        }
    }
    best
}
