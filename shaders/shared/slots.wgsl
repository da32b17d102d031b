// Reads FP32 rows by place: a slot of the cache, or slots + u for row u of step scratch. A row is row_quads Quads: its
// weights, then its state, each beginning at a Quad. Needs `cache` and `scratch` (arrays of Quad), `params` and
// shared/quad{width}.wgsl.
//
// A cache larger than a binding is cut into windows: `cache`, then cache1, cache2 ... src/wgsl.rs repeats a line that
// begins with `#window` for each further window, the last first, with its number in place of $, and declares the
// bindings.

fn weight_quads() -> u32 {
    return params.dim / WIDTH;
}

// Of a slot.
fn cache_quad(place: u32, q: u32) -> Quad {
    #window if (place >= $u * params.window_slots) { return cache$[(place - $u * params.window_slots) * params.row_quads + q]; }
    return cache[place * params.row_quads + q];
}

fn load_quad(place: u32, q: u32) -> Quad {
    if (place >= params.slots) { return scratch[(place - params.slots) * params.row_quads + q]; }
    return cache_quad(place, q);
}
