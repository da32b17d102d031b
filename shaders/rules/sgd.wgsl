fn sgd(e: Element, n: Numbers) -> Element {
    return Element(e.g, descend(e.w, n.lr * e.g), e.first, e.second);
}
