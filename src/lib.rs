//! hotrow.
mod config;
mod error;
pub use config::*;
pub use error::Error;

pub mod hash;
pub mod simulate;
#[cfg(feature = "cli")]
pub mod trace;
