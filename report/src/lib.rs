#![doc = include_str!("../README.md")]
#![allow(missing_docs, reason = "nothing here is stable, and some names say all")]

#[cfg(not(target_family = "wasm"))]
pub mod clock;
#[cfg(not(target_family = "wasm"))]
pub mod failure;
#[cfg(not(target_family = "wasm"))]
pub mod foreign;
#[cfg(not(target_family = "wasm"))]
pub mod goals;
pub mod kernel;
#[cfg(not(target_family = "wasm"))]
pub mod names;
#[cfg(not(target_family = "wasm"))]
pub mod object;
#[cfg(not(target_family = "wasm"))]
pub mod options;
#[cfg(not(target_family = "wasm"))]
pub mod output;
#[cfg(not(target_family = "wasm"))]
pub mod plot;
#[cfg(not(target_family = "wasm"))]
pub mod progress;
#[cfg(not(target_family = "wasm"))]
pub mod records;
pub mod rows;
#[cfg(not(target_family = "wasm"))]
pub mod run;
#[cfg(not(target_family = "wasm"))]
pub mod spec;
#[cfg(not(target_family = "wasm"))]
pub mod start;
#[cfg(not(target_family = "wasm"))]
pub mod trace;
#[cfg(not(target_family = "wasm"))]
pub mod units;
#[cfg(not(target_family = "wasm"))]
pub mod uvm;

/// Murmur3's 32-bit finaliser, a bijection: numbers that look random for inputs that anybody can make again.
pub const fn fmix32(number: u32) -> u32 {
    let mut h = number;
    h ^= h >> 16;
    h = h.wrapping_mul(0x85eb_ca6b);
    h ^= h >> 13;
    h = h.wrapping_mul(0xc2b2_ae35);
    h ^ (h >> 16)
}
