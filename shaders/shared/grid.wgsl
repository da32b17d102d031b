// Points of a multiresolution hash grid. Needs `grid: Grid` and `coordinates: array<u32>`, the bits of floats.
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

#include "shared/grid_level.wgsl"

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

// The place of a point on a level: cells along each axis.
fn place_on(level: Level, point: u32) -> vec3<f32> {
    var place = vec3<f32>(place_along(level, coordinate(point, 0u), grid.wrap, grid.zero),
                          place_along(level, coordinate(point, 1u), grid.wrap, grid.zero), 0.0);
    if (grid.dims == 3u) { place.z = place_along(level, coordinate(point, 2u), grid.wrap, grid.zero); }
    return place;
}
