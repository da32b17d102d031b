// Steps of sums whose order counts (SPEC 3), for DX12: DXC adds a chain of terms, and multiplies a chain of factors, in an order of its own.
fn plus(a: Quad, b: Quad) -> Quad { return settled(a + b); }

fn times(a: f32, b: Quad) -> Quad { return settled(a * b); }
