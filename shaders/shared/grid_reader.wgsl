// The features of a point on a level of a hash grid whose rows a reader reads. src/wgsl/reader.rs writes the function
// `grid`, which calls this one for each level, and the constants. Needs `at`, `find`, `params`.
#include "shared/grid_level.wgsl"

// Values 4 quad to 4 quad + 3 of the level whose table begins at linear row `base`.
fn on_level(x: vec3<f32>, level: Level, base: u32, quad: u32) -> vec4<f32> {
    let place = vec3<f32>(place_along(level, x.x, GRID_WRAP, params.zero),
                          place_along(level, x.y, GRID_WRAP, params.zero),
                          place_along(level, x.z, GRID_WRAP, params.zero));
    let cell = vec3<u32>(floor(place));
    let part = place - floor(place);
    var sum = vec4<f32>(0.0);
    for (var c = 0u; c < (1u << GRID_DIMS); c++) {
        // In two dimensions the third place is the half cell by which levels are shifted: cell 0.
        sum += corner_weight(part, c, 3u, GRID_DIMS, params.zero) * at(find(base + corner_row(level, cell, c)), quad);
    }
    return sum;
}
