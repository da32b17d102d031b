use super::{Element, FIRST_MOMENT, Facts, Hyper, Known, Numbers};

pub(crate) struct Momentum;

impl Known for Momentum {
    const FACTS: Facts = Facts { hyper: &[Hyper::Beta1], states: &[FIRST_MOMENT], rests: false, ..Facts::PLAIN };

    #[inline(always)]
    fn element(n: &Numbers, e: Element) -> Element {
        let [beta1, ..] = n.hyper;
        let m = beta1 * e.states[0] + e.g;
        Element { w: n.descend(e.w, n.lr * m), states: [m, 0.0], ..e }
    }
}
