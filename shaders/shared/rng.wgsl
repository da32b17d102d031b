// pcg4d, Jarzynski & Olano 2020, "Hash Functions for GPU Rendering"; known answers in src/rng.rs.
fn pcg4d(x: vec4<u32>) -> vec4<u32> {
    var v = x * 1664525u + 1013904223u;
    v.x += v.y * v.w;
    v.y += v.z * v.x;
    v.z += v.x * v.y;
    v.w += v.y * v.z;
    v ^= v >> vec4<u32>(16u);
    v.x += v.y * v.w;
    v.y += v.z * v.x;
    v.z += v.x * v.y;
    v.w += v.y * v.z;
    return v;
}

fn random(seed: u32, step: u32, row: u32, element: u32, purpose: u32) -> u32 {
    return pcg4d(vec4<u32>(seed, step, row, element + (purpose << 24u))).x;
}
