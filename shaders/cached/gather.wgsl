// Reads the rows of each bag in bag order and pools them (SPEC 3, step 6). params.lanes invocations share an output
// row; without pooling they move four output rows at once.
//
// Bytes moved per access: 4 (place; missed: 8), 4 dim (row), 4 (weight); per output row: 8 (offsets), 4 dim.
#include "shared/common.wgsl"
#include "shared/swap.wgsl"
#include "shared/quad{width}.wgsl"

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> offsets: array<u32>;
@group(0) @binding(2) var<storage, read> places: array<u32>;
@group(0) @binding(3) var<storage, read> swaps: array<Swap>;
@group(0) @binding(4) var<storage, read> weights: array<f32>; // one for each index, if params.weighted
@group(0) @binding(5) var<storage, read> cache: array<Quad>;
@group(0) @binding(6) var<storage, read> scratch: array<Quad>;
@group(0) @binding(7) var<storage, read_write> access: array<vec2<u32>>; // .y: the coefficient for backward, written where it is not 1
@group(0) @binding(8) var<storage, read_write> outputs: array<Quad>;

#include "shared/placed.wgsl"
#include "shared/slots.wgsl"

// The term of index i. A row that is left out adds 0, which changes no bit of a sum that began with +0.
fn term(i: u32, place: u32, q: u32) -> Quad {
    if (place == NONE) { return Quad(0.0); }
    let value = load_quad(placed(place), q);
    if (params.weighted == 1u) { return value * weights[i]; }
    return value;
}

// Quad q of four rows. Mostly all are in the cache. Their loads stand side by side, with no branch between, so that all are under
// way at once; for a row that is not there, slot 0 is read.
fn load_four(given: vec4<u32>, q: u32) -> Four {
    let p = placed_four(given);
    let here = p < vec4<u32>(params.slots);
    let at = select(vec4<u32>(0u), p, here);
    var four: Four;
    if (params.slots > 0u) { // else there is no slot 0
        four = Four(cache_quad(at.x, q), cache_quad(at.y, q), cache_quad(at.z, q), cache_quad(at.w, q));
    }
    if (!all(here)) {
        if (!here.x) { four.a = missing(p.x, q); }
        if (!here.y) { four.b = missing(p.y, q); }
        if (!here.z) { four.c = missing(p.z, q); }
        if (!here.w) { four.d = missing(p.w, q); }
    }
    return four;
}

// A row of scratch, or 0.
fn missing(place: u32, q: u32) -> Quad {
    if (place == NONE) { return Quad(0.0); }
    return scratch[(place - params.slots) * params.row_quads + q];
}

fn output_quads() -> u32 {
    return weight_quads();
}

fn place_of(i: u32) -> u32 {
    return places[i];
}

fn at_quad(q: u32) {}

#include "shared/pool.wgsl"

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
    pool_rows(flat_group(group, groups), local);
}
