// Reads rows in shaders of other programs (docs/renderers.md), one invocation for itself, in any stage. src/wgsl/reader.rs
// drops what the functions below do not use, puts the caller's prefix before every name, and declares the bindings. It
// keeps a line that begins with `#cache` if the cache is bound, with `#table` if the records are bound, with `#staged` if
// they are not, with `#quad1` or `#quad4` for that Quad, with `#feedback` if there is a list of wanted rows, with `#exact`
// or `#hashed` for that filter.
#include "shared/common.wgsl"
#include "shared/meta.wgsl"
#include "shared/hash.wgsl"
#include "shared/shares.wgsl"
#include "shared/quad{width}.wgsl"
#include "shared/half.wgsl"
#include "shared/piece.wgsl"
#include "shared/record_items{item}.wgsl"
#include "formats/{format}.wgsl"
#include "shared/unpack{width}.wgsl"
#include "shared/slots.wgsl"
#include "shared/tags.wgsl"

// x: the linear row, NONE beyond the tables; y: its slot, NONE if it has none.
alias Place = vec2<u32>;

// The slot that holds the floats of `row`. Tags are those of the last exchange, also while a prefetch waits for its
// forward.
#cache fn slot_of(row: u32) -> u32 {
#common     let home = home_in(whole(), row);
#shares     let home = home_of(row);
#cache     if (home == NONE) { return NONE; }
#cache     return slot_among(row, home);
#cache }

fn find(row: u32) -> Place {
    if (row >= params.total_rows) { return Place(NONE, NONE); }
    #cache return Place(row, slot_of(row));
    #uncached return Place(row, NONE);
}

// True if the values of the row can be read: of a row in the table or, staged, in the cache.
fn contains(row: u32) -> bool {
    #table return row < params.total_rows;
    #staged return find(row).y != NONE;
}

fn read_quad(place: Place, q: u32) -> Quad {
    #cache if (place.y != NONE) { return cache_quad(place.y, q); }
    #table if (place.x != NONE) { return record_weights(own_record(place.x), q); }
    return Quad(0.0);
}

#quad1 fn element(place: Place, i: u32) -> f32 {
#quad1     if (i >= params.dim) { return 0.0; }
#quad1     return read_quad(place, i);
#quad1 }

#include "shared/reader_values.wgsl"
#include "shared/reader_want.wgsl"
