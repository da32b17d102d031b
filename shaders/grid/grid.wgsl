// Writes a batch of weighted indices from points: for each level and point a bag with the 2^d corners of the point's cell
// and their d-linear weights. A point with a coordinate that is not finite gets indices that no table has, so the step
// is refused. An invocation writes a bag.
//
// Bytes moved per bag: 4 d in, 8 * 2^d out.
#include "shared/common.wgsl"

@group(0) @binding(0) var<uniform> grid: Grid;
@group(0) @binding(1) var<storage, read> levels: array<Level>;
@group(0) @binding(2) var<storage, read> coordinates: array<u32>; // the bits of floats, [points, dims]
@group(0) @binding(3) var<storage, read_write> indices: array<vec4<u32>>; // [levels, points, 2^d]
@group(0) @binding(4) var<storage, read_write> weights: array<vec4<f32>>; // the same

#include "shared/grid.wgsl"

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let bag = flat_group(group, groups) * 256u + lane;
    if (bag >= grid.levels * grid.points) { return; }
    let level = levels[bag / grid.points];
    let point = bag % grid.points;
    let place = place_on(level, point);
    let cell = vec3<u32>(floor(place));
    let part = place - floor(place);
    let bad = no_point(point);
    let quarters = (1u << grid.dims) / 4u;
    for (var q = 0u; q < quarters; q++) {
        let c = vec4<u32>(0u, 1u, 2u, 3u) + 4u * q;
        let rows = vec4<u32>(corner_row(level, cell, c.x), corner_row(level, cell, c.y), corner_row(level, cell, c.z),
                             corner_row(level, cell, c.w));
        let shares = vec4<f32>(corner_weight(part, c.x, 3u, grid.dims, grid.zero), corner_weight(part, c.y, 3u, grid.dims, grid.zero),
                               corner_weight(part, c.z, 3u, grid.dims, grid.zero), corner_weight(part, c.w, 3u, grid.dims, grid.zero));
        indices[bag * quarters + q] = select(rows, vec4<u32>(NONE), vec4<bool>(bad));
        weights[bag * quarters + q] = select(shares, vec4<f32>(0.0), vec4<bool>(bad));
    }
}
