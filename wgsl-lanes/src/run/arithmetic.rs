//! The operations on words, for all lanes of a subgroup.

use crate::program::{Binary, Reg, Unary};

fn float(word: u32) -> f32 {
    f32::from_bits(word)
}

/// Applies `f` to each lane. `to` lies behind `from`.
#[inline(always)]
fn one(registers: &mut [u32], width: usize, to: Reg, from: Reg, f: impl Fn(u32) -> u32) {
    let (low, high) = registers.split_at_mut(to as usize * width);
    for (to, &a) in high[..width].iter_mut().zip(&low[from as usize * width..][..width]) {
        *to = f(a);
    }
}

/// Applies `f` to each lane. `to` lies behind `a` and `b`.
#[inline(always)]
fn two(registers: &mut [u32], width: usize, to: Reg, [a, b]: [Reg; 2], f: impl Fn(u32, u32) -> u32) {
    let (low, high) = registers.split_at_mut(to as usize * width);
    let (a, b) = (&low[a as usize * width..][..width], &low[b as usize * width..][..width]);
    for ((to, &a), &b) in high[..width].iter_mut().zip(a).zip(b) {
        *to = f(a, b);
    }
}

pub(super) fn copy(registers: &mut [u32], width: usize, to: Reg, from: Reg) {
    let from = from as usize * width;
    registers.copy_within(from..from + width, to as usize * width);
}

pub(super) fn select(registers: &mut [u32], width: usize, to: Reg, when: Reg, yes: Reg, no: Reg) {
    let (low, high) = registers.split_at_mut(to as usize * width);
    let of = |reg: Reg| &low[reg as usize * width..][..width];
    for (((to, &when), &yes), &no) in high[..width].iter_mut().zip(of(when)).zip(of(yes)).zip(of(no)) {
        *to = if when != 0 { yes } else { no };
    }
}

pub(super) fn fused(registers: &mut [u32], width: usize, to: Reg, [a, b, c]: [Reg; 3]) {
    for lane in 0..width {
        let of = |reg: Reg| float(registers[reg as usize * width + lane]);
        registers[to as usize * width + lane] = of(a).mul_add(of(b), of(c)).to_bits();
    }
}

fn first_leading(x: u32) -> u32 {
    31u32.wrapping_sub(x.leading_zeros())
}

pub(super) fn unary(op: Unary, r: &mut [u32], w: usize, to: Reg, from: Reg) {
    macro_rules! words {
        ($f:expr) => {
            one(r, w, to, from, $f)
        };
    }
    macro_rules! floats {
        ($f:expr) => {
            one(r, w, to, from, |a| $f(float(a)).to_bits())
        };
    }
    match op {
        Unary::NegI => words!(u32::wrapping_neg),
        Unary::NegF => words!(|a| a ^ 0x8000_0000),
        Unary::NotBool => words!(|a| u32::from(a == 0)),
        Unary::NotBits => words!(|a: u32| !a),
        Unary::AbsI => words!(|a| (a as i32).wrapping_abs() as u32),
        Unary::AbsF => words!(|a| a & 0x7fff_ffff),
        Unary::Ceil => floats!(f32::ceil),
        Unary::Floor => floats!(f32::floor),
        Unary::Round => floats!(f32::round_ties_even),
        Unary::Trunc => floats!(f32::trunc),
        Unary::Fract => floats!(|x: f32| x - x.floor()),
        Unary::Sqrt => floats!(f32::sqrt),
        Unary::InverseSqrt => floats!(|x: f32| 1.0 / x.sqrt()),
        Unary::Exp => floats!(f32::exp),
        Unary::Exp2 => floats!(f32::exp2),
        Unary::Log => floats!(f32::ln),
        Unary::Log2 => floats!(f32::log2),
        Unary::SignF => floats!(|x: f32| if x == 0.0 || x.is_nan() { 0.0f32 } else { x.signum() }),
        Unary::SignI => words!(|a| (a as i32).signum() as u32),
        Unary::CountOneBits => words!(u32::count_ones),
        Unary::CountTrailingZeros => words!(u32::trailing_zeros),
        Unary::CountLeadingZeros => words!(u32::leading_zeros),
        Unary::ReverseBits => words!(u32::reverse_bits),
        Unary::FirstTrailingBit => words!(|a: u32| if a == 0 { u32::MAX } else { a.trailing_zeros() }),
        Unary::FirstLeadingBitU => words!(first_leading),
        Unary::FirstLeadingBitI => words!(|a| first_leading(if (a as i32) < 0 { !a } else { a })),
        Unary::UToF => words!(|a| (a as f32).to_bits()),
        Unary::IToF => words!(|a| (a as i32 as f32).to_bits()),
        Unary::FToU => words!(|a| float(a) as u32),
        Unary::FToI => words!(|a| float(a) as i32 as u32),
        Unary::ToBool => words!(|a| u32::from(a != 0)),
        Unary::FToBool => words!(|a| u32::from(float(a) != 0.0)),
        Unary::BoolToF => words!(|a| (a as f32).to_bits()),
    }
}

