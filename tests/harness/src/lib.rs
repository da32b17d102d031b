//! Models, runs and devices that the tests of the library and of the command share.
#![allow(
    missing_docs,
    missing_debug_implementations,
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "a failed helper is a failed test, and only tests call the helpers"
)]

/// Calls of `Lookup`, `Embedding` or `Store` that a wrapper hands to its field `$to` as they are.
#[macro_export]
macro_rules! goes_on {
    ($to:tt; $(fn $call:ident($me:ident: $own:ty $(, $arg:ident: $kind:ty)*) -> $out:ty;)*) => {$(
        fn $call($me: $own $(, $arg: $kind)*) -> $out {
            $me.$to.$call($($arg),*)
        }
    )*};
}

/// Fails unless a call is refused with an error of this pattern.
#[macro_export]
macro_rules! refuses {
    ($found:expr, $wanted:pat $(, $($of:tt)+)?) => {
        match $found {
            Err($wanted) => {}
            found => {
                let of = String::new() $(+ ", " + &format!($($of)+))?;
                panic!("wanted the error {}, found {:?}{of}", stringify!($wanted), found.map(drop));
            }
        }
    };
}

pub mod arrays;
pub mod child;
pub mod closed_form;
pub mod comm;
pub mod data;
pub mod device;
pub mod exports;
pub mod face;
pub mod failing;
pub mod formats;
pub mod gradient;
pub mod isa;
pub mod lanes;
pub mod layers;
pub mod lockstep;
pub mod modules;
pub mod naive;
pub mod own;
pub mod pins;
pub mod prefetch;
pub mod ranks;
pub mod scaled;
pub mod seed;
pub mod shared;
pub mod soak;

pub use hotrow_harness_macros::gpu_test;
pub use seed::{sample, sample_seeds, seed, seed_for, seeds};
