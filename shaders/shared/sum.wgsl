// Sums gradients. Needs shared/slots.wgsl and what shared/accesses.wgsl needs.
#include "shared/accesses.wgsl"

// Sums the sorted accesses first to end - 1 in order, four a turn, which waits for the accesses and then for Quad q of their gradients. Eight would halve
// the turns of a chunk, and take registers of which update and merge have none to spare.
fn sum_of(first: u32, end: u32, q: u32) -> Quad {
    var sum = Quad(0.0);
    for (var j = first; j < end; j += 4u) {
        let four = four_accesses(j, end);
        sum = add_four(sum, four.first * weight_quads() + q, four.factors, four_below(j, end));
    }
    return sum;
}