pub(super) fn binary(op: Binary, r: &mut [u32], w: usize, to: Reg, a: Reg, b: Reg) {
    macro_rules! words {
        ($f:expr) => {
            two(r, w, to, [a, b], $f)
        };
    }
    macro_rules! signed {
        ($f:expr) => {
            two(r, w, to, [a, b], |a, b| $f(a as i32, b as i32) as u32)
        };
    }
    macro_rules! floats {
        ($f:expr) => {
            two(r, w, to, [a, b], |a, b| $f(float(a), float(b)).to_bits())
        };
    }
    match op {
        Binary::AddI => words!(u32::wrapping_add),
        Binary::SubI => words!(u32::wrapping_sub),
        Binary::MulI => words!(u32::wrapping_mul),
        Binary::DivU => words!(|a: u32, b: u32| a.checked_div(b).unwrap_or(a)),
        Binary::DivI => signed!(|a: i32, b: i32| a.checked_div(b).unwrap_or(a)),
        Binary::ModU => words!(|a: u32, b: u32| a.checked_rem(b).unwrap_or(0)),
        Binary::ModI => signed!(|a: i32, b: i32| a.checked_rem(b).unwrap_or(0)),
        Binary::AddF => floats!(|a: f32, b: f32| a + b),
        Binary::SubF => floats!(|a: f32, b: f32| a - b),
        Binary::MulF => floats!(|a: f32, b: f32| a * b),
        Binary::DivF => floats!(|a: f32, b: f32| a / b),
        Binary::ModF => floats!(|a: f32, b: f32| a % b),
        Binary::Eq => words!(|a, b| u32::from(a == b)),
        Binary::Ne => words!(|a, b| u32::from(a != b)),
        Binary::EqF => words!(|a, b| u32::from(float(a) == float(b))),
        Binary::NeF => words!(|a, b| u32::from(float(a) != float(b))),
        Binary::LtU => words!(|a, b| u32::from(a < b)),
        Binary::LeU => words!(|a, b| u32::from(a <= b)),
        Binary::LtI => words!(|a, b| u32::from((a as i32) < b as i32)),
        Binary::LeI => words!(|a, b| u32::from(a as i32 <= b as i32)),
        Binary::LtF => words!(|a, b| u32::from(float(a) < float(b))),
        Binary::LeF => words!(|a, b| u32::from(float(a) <= float(b))),
        Binary::And => words!(|a, b| a & b),
        Binary::Or => words!(|a, b| a | b),
        Binary::Xor => words!(|a, b| a ^ b),
        Binary::Shl => words!(u32::wrapping_shl),
        Binary::ShrU => words!(u32::wrapping_shr),
        Binary::ShrI => words!(|a, b| (a as i32).wrapping_shr(b) as u32),
        Binary::MinU => words!(std::cmp::min),
        Binary::MaxU => words!(std::cmp::max),
        Binary::MinI => signed!(std::cmp::min::<i32>),
        Binary::MaxI => signed!(std::cmp::max::<i32>),
        Binary::MinF => floats!(f32::min),
        Binary::MaxF => floats!(f32::max),
        Binary::Pow => floats!(f32::powf),
    }
}
