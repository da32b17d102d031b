// The unit that an invocation moves at once: here one float, for rows that do not begin at a multiple of 16 bytes.
// Needs `params`.
alias Quad = f32;
alias Bits = u32; // of a Quad
const WIDTH: u32 = 1u;

struct Four { a: Quad, b: Quad, c: Quad, d: Quad }

fn quad_of(x: f32) -> Quad {
    return x;
}

// Quad k / WIDTH of those that have first, second and then padding.
fn quad_of_two(first: f32, second: f32, k: u32) -> Quad {
    return select(second, first, k == 0u);
}

fn part_of(v: Quad, k: u32) -> f32 {
    return v;
}

// The bits of v, for `is_finite`. A fast-math compiler takes every float for finite, and so it may drop a check of bits
// that it knows to be those of a float. Of these bits it does not, because it does not know that params.zero is 0.
fn bits_of(v: Quad) -> Bits {
    return bitcast<Bits>(v) ^ params.zero;
}

// The result of an operation, rounded: no compiler joins it with the operation after it, or changes their order.
fn settled(v: Quad) -> Quad {
    return bitcast<Quad>(bits_of(v));
}

#include "shared/steps_{sum}.wgsl"

// Takes bits from memory, or from `bits_of`.
fn is_finite(bits: Bits) -> bool {
    return (bits & 0x7f800000u) != 0x7f800000u;
}

// Adds the square of v to `sum`.
fn add_squares(sum: f32, v: Quad) -> f32 {
    return sum + v * v;
}

// Maps a finite float to an integer of the same order. `min` on floats may flush a subnormal; on integers it does not.
fn ordered(v: Quad) -> u32 {
    let bits = bitcast<u32>(v);
    return bits ^ select(0x80000000u, 0xffffffffu, (bits & 0x80000000u) != 0u);
}

// The largest magnitude's bits.
fn largest_of(v: Quad) -> u32 {
    return bitcast<u32>(v) & 0x7fffffffu;
}

fn lowest(v: Quad) -> u32 {
    return ordered(v);
}

fn highest(v: Quad) -> u32 {
    return ordered(v);
}
