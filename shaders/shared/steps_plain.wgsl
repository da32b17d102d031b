// Steps of sums whose order counts (SPEC 3), for compilers that keep the text's order.
fn plus(a: Quad, b: Quad) -> Quad { return a + b; }

fn times(a: f32, b: Quad) -> Quad { return a * b; }
