fn lion(e: Element, n: Numbers) -> Element {
    let beta1 = n.hyper.x;
    let beta2 = n.hyper.y;
    let d = e.g - e.first;
    let c = e.first + settled((1.0 - beta1) * d);
    let normal = (bits_of(c) & Bits(0x7f800000u)) != Bits(0u);
    let by = n.lr * select(Quad(0.0), sign(c), normal);
    return Element(e.g, descend(e.w, by), e.first + settled((1.0 - beta2) * d), e.second);
}
