// The state is the sum of squares n, and y = lr z of the published rule, of which the weight is a function.

fn ftrl(e: Element, n: Numbers) -> Element {
    let l1 = n.hyper.x;
    let l2 = n.hyper.y;
    let beta = n.hyper.z;
    let sum = e.first + settled(e.g * e.g);
    let root = sqrt(sum);
    let y = e.second + (settled(n.lr * e.g) - settled((root - sqrt(e.first)) * e.w));
    let beyond = abs(y) - settled(Quad(n.lr * l1));
    let moved = -(sign(y) * beyond / ((beta + root) + n.lr * l2));
    let rests = e.g == Quad(0.0);
    let w = select(moved, Quad(0.0), beyond <= Quad(0.0));
    return Element(e.g, select(w, e.w, rests), select(sum, e.first, rests), select(y, e.second, rests));
}

// y, so that the weight is the rule's own.
fn ftrl_begun(e: Element, n: Numbers) -> Element {
    let l1 = n.hyper.x;
    let l2 = n.hyper.y;
    let beta = n.hyper.z;
    let y = settled(e.w * ((beta + sqrt(e.first)) + n.lr * l2)) + sign(e.w) * settled(Quad(n.lr * l1));
    return Element(e.g, e.w, e.first, select(-y, Quad(0.0), e.w == Quad(0.0)));
}
