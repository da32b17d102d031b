//! One row, packed: the definition (`codec`), the same bits computed fast (`rows`), and the initial values (`init`).

pub mod codec;
pub(crate) mod init;
pub(crate) mod int4x32;
pub mod rows;
pub(crate) mod search;
pub(crate) mod state_code;
#[cfg(all(feature = "ranks", not(target_family = "wasm")))]
pub(crate) mod wire;
