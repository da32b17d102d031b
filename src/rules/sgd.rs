use super::{Element, Facts, Known, Numbers};

pub(crate) struct Sgd;

impl Known for Sgd {
    const FACTS: Facts = Facts::PLAIN;

    #[inline(always)]
    fn element(n: &Numbers, e: Element) -> Element {
        Element { w: n.descend(e.w, n.lr * e.g), ..e }
    }
}
