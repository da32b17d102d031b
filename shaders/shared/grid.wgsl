// A multiresolution hash grid (Mueller et al. 2022, section 3): the corners of a point's cell on a level, their rows and
// their d-linear weights. Needs `grid: Grid` and `coordinates: array<u32>`, the bits of floats.
struct Grid {
    points: u32,
    dims: u32,   // coordinates of a point: 2 or 3
    levels: u32,
    wrap: u32,   // 1: a coordinate outside [0, 1] counts modulo 1; else the nearest end counts
    zero: u32,   // 0, which no compiler knows
    pad0: u32,
    pad1: u32,
    pad2: u32,
}

struct Level {
    scale: f32,  // cells of a side; half a cell is added, so that levels are shifted against each other
    side: u32,   // corners of a side
    rows: u32,   // of the level's table; a power of two if `hashed`
    hashed: u32, // 1: rows are found by a hash; else each corner has a row
}

const GRID_PI_Y: u32 = 2654435761u;
const GRID_PI_Z: u32 = 805459861u;

fn coordinate(point: u32, axis: u32) -> f32 {
    return bitcast<f32>(coordinates[point * grid.dims + axis]);
}

fn no_number(bits: u32) -> bool {
    return (bits & 0x7f800000u) == 0x7f800000u;
}

// Whether a point has a coordinate that is not finite.
fn no_point(point: u32) -> bool {
    var bad = false;
    for (var axis = 0u; axis < grid.dims; axis++) {
        let bits = coordinates[point * grid.dims + axis];
        if (no_number(bits)) { bad = true; }
    }
    return bad;
}

// The place of a point on a level: cells along each axis. A compiler that fused product and sum would find another cell.
fn place_on(level: Level, point: u32) -> vec3<f32> {
    var place = vec3<f32>(0.0);
    for (var axis = 0u; axis < grid.dims; axis++) {
        let x = coordinate(point, axis);
        let held = select(clamp(x, 0.0, 1.0), x - floor(x), grid.wrap == 1u);
        let product = bitcast<f32>(bitcast<u32>(held * level.scale) ^ grid.zero);
        if (axis == 0u) { place.x = product + 0.5; } else if (axis == 1u) { place.y = product + 0.5; } else { place.z = product + 0.5; }
    }
    return place;
}

// The row of corner c of the cell; bit k of c: the further corner along axis k. A dense level has no corner beyond its
// sides; the last one stands for it.
fn corner_row(level: Level, cell: vec3<u32>, c: u32) -> u32 {
    let at = cell + vec3<u32>(c & 1u, (c >> 1u) & 1u, (c >> 2u) & 1u);
    if (level.hashed == 1u) { return (at.x ^ (at.y * GRID_PI_Y) ^ (at.z * GRID_PI_Z)) & (level.rows - 1u); }
    let within = min(at, vec3<u32>(level.side - 1u));
    return within.x + level.side * (within.y + level.side * within.z);
}

// The weight of corner c without that of axis `but` (3: with all). `part` is the point's place within the cell.
fn corner_weight(part: vec3<f32>, c: u32, but: u32) -> f32 {
    var weight = 1.0;
    if (but != 0u) { weight *= select(1.0 - part.x, part.x, (c & 1u) != 0u); }
    if (but != 1u) { weight *= select(1.0 - part.y, part.y, (c & 2u) != 0u); }
    if (but != 2u && grid.dims == 3u) { weight *= select(1.0 - part.z, part.z, (c & 4u) != 0u); }
    return weight;
}
