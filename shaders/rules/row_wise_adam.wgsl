fn row_wise_adam(e: Element, n: Numbers) -> Element {
    let beta1 = n.hyper.x;
    let eps = n.hyper.z;
    let m = e.first + (1.0 - beta1) * (e.g - e.first);
    return Element(e.g, descend(e.w, n.lr * m / (n.fix.x * (sqrt(n.own / n.fix.y) + eps))), m, e.second);
}

fn row_wise_adam_row(before: f32, mean: f32, n: Numbers) -> f32 {
    let beta2 = n.hyper.y;
    return before + (1.0 - beta2) * (mean - before);
}
