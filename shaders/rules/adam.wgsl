fn adam(e: Element, n: Numbers) -> Element {
    let beta1 = n.hyper.x;
    let beta2 = n.hyper.y;
    let eps = n.hyper.z;
    let m = e.first + (1.0 - beta1) * (e.g - e.first);
    let v = e.second + (1.0 - beta2) * (e.g * e.g - e.second);
    return Element(e.g, descend(e.w, n.lr * m / (n.fix.x * (sqrt(v / n.fix.y) + eps))), m, v);
}
