// Reads each bag's rows in bag order and pools them (SPEC 3.6). One workgroup an output row.
#include "shared/common.wgsl"

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> offsets: array<u32>;
@group(0) @binding(2) var<storage, read> places: array<u32>;
@group(0) @binding(3) var<storage, read> weights: array<f32>; // one an index, if params.weighted
@group(0) @binding(4) var<storage, read> cache: array<f32>;
@group(0) @binding(5) var<storage, read> scratch: array<f32>;
@group(0) @binding(6) var<storage, read_write> access: array<vec2<u32>>; // its coefficient is kept for backward
@group(0) @binding(7) var<storage, read_write> outputs: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let output = flat_group(group, groups);
    var first = output;
    var end = output + 1u;
    if (params.pooling == POOL_NONE) {
        if (output >= params.indices) { return; }
    } else {
        if (output >= params.bags) { return; }
        // Bad offsets make the step a no-op, but they are still in the buffer.
        first = min(offsets[output], params.indices);
        end = clamp(offsets[output + 1u], first, params.indices);
    }
    var scale = 1.0;
    if (params.pooling == MEAN) {
        var valid = 0u;
        for (var i = first; i < end; i++) { valid += select(1u, 0u, places[i] == NONE); }
        scale = 1.0 / f32(max(valid, 1u));
    }
    for (var i = first + lane; i < end; i += 64u) {
        var coefficient = scale;
        if (params.weighted == 1u) { coefficient *= weights[i]; }
        access[i].y = bitcast<u32>(coefficient);
    }
    for (var e = lane; e < params.dim; e += 64u) {
        var sum = 0.0;
        for (var i = first; i < end; i++) {
            let place = places[i];
            if (place == NONE) { continue; }
            var value: f32;
            if (place >= params.slots) {
                value = scratch[(place - params.slots) * params.row_words + e];
            } else {
                value = cache[place * params.row_words + e];
            }
            if (params.weighted == 1u) { value *= weights[i]; }
            sum += value;
        }
        if (params.pooling == MEAN) { sum *= scale; }
        outputs[output * params.dim + e] = sum;
    }
}
