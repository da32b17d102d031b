fn adagrad(e: Element, n: Numbers) -> Element {
    let eps = n.hyper.x;
    let sum = e.first + e.g * e.g;
    return Element(e.g, descend(e.w, n.lr * e.g / (sqrt(sum) + eps)), sum, e.second);
}
