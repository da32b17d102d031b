use super::{Element, Facts, Hyper, Known, Numbers};

pub(crate) struct RowWiseAdaGrad;

impl Known for RowWiseAdaGrad {
    const FACTS: Facts = Facts { hyper: &[Hyper::Eps], of_row: true, ..Facts::PLAIN };

    #[inline(always)]
    fn element(n: &Numbers, e: Element) -> Element {
        let [eps, ..] = n.hyper;
        Element { w: n.descend(e.w, n.lr * e.g / (n.own.sqrt() + eps)), ..e }
    }

    #[inline(always)]
    fn row(_: &Numbers, before: f32, mean: f32) -> f32 {
        before + mean
    }
}
