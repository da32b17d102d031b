use super::{Element, FIRST_MOMENT, Facts, Hyper, Known, Numbers, STATE_MOMENT};

pub(crate) struct Adam;

impl Known for Adam {
    const FACTS: Facts = Facts {
        hyper: &[Hyper::Beta1, Hyper::Beta2, Hyper::Eps],
        states: &[FIRST_MOMENT, STATE_MOMENT],
        corrects: true,
        rests: false,
        ..Facts::PLAIN
    };

    #[inline(always)]
    fn element(n: &Numbers, e: Element) -> Element {
        let [beta1, beta2, eps, _] = n.hyper;
        let [m, v] = e.states;
        let m = m + (1.0 - beta1) * (e.g - m);
        let v = v + (1.0 - beta2) * (e.g * e.g - v);
        let by = n.lr * m / (n.fix[0] * ((v / n.fix[1]).sqrt() + eps));
        Element { w: n.descend(e.w, by), states: [m, v], ..e }
    }
}
