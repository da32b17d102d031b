//! Limits of the pieces of a table: tests cut tables into small pieces, and plans use the limits of another device.

use crate::{config::GroupConfig, robe::config::Config};

/// The limits of a configuration's shards and windows.
pub trait Pieces: Sized {
    /// The largest shard of the table in bytes; a shared array has no shards.
    fn shard_bytes(&self) -> Option<u64> {
        None
    }

    /// The largest window of the cache, or of a shared array, in bytes.
    fn window_bytes(&self) -> Option<u64>;

    /// Limits the bytes of the shards of a table.
    fn set_shard_bytes(&mut self, _bytes: Option<u64>) {}

    /// Limits the bytes of the windows.
    fn set_window_bytes(&mut self, bytes: Option<u64>);

    /// The same configuration with shards of at most `bytes` bytes.
    #[must_use]
    fn with_shard_bytes(mut self, bytes: Option<u64>) -> Self {
        self.set_shard_bytes(bytes);
        self
    }

    /// The same configuration with windows of at most `bytes` bytes.
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
