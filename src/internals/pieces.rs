//! How large the pieces of a table may be: smaller than a device binds in tests, as another device binds in a plan.

use crate::{config::GroupConfig, robe::config::Config};

/// Most bytes of a binding, where a configuration limits them.
pub trait Pieces: Sized {
    /// Most bytes of a shard of the table; a shared array has none.
    fn shard_bytes(&self) -> Option<u64> {
        None
    }

    /// Most bytes of a window: of the cache, or of a shared array.
    fn window_bytes(&self) -> Option<u64>;

    /// Limits the shards of a table.
    fn set_shard_bytes(&mut self, _bytes: Option<u64>) {}

    /// Limits the windows.
    fn set_window_bytes(&mut self, bytes: Option<u64>);

    /// With shards of at most so many bytes.
    #[must_use]
    fn with_shard_bytes(mut self, bytes: Option<u64>) -> Self {
        self.set_shard_bytes(bytes);
        self
    }

    /// With windows of at most so many bytes.
    #[must_use]
    fn with_window_bytes(mut self, bytes: Option<u64>) -> Self {
        self.set_window_bytes(bytes);
        self
    }
}

impl Pieces for GroupConfig {
    fn shard_bytes(&self) -> Option<u64> {
        self.shard_bytes
    }

    fn window_bytes(&self) -> Option<u64> {
        self.window_bytes
    }

    fn set_shard_bytes(&mut self, bytes: Option<u64>) {
        self.shard_bytes = bytes;
    }

    fn set_window_bytes(&mut self, bytes: Option<u64>) {
        self.window_bytes = bytes;
    }
}

impl Pieces for Config {
    fn window_bytes(&self) -> Option<u64> {
        self.window_bytes
    }

    fn set_window_bytes(&mut self, bytes: Option<u64>) {
        self.window_bytes = bytes;
    }
}
