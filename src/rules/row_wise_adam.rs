use super::{Adam, Element, FIRST_MOMENT, Facts, Known, Numbers};

pub(crate) struct RowWiseAdam;

impl Known for RowWiseAdam {
    const FACTS: Facts = Facts { states: &[FIRST_MOMENT], of_row: true, ..Adam::FACTS };

    #[inline(always)]
    fn element(n: &Numbers, e: Element) -> Element {
        let [beta1, _, eps, _] = n.hyper;
        let m = e.states[0] + (1.0 - beta1) * (e.g - e.states[0]);
        let by = n.lr * m / (n.fix[0] * ((n.own / n.fix[1]).sqrt() + eps));
        Element { w: n.descend(e.w, by), states: [m, 0.0], ..e }
    }

    #[inline(always)]
    fn row(n: &Numbers, before: f32, mean: f32) -> f32 {
        let [_, beta2, ..] = n.hyper;
        before + (1.0 - beta2) * (mean - before)
    }
}
