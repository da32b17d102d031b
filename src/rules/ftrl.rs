use super::{Element, Facts, Hyper, Known, Numbers, STATE_SIGNED};

/// The sum of squares n, and y = lr z of the published rule, of which the weight is a function.
pub(crate) struct Ftrl;

impl Known for Ftrl {
    const FACTS: Facts = Facts {
        hyper: &[Hyper::L1, Hyper::L2, Hyper::Beta],
        states: &[0, STATE_SIGNED],
        full_states: true,
        begins: true,
        descends: false,
        ..Facts::PLAIN
    };

    #[inline(always)]
    fn element(n: &Numbers, e: Element) -> Element {
        let [l1, l2, beta, _] = n.hyper;
        let [sum, y] = e.states;
        let next = sum + e.g * e.g;
        let root = next.sqrt();
        let y = y + (n.lr * e.g - (root - sum.sqrt()) * e.w);
        let beyond = y.abs() - n.lr * l1;
        let w = if beyond <= 0.0 { 0.0 } else { -(beyond.copysign(y) / ((beta + root) + n.lr * l2)) };
        if e.g == 0.0 { e } else { Element { w, states: [next, y], ..e } }
    }

    /// y, so that the weight is the rule's own.
    #[inline(always)]
    fn begun(n: &Numbers, e: Element) -> [f32; 2] {
        let [l1, l2, beta, _] = n.hyper;
        let [sum, _] = e.states;
        let y = e.w * ((beta + sum.sqrt()) + n.lr * l2) + (n.lr * l1).copysign(e.w);
        [sum, if e.w == 0.0 { 0.0 } else { -y }]
    }
}
