// Reads each bag's rows out of the shared array, in bag order, and pools them. params.lanes invocations an output row, a float each: a
// chunk begins anywhere. With pooling none they move four output rows at once.
// Bytes an access: 4 (hash), 4 dim (row), 4 (weight); an output row: 8 (offsets), 4 dim.
#include "shared/common.wgsl"
#include "shared/robe.wgsl"

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<uniform> robe: Robe;
@group(0) @binding(2) var<storage, read> offsets: array<u32>;
@group(0) @binding(3) var<storage, read> hashes: array<u32>;
@group(0) @binding(4) var<storage, read> weights: array<f32>; // one an index, if params.weighted
@group(0) @binding(5) var<storage, read> memory: array<f32>;
@group(0) @binding(6) var<storage, read_write> access: array<vec2<u32>>; // .y: the coefficient, for backward, where it is not 1
@group(0) @binding(7) var<storage, read_write> outputs: array<f32>;

// What index i adds at weight e of a chunk that hashes to `chunk`. A row left out adds 0, which changes no bit of a sum that began with +0.
fn term(i: u32, hash: u32, chunk: u32, e: u32) -> f32 {
    if (hash == NONE) { return 0.0; }
    let value = memory[reduced(hash + chunk) % robe.starts + e];
    if (params.weighted == 1u) { return value * weights[i]; }
    return value;
}

fn pool(output: u32, lane: u32) {
    // Bad offsets make the step a no-op, but they are still in the buffer.
    let first = min(offsets[output], params.indices);
    let end = clamp(offsets[output + 1u], first, params.indices);
    var scale = 1.0;
    if (params.pooling == MEAN) {
        var valid = 0u;
        for (var i = first; i < end; i++) { valid += select(1u, 0u, hashes[i] == NONE); }
        scale = 1.0 / f32(max(valid, 1u));
    }
    if (params.pooling == MEAN || params.weighted == 1u) {
        for (var i = first + lane; i < end; i += params.lanes) {
            var coefficient = scale;
            if (params.weighted == 1u) { coefficient *= weights[i]; }
            access[i].y = bitcast<u32>(coefficient);
        }
    }
    for (var column = lane; column < robe.dim; column += params.lanes) {
        let chunk = chunk_hash(column / robe.chunk);
        let e = column % robe.chunk;
        var sum = 0.0;
        var i = first;
        // Four rows in flight, added in bag order.
        for (; i + 4u <= end; i += 4u) {
            let h = vec4<u32>(hashes[i], hashes[i + 1u], hashes[i + 2u], hashes[i + 3u]);
            let a = term(i, h.x, chunk, e);
            let b = term(i + 1u, h.y, chunk, e);
            let c = term(i + 2u, h.z, chunk, e);
            let d = term(i + 3u, h.w, chunk, e);
            sum = (((sum + a) + b) + c) + d;
        }
        for (; i < end; i++) { sum += term(i, hashes[i], chunk, e); }
        if (params.pooling == MEAN) { sum *= scale; }
        outputs[output * robe.dim + column] = sum;
    }
}

// Output rows first, first + apart, first + 2 apart, first + 3 apart.
fn copy(first: u32, apart: u32, lane: u32) {
    var hash = vec4<u32>(NONE);
    for (var k = 0u; k < 4u; k++) {
        let i = first + k * apart;
        if (i < params.indices) {
            hash[k] = hashes[i];
            if (params.weighted == 1u && lane == 0u) { access[i].y = bitcast<u32>(weights[i]); }
        }
    }
    let i = vec4<u32>(first) + vec4<u32>(0u, 1u, 2u, 3u) * apart;
    for (var column = lane; column < robe.dim; column += params.lanes) {
        let chunk = chunk_hash(column / robe.chunk);
        let e = column % robe.chunk;
        let a = term(i.x, hash.x, chunk, e);
        let b = term(i.y, hash.y, chunk, e);
        let c = term(i.z, hash.z, chunk, e);
        let d = term(i.w, hash.w, chunk, e);
        if (i.x < params.indices) { outputs[i.x * robe.dim + column] = a; }
        if (i.y < params.indices) { outputs[i.y * robe.dim + column] = b; }
        if (i.z < params.indices) { outputs[i.z * robe.dim + column] = c; }
        if (i.w < params.indices) { outputs[i.w * robe.dim + column] = d; }
    }
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
    let lane = local & (params.lanes - 1u);
    let at_once = 256u / params.lanes;
    let group_of_rows = flat_group(group, groups);
    if (params.pooling == POOL_NONE) {
        copy(group_of_rows * at_once * 4u + local / params.lanes, at_once, lane);
    } else {
        let output = group_of_rows * at_once + local / params.lanes;
        if (output < params.bags) { pool(output, lane); }
    }
}
