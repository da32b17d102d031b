// binary16 by bit manipulation, since drivers' own casts differ in ties and subnormals.

// A subnormal half: mantissa * 2^-24 is exact, and normal as binary32.
fn subnormal_half(h: u32) -> u32 {
    return bitcast<u32>(f32(h & 0x3ffu) * 5.9604644775390625e-8);
}

// Without a branch, as the next function, so that loads before them can be under way at once.
fn f32_from_half(h: u32) -> f32 {
    let normal = ((h & 0x7fffu) << 13u) + 0x38000000u;
    return bitcast<f32>(select(normal, subnormal_half(h), (h & 0x7c00u) == 0u) | ((h & 0x8000u) << 16u));
}

// The bits of a half as binary32, for infinity and NaN too: no record holds infinity or NaN, but a scaled gradient may.
fn bits_from_half(h: u32) -> u32 {
    let exponent = h & 0x7c00u;
    let normal = ((h & 0x7fffu) << 13u) + select(0x38000000u, 0x70000000u, exponent == 0x7c00u);
    return select(normal, subnormal_half(h), exponent == 0u) | ((h & 0x8000u) << 16u);
}

// Facts of an element's state (src/table/row.rs).
const STATE_SIGNED: u32 = 1u; // it may be negative
const STATE_MOMENT: u32 = 2u; // a moment; else a sum of squares

// The facts of position e in states that come one behind the other, `apart` positions each, from `params.facts`.
fn facts_at(facts: u32, e: u32, apart: u32) -> u32 {
    return facts >> select(0u, 2u, e >= apart);
}

// A moment of 16 bits as binary32; see `moment_from_f32` in src/record/codec.rs.
fn f32_from_moment(h: u32, is_signed: bool) -> f32 {
    return bitcast<f32>(h << select(15u, 16u, is_signed));
}

// A state of 16 bits as binary32.
fn f32_from_state(h: u32, facts: u32) -> f32 {
    if ((facts & STATE_MOMENT) == 0u) { return f32_from_half(h); }
    return f32_from_moment(h, (facts & STATE_SIGNED) != 0u);
}

// Rounds a finite moment, given as bits, to 16 bits at random.
fn moment_from_bits(bits: u32, is_signed: bool, noise: u32) -> u32 {
    let shift = select(15u, 16u, is_signed);
    let magnitude = bits & 0x7fffffffu;
    let kept = (magnitude >> shift) + select(0u, 1u, noise < (magnitude << (32u - shift)));
    return select(0u, (bits >> 16u) & 0x8000u, is_signed) | min(kept, select(0xfeffu, 0x7f7fu, is_signed));
}

// Converts a finite binary32, given as bits. Magnitudes beyond 65504 saturate.
fn half_from_bits(bits: u32, stochastic: bool, noise: u32) -> u32 {
    let sign = (bits >> 16u) & 0x8000u;
    let exponent = (bits >> 23u) & 255u;
    var below: u32;     // the lower neighbour of the magnitude
    var threshold: u32; // the fraction between the neighbours, in units of 2^-32
    if (exponent >= 143u) { return sign | 0x7bffu; }
    if (exponent >= 113u) {
        let magnitude = bits & 0x7fffffffu;
        below = (magnitude - (112u << 23u)) >> 13u;
        threshold = magnitude << 19u;
    } else if (exponent >= 94u) {
        let mantissa = (bits & 0x7fffffu) | 0x800000u;
        let shift = 126u - exponent; // from 14 to 32
        if (shift == 32u) {
            below = 0u;
            threshold = mantissa;
        } else {
            below = mantissa >> shift;
            threshold = mantissa << (32u - shift);
        }
    } else {
        let shift = 94u - exponent;
        below = 0u;
        threshold = select(0u, ((bits & 0x7fffffu) | 0x800000u) >> min(shift, 31u), exponent > 0u);
    }
    var up: bool;
    if (stochastic) {
        up = noise < threshold;
    } else {
        up = threshold > 0x80000000u || (threshold == 0x80000000u && (below & 1u) == 1u);
    }
    return sign | min(below + select(0u, 1u, up), 0x7bffu);
}

// States of the optimiser in INT8: floats of 3 bits of fraction, their exponents relative to the largest state of the row
// or block. Twin of src/record/state_code.rs, bit for bit.

// Code c stands for the float of the bits (base + c) << 20; `largest` holds the bits of the block's largest magnitude.
fn code_base(largest: u32, is_signed: bool) -> u32 {
    let top = min((largest + 0xfffffu) >> 20u, 0x7f7u);
    if (is_signed) { return (((max(top, 135u) - 127u) + 8u) & 0xfffffff8u) - 1u; }
    return max(top, 263u) - 255u;
}

// The code of a value that is not negative, given as bits. A value above 0 never gets code 0.
fn unsigned_code(bits: u32, base: u32, noise: u32) -> u32 {
    if (bits == 0u) { return 0u; }
    let kept = (bits >> 20u) + select(0u, 1u, noise < (bits << 12u));
    return clamp(kept, base + 1u, base + 255u) - base;
}

// The code of a value of either sign, given as bits: the sign above 7 bits of magnitude.
fn signed_code(bits: u32, base: u32, noise: u32) -> u32 {
    let magnitude = bits & 0x7fffffffu;
    var kept = 0u;
    if ((magnitude >> 20u) > base) {
        kept = min((magnitude >> 20u) + select(0u, 1u, noise < (magnitude << 12u)), min(base + 127u, 0x7f7u)) - base;
    } else if (noise < share_of_step(magnitude, (base + 1u) << 20u)) {
        kept = 1u;
    }
    return select(kept | ((bits >> 31u) << 7u), 0u, kept == 0u); // 0 has no sign
}

// A normal float below the power of two `step`, both as bits, as a share of it in units of 2^-32.
fn share_of_step(value: u32, step: u32) -> u32 {
    let below = (step >> 23u) - (value >> 23u); // 1 or more
    if ((value >> 23u) == 0u || below > 32u) { return 0u; }
    return (((value & 0x7fffffu) | 0x800000u) << 8u) >> (below - 1u);
}

// The bits of a code's value.
fn value_of_code(code: u32, base: u32, is_signed: bool) -> u32 {
    let magnitude = select(code, code & 127u, is_signed);
    if (magnitude == 0u) { return 0u; }
    return ((base + magnitude) << 20u) | select(0u, (code >> 7u) << 31u, is_signed);
}
