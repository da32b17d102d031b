// The functions of readers that read values at a place. Needs `Place`, `find`, and `read_quad` for Quads of four or
// `element`.

// Values 4 quad to 4 quad + 3 of a row; 0 behind its last value, and without a place.
fn at(place: Place, quad: u32) -> vec4<f32> {
    #quad4 if (quad >= params.dim / 4u) { return vec4<f32>(0.0); }
    #quad4 return read_quad(place, quad);
    #quad1 let i = 4u * min(quad, 0x3fffffffu);
    #quad1 return vec4<f32>(element(place, i), element(place, i + 1u), element(place, i + 2u), element(place, i + 3u));
}

fn row4(row: u32, quad: u32) -> vec4<f32> {
    return at(find(row), quad);
}

// Value i of a row, 0 behind its last value.
fn value(row: u32, i: u32) -> f32 {
    #quad4 return at(find(row), i / 4u)[i & 3u];
    #quad1 return element(find(row), i);
}
