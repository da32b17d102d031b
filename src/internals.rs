//! What the crate's own tests, benchmarks and command need beyond the public interface. No part of it is stable.

pub use crate::batch::check_offsets;
use crate::{Context, Error};

/// What a group does with a device, for the baselines that the command measures beside it.
pub trait Device {
    /// Turns what wgpu objects to in `work` into an error.
    ///
    /// # Errors
    /// That of `work`, or [`Error::Device`].
    fn guarded<T>(&self, work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error>;

    /// A storage buffer of `bytes`.
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::OutOfMemory`], [`Error::Device`].
    fn buffer(&self, what: &'static str, bytes: u64, usage: wgpu::BufferUsages) -> Result<wgpu::Buffer, Error>;

    /// Submits and waits.
    ///
    /// # Errors
    /// [`Error::Device`].
    fn finish(&self, encoder: wgpu::CommandEncoder) -> Result<(), Error>;

    /// Submits, waits, and returns the first bytes of each buffer as words.
    ///
    /// # Errors
    /// [`Error::Device`], [`Error::OutOfMemory`].
    fn download(&self, encoder: wgpu::CommandEncoder, sources: &[(&wgpu::Buffer, u64)])
    -> Result<Vec<Vec<u32>>, Error>;

    /// Most workgroups of a dispatch.
    fn max_groups(&self) -> u32;
}

impl Device for Context {
    fn guarded<T>(&self, work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        self.guarded(work)
    }

    fn buffer(&self, what: &'static str, bytes: u64, usage: wgpu::BufferUsages) -> Result<wgpu::Buffer, Error> {
        self.buffer(what, bytes, usage)
    }

    fn finish(&self, encoder: wgpu::CommandEncoder) -> Result<(), Error> {
        self.finish(encoder)
    }

    fn download(
        &self,
        encoder: wgpu::CommandEncoder,
        sources: &[(&wgpu::Buffer, u64)],
    ) -> Result<Vec<Vec<u32>>, Error> {
        self.download(encoder, sources)
    }

    fn max_groups(&self) -> u32 {
        self.max_groups()
    }
}
