// A level of a multiresolution hash grid (Mueller et al. 2022, section 3): the corners of a point's cell, their rows and
// their d-linear weights.
struct Level {
    scale: f32,  // cells of a side; half a cell is added, so that levels are shifted against each other
    side: u32,   // corners of a side
    rows: u32,   // of the level's table; a power of two if `hashed`
    hashed: u32, // 1: rows are found by a hash; else each corner has a row
}

const GRID_PI_Y: u32 = 2654435761u;
const GRID_PI_Z: u32 = 805459861u;

// The place of a coordinate on a level, in cells. `zero` is 0, which no compiler knows: one that fused product and sum, or
// the sum with what is taken from the place later, would find another cell.
fn place_along(level: Level, x: f32, wrap: u32, zero: u32) -> f32 {
    let held = select(clamp(x, 0.0, 1.0), x - floor(x), wrap == 1u);
    return fma(held * level.scale, bitcast<f32>(zero | 0x3f800000u), 0.5);
}

// The row of corner c of a cell; bit k of c: the further corner along axis k. A dense level has no corner beyond its
// sides; the last one stands for it.
fn corner_row(level: Level, cell: vec3<u32>, c: u32) -> u32 {
    let corner = cell + vec3<u32>(c & 1u, (c >> 1u) & 1u, (c >> 2u) & 1u);
    if (level.hashed == 1u) {
        return (corner.x ^ (corner.y * GRID_PI_Y) ^ (corner.z * GRID_PI_Z)) & (level.rows - 1u);
    }
    let within = min(corner, vec3<u32>(level.side - 1u));
    return within.x + level.side * (within.y + level.side * within.z);
}

// The weight of corner c of a cell with `dims` axes, without that of axis `but` (3: with all). `part` is the point's
// place within the cell, `zero` is 0, which no compiler knows: it keeps the first product before the second.
fn corner_weight(part: vec3<f32>, c: u32, but: u32, dims: u32, zero: u32) -> f32 {
    var weight = 1.0;
    if (but != 0u) { weight = select(1.0 - part.x, part.x, (c & 1u) != 0u); }
    if (but != 1u) { weight = fma(weight, select(1.0 - part.y, part.y, (c & 2u) != 0u), bitcast<f32>(zero)); }
    if (but != 2u && dims == 3u) { weight *= select(1.0 - part.z, part.z, (c & 4u) != 0u); }
    return weight;
}
