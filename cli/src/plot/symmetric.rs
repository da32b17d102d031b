//! A logarithmic axis on both sides of 0 that is linear around 0. The value 0 is drawn at 0, the ends of the linear stretch at -1 and 1,
//! each further power of ten one unit further out. kuva has no such axis; it draws ticks at the whole numbers.

/// The place of `value` on the axis.
pub(super) fn place(value: f64, linear: f64) -> f64 {
    let size = value.abs() / linear;
    if size <= 1.0 { value / linear } else { (1.0 + size.log10()).copysign(value) }
}

/// The value at `place`.
pub(super) fn value(place: f64, linear: f64) -> f64 {
    let size = place.abs();
    if size <= 1.0 { place * linear } else { (linear * 10f64.powf(size - 1.0)).copysign(place) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_and_values_belong_together() {
        for (at, wanted) in [(0.0, 0.0), (0.5, 0.005), (1.0, 0.01), (2.0, 0.1), (4.0, 10.0), (-3.0, -1.0)] {
            assert!((value(at, 0.01) - wanted).abs() < 1e-12, "{at}: {}", value(at, 0.01));
            assert!((place(wanted, 0.01) - at).abs() < 1e-12, "{wanted}: {}", place(wanted, 0.01));
        }
        assert!((place(0.02, 0.01) - 2.0).abs() > 0.5, "not linear beyond the stretch");
    }
}
