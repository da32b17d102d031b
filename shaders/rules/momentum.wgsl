fn momentum(e: Element, n: Numbers) -> Element {
    let beta1 = n.hyper.x;
    let m = beta1 * e.first + e.g;
    return Element(e.g, descend(e.w, n.lr * m), m, e.second);
}
