//! Stores of staged tables, and filling of tables. No GPU.

mod faults;
mod fill;
mod killed;
mod model;

use hotrow::{GroupConfig, internals::Layout};

/// 100 rows of 5 words: scale, bias, three of payload.
fn config() -> GroupConfig {
    GroupConfig::new(&[60, 40], 12)
}

fn layout(config: &GroupConfig) -> Layout {
    Layout::new(config, u64::MAX).unwrap()
}
