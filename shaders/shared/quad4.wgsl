// The unit that an invocation moves at once: here four floats, for rows whose dim is a multiple of 4. Needs `params`.
alias Quad = vec4<f32>;
alias Bits = vec4<u32>; // of a Quad
const WIDTH: u32 = 4u;

struct Four { a: Quad, b: Quad, c: Quad, d: Quad }

// x, then padding.
fn quad_of(x: f32) -> Quad {
    return vec4<f32>(x, 0.0, 0.0, 0.0);
}

// Quad k / WIDTH of those that have first, second and then padding.
fn quad_of_two(first: f32, second: f32, k: u32) -> Quad {
    return vec4<f32>(first, second, 0.0, 0.0);
}

fn part_of(v: Quad, k: u32) -> f32 {
    return v[k];
}

// The bits of v, for `is_finite`. A fast-math compiler takes every float for finite, and so it may drop a check of bits
// that it knows to be those of a float. Of these bits it does not, because it does not know that params.zero is 0.
fn bits_of(v: Quad) -> Bits {
    return bitcast<Bits>(v) ^ Bits(params.zero);
}

// The result of an operation, rounded: no compiler joins it with the operation after it, or changes their order.
fn settled(v: Quad) -> Quad {
    return bitcast<Quad>(bits_of(v));
}

#include "shared/steps_{sum}.wgsl"

// Takes bits from memory, or from `bits_of`.
fn is_finite(bits: Bits) -> bool {
    return all((bits & Bits(0x7f800000u)) != Bits(0x7f800000u));
}

// Adds the squares of v to `sum`, in order.
fn add_squares(sum: f32, v: Quad) -> f32 {
    return sum + v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
}

// Maps finite floats to integers of the same order. `min` on floats may flush a subnormal; on integers it does not.
fn ordered(v: Quad) -> vec4<u32> {
    let bits = bitcast<vec4<u32>>(v);
    return bits ^ select(vec4<u32>(0x80000000u), vec4<u32>(0xffffffffu), (bits & vec4<u32>(0x80000000u)) != vec4<u32>(0u));
}

// The largest magnitude's bits.
fn largest_of(v: Quad) -> u32 {
    let bits = bitcast<vec4<u32>>(v) & vec4<u32>(0x7fffffffu);
    return max(max(bits.x, bits.y), max(bits.z, bits.w));
}

fn lowest(v: Quad) -> u32 {
    let o = ordered(v);
    return min(min(o.x, o.y), min(o.z, o.w));
}

fn highest(v: Quad) -> u32 {
    let o = ordered(v);
    return max(max(o.x, o.y), max(o.z, o.w));
}
