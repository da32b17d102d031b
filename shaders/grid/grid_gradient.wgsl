// The gradient of the loss with respect to the coordinates of points, from the gradients of the corners' weights. A
// coordinate outside [0, 1] that is clamped has gradient 0, and so has a point with a coordinate that is not finite. An
// invocation has a point.
//
// Bytes moved per point: 4 d in, 4 * 2^d in for each level, 4 d out.
#include "shared/common.wgsl"

@group(0) @binding(0) var<uniform> grid: Grid;
@group(0) @binding(1) var<storage, read> levels: array<Level>;
@group(0) @binding(2) var<storage, read> coordinates: array<u32>; // the bits of floats, [points, dims]
@group(0) @binding(3) var<storage, read> grad_weights: array<vec4<f32>>; // [levels, points, 2^d]
@group(0) @binding(4) var<storage, read_write> grad_coordinates: array<f32>; // [points, dims]

#include "shared/grid.wgsl"

// The change of a point's place along each axis with four weights, whose gradients are `slopes`.
fn moved(part: vec3<f32>, c: vec4<u32>, slopes: vec4<f32>) -> vec3<f32> {
    var sum = vec3<f32>(0.0);
    for (var k = 0u; k < 4u; k++) {
        let corner = c.x + k;
        // By component: from literals of vectors DXC's debug builds make doubles.
        let toward = vec3<f32>(select(-1.0, 1.0, (corner & 1u) != 0u), select(-1.0, 1.0, (corner & 2u) != 0u),
                               select(-1.0, 1.0, (corner & 4u) != 0u));
        let share = vec3<f32>(corner_weight(part, corner, 0u, grid.dims, grid.zero), corner_weight(part, corner, 1u, grid.dims, grid.zero),
                              corner_weight(part, corner, 2u, grid.dims, grid.zero));
        sum += slopes[k] * toward * share;
    }
    return sum;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let point = flat_group(group, groups) * 256u + lane;
    if (point >= grid.points) { return; }
    let quarters = (1u << grid.dims) / 4u;
    var sum = vec3<f32>(0.0);
    for (var l = 0u; l < grid.levels; l++) {
        let level = levels[l];
        let place = place_on(level, point);
        let part = place - floor(place);
        let first = (l * grid.points + point) * quarters;
        for (var q = 0u; q < quarters; q++) {
            let c = vec4<u32>(0u, 1u, 2u, 3u) + 4u * q;
            sum += level.scale * moved(part, c, grad_weights[first + q]);
        }
    }
    let bad = no_point(point);
    for (var axis = 0u; axis < grid.dims; axis++) {
        let x = coordinate(point, axis);
        let still = bad || (grid.wrap == 0u && (x < 0.0 || x > 1.0));
        let along = select(select(sum.z, sum.y, axis == 1u), sum.x, axis == 0u);
        grad_coordinates[point * grid.dims + axis] = select(along, 0.0, still);
    }
}
