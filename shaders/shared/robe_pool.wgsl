// Pools rows of a shared array in bag order, with weights read by `weight_of`: one float for each invocation, because a
// chunk may begin anywhere. Has the bindings of its stages.
#include "shared/common.wgsl"
#include "shared/robe.wgsl"
#include "shared/quad1.wgsl"

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<uniform> robe: Robe;
@group(0) @binding(2) var<storage, read> offsets: array<u32>;
@group(0) @binding(3) var<storage, read> hashes: array<u32>;
@group(0) @binding(4) var<storage, read> weights: array<f32>; // one for each index, if params.weighted
@group(0) @binding(5) var<storage, read> window: array<u32>;  // the first window of the shared array
@group(0) @binding(6) var<storage, read_write> access: array<vec2<u32>>; // .y: the coefficient for backward, written where it is not 1
@group(0) @binding(7) var<storage, read_write> outputs: array<f32>;

#include "shared/robe_window.wgsl"

// The current chunk of an invocation: the part of the hash that all rows share, and the weight of the chunk that it
// reads.
var<private> chunk: u32;
var<private> within: u32;

fn output_quads() -> u32 {
    return robe.dim;
}

fn place_of(i: u32) -> u32 {
    return hashes[i];
}

fn at_quad(column: u32) {
    chunk = chunk_hash(column / robe.chunk);
    within = column % robe.chunk;
}

// The term of index i. A row that is left out adds 0, which changes no bit of a sum that began with +0.
fn term(i: u32, hash: u32, column: u32) -> f32 {
    if (hash == NONE) { return 0.0; }
    let value = weight_of(start_of(hash, chunk, robe.starts) + within);
    if (params.weighted == 1u) { return value * weights[i]; }
    return value;
}

// A column of four rows. The loads stand side by side; every hash gives a weight that exists.
fn load_four(hash: vec4<u32>, column: u32) -> Four {
    let a = weight_of(start_of(hash.x, chunk, robe.starts) + within);
    let b = weight_of(start_of(hash.y, chunk, robe.starts) + within);
    let c = weight_of(start_of(hash.z, chunk, robe.starts) + within);
    let d = weight_of(start_of(hash.w, chunk, robe.starts) + within);
    let none = hash == vec4<u32>(NONE);
    return Four(select(a, 0.0, none.x), select(b, 0.0, none.y), select(c, 0.0, none.z), select(d, 0.0, none.w));
}

#include "shared/pool.wgsl"

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
    pool_rows(flat_group(group, groups), local);
}
