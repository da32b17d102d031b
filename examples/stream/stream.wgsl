// Draws the part of the image that `view` shows. Behind the WGSL of a reader with prefix `emb`.

// The place of the first pixel and the step from pixel to pixel in 2^-32 of the image's side; depth of the wanted tiles.
struct View { corner: vec2u, step: u32, depth: u32 }

@group(0) @binding(0) var<uniform> view: View;

@vertex
fn corners(@builtin(vertex_index) i: u32) -> @builtin(position) vec4f {
    return vec4f(f32(i & 1u) * 4.0 - 1.0, f32(i >> 1u) * 4.0 - 1.0, 0.0, 1.0);
}

// The row of the tile at a place: depth after depth, the coarsest first, each of 2^depth x 2^depth tiles.
fn tile(at: vec2u, depth: u32) -> u32 {
    let texel = at >> vec2u(29u - depth);
    return ((1u << (2u * depth)) - 1u) / 3u + ((texel.y >> 3u) << depth) + (texel.x >> 3u);
}

@fragment
fn colour(@builtin(position) pixel: vec4f) -> @location(0) vec4f {
    let at = view.corner + vec2u(pixel.xy) * view.step;
    // hotrow begins
    var depth = view.depth;
    emb_want(tile(at, depth));
    while (depth > 0u && !emb_contains(tile(at, depth))) { depth -= 1u; } // the finest tile that is there
    let place = emb_find(tile(at, depth));
    let texel = (at >> vec2u(29u - depth)) & vec2u(7u);
    let quad = 6u * texel.y + 3u * (texel.x >> 2u); // four texels: their red, their green, their blue
    let i = texel.x & 3u;
    return vec4f(emb_at(place, quad)[i], emb_at(place, quad + 1u)[i], emb_at(place, quad + 2u)[i], 1.0);
    // hotrow ends
}
