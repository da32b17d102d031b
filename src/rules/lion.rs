use super::{Element, FIRST_MOMENT, Facts, Hyper, Known, Numbers};

pub(crate) struct Lion;

impl Known for Lion {
    const FACTS: Facts =
        Facts { hyper: &[Hyper::Beta1, Hyper::Beta2], states: &[FIRST_MOMENT], rests: false, ..Facts::PLAIN };

    #[inline(always)]
    fn element(n: &Numbers, e: Element) -> Element {
        let [beta1, beta2, ..] = n.hyper;
        let m = e.states[0];
        let d = e.g - m;
        let c = m + (1.0 - beta1) * d;
        let sign = if c.to_bits() & 0x7f80_0000 == 0 { 0.0 } else { 1f32.copysign(c) };
        Element { w: n.descend(e.w, n.lr * sign), states: [m + (1.0 - beta2) * d, 0.0], ..e }
    }
}
