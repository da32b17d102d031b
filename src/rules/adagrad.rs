use super::{Element, Facts, Hyper, Known, Numbers};

pub(crate) struct AdaGrad;

impl Known for AdaGrad {
    const FACTS: Facts = Facts { hyper: &[Hyper::Eps], states: &[0], ..Facts::PLAIN };

    #[inline(always)]
    fn element(n: &Numbers, e: Element) -> Element {
        let [eps, ..] = n.hyper;
        let sum = e.states[0] + e.g * e.g;
        Element { w: n.descend(e.w, n.lr * e.g / (sum.sqrt() + eps)), states: [sum, 0.0], ..e }
    }
}
