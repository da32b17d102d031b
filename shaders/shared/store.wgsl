// Writes the rows that shared/slots.wgsl reads. This is a separate file, because gather binds both buffers for reading
// only.
fn store_quad(place: u32, q: u32, v: Quad) {
    if (place >= params.slots) { scratch[(place - params.slots) * params.row_quads + q] = v; }
    #window else if (place >= $u * params.window_slots) { cache$[(place - $u * params.window_slots) * params.row_quads + q] = v; }
    else { cache[place * params.row_quads + q] = v; }
}
