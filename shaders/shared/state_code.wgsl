// States of the optimiser in INT8: floats of 3 bits of fraction, their exponents relative to the largest value of the block. Twin of
// src/record/state_code.rs, bit for bit.

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
