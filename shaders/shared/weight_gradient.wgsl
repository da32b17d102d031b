// The gradients of the per-index weights: params.lanes invocations share an index. Needs `params`, `offsets`, `access`,
// `grad_weights`, and two functions of the including stage: place_of(i), the place of index i's row, or NONE;
// dot_of(place, output, lane), the lane's part of the dot product of that row and the gradient of an output row.

var<workgroup> dots: array<f32, 256>;
var<workgroup> valids: array<u32, 256>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
    let lane = local & (params.lanes - 1u);
    let i = flat_group(group, groups) * (256u / params.lanes) + local / params.lanes;
    var dot = 0.0;
    var valid = 0u;
    if (i < params.indices) {
        let output = access[i].x;
        let place = place_of(i);
        if (place != NONE) { dot = dot_of(place, output, lane); }
        if (params.pooling == MEAN) {
            // A step with bad offsets is refused, but the bad offsets are still in the buffer.
            let first = min(offsets[output], params.indices);
            let end = clamp(offsets[output + 1u], first, params.indices);
            for (var j = first + lane; j < end; j += params.lanes) { valid += select(1u, 0u, place_of(j) == NONE); }
        }
    }
    dots[local] = dot;
    valids[local] = valid;
    workgroupBarrier();
    if (lane != 0u || i >= params.indices) { return; }
    for (var other = 1u; other < params.lanes; other++) {
        dot += dots[local + other];
        valid += valids[local + other];
    }
    grad_weights[i] = dot * (1.0 / f32(max(valid, 1u)));
}
