fn row_wise_adagrad(e: Element, n: Numbers) -> Element {
    let eps = n.hyper.x;
    return Element(e.g, descend(e.w, n.lr * e.g / (sqrt(n.own) + eps)), e.first, e.second);
}

fn row_wise_adagrad_row(before: f32, mean: f32, n: Numbers) -> f32 {
    return before + mean;
}
