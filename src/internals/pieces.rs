//! Limits of the pieces of a table: tests cut tables into small pieces, and plans use the limits of another device.

use crate::{config::GroupConfig, robe::config::Config};

/// The limits of a configuration's pieces and windows.
pub trait Pieces: Sized {
    /// The largest piece of the table in bytes; a shared array has no pieces.
    fn piece_bytes(&self) -> Option<u64> {
        None
    }

    /// The largest window of the cache, or of a shared array, in bytes.
    fn window_bytes(&self) -> Option<u64>;

    /// Limits the bytes of the pieces of a table.
    fn set_piece_bytes(&mut self, _bytes: Option<u64>) {}

    /// Limits the bytes of the windows.
    fn set_window_bytes(&mut self, bytes: Option<u64>);

    /// The same configuration with pieces of at most `bytes` bytes.
    #[must_use]
    fn with_piece_bytes(mut self, bytes: Option<u64>) -> Self {
        self.set_piece_bytes(bytes);
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
    fn piece_bytes(&self) -> Option<u64> {
        self.piece_bytes
    }

    fn window_bytes(&self) -> Option<u64> {
        self.window_bytes
    }

    fn set_piece_bytes(&mut self, bytes: Option<u64>) {
        self.piece_bytes = bytes;
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
