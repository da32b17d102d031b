// The pooling of a forward (SPEC 3, step 6): the rows of each bag in bag order, params.lanes invocations for an output
// row; without pooling they move four output rows at once. Needs `params`, `offsets`, `weights`, `access`,
// `outputs: array<Quad>`, and five functions of the including stage: output_quads(), the Quads of an output row;
// place_of(i), the place of index i's row, or NONE; at_quad(q), called before the terms of Quad q; term(i, place, q),
// the term of index i there; load_four(places, q), Quad q of four rows.

fn pool(output: u32, lane: u32) {
    // A step with bad offsets is refused, but the bad offsets are still in the buffer.
    let first = min(offsets[output], params.indices);
    let end = clamp(offsets[output + 1u], first, params.indices);
    var scale = 1.0;
    if (params.pooling == MEAN) {
        var valid = 0u;
        for (var i = first; i < end; i++) { valid += select(1u, 0u, place_of(i) == NONE); }
        scale = 1.0 / f32(max(valid, 1u));
    }
    if (params.pooling == MEAN || params.weighted == 1u) {
        for (var i = first + lane; i < end; i += params.lanes) {
            var coefficient = scale;
            if (params.weighted == 1u) { coefficient *= weights[i]; }
            access[i].y = bitcast<u32>(coefficient);
        }
    }
    for (var q = lane; q < output_quads(); q += params.lanes) {
        at_quad(q);
        var sum = Quad(0.0);
        var i = first;
        // Four rows are loaded at once and added in bag order.
        for (; i + 4u <= end; i += 4u) {
            let p = vec4<u32>(place_of(i), place_of(i + 1u), place_of(i + 2u), place_of(i + 3u));
            var four = load_four(p, q);
            if (params.weighted == 1u) { // In a block of its own, so that no compiler fuses a product with the sum.
                // A row that is left out adds 0, also where its weight is not finite.
                let given = vec4<f32>(weights[i], weights[i + 1u], weights[i + 2u], weights[i + 3u]);
                let w = select(given, vec4<f32>(0.0), p == vec4<u32>(NONE));
                four = Four(four.a * w.x, four.b * w.y, four.c * w.z, four.d * w.w);
            }
            sum = plus(plus(plus(plus(sum, four.a), four.b), four.c), four.d);
        }
        for (; i < end; i++) { sum = plus(sum, term(i, place_of(i), q)); }
        if (params.pooling == MEAN) { sum *= scale; }
        outputs[output * output_quads() + q] = sum;
    }
}

// The place of index i's row, NONE behind the last index; writes the index's coefficient.
fn place_to_copy(i: u32, lane: u32) -> u32 {
    if (i >= params.indices) { return NONE; }
    if (params.weighted == 1u && lane == 0u) { access[i].y = bitcast<u32>(weights[i]); }
    return place_of(i);
}

// Copies the output rows first, first + apart, first + 2 apart and first + 3 apart.
fn copy(first: u32, apart: u32, lane: u32) {
    let i = vec4<u32>(first) + vec4<u32>(0u, 1u, 2u, 3u) * apart;
    // By name, not by number: a compiler may put a vector that is indexed by a variable into memory.
    let place = vec4<u32>(place_to_copy(i.x, lane), place_to_copy(i.y, lane), place_to_copy(i.z, lane),
                          place_to_copy(i.w, lane));
    for (var q = lane; q < output_quads(); q += params.lanes) {
        at_quad(q);
        let a = term(i.x, place.x, q);
        let b = term(i.y, place.y, q);
        let c = term(i.z, place.z, q);
        let d = term(i.w, place.w, q);
        if (i.x < params.indices) { outputs[i.x * output_quads() + q] = a; }
        if (i.y < params.indices) { outputs[i.y * output_quads() + q] = b; }
        if (i.z < params.indices) { outputs[i.z * output_quads() + q] = c; }
        if (i.w < params.indices) { outputs[i.w * output_quads() + q] = d; }
    }
}

// Pools the output rows of a workgroup.
fn pool_rows(group: u32, local: u32) {
    let lane = local & (params.lanes - 1u);
    let at_once = 256u / params.lanes;
    if (params.pooling == POOL_NONE) {
        copy(group * at_once * 4u + local / params.lanes, at_once, lane);
    } else {
        let output = group * at_once + local / params.lanes;
        if (output < params.bags) { pool(output, lane); }
    }
}
