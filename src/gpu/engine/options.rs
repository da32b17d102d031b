//! How a context is made, where the defaults will not do.

use crate::wgsl::{AddBody, RankBody};

/// Whether wgpu adds its runtime checks to the crate's shaders.
///
/// Example: [`ContextOptions`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Shaders {
    /// With wgpu's bounds checks: an index that went astray, say in a device whose memory another program has spoiled, stays within its
    /// buffer. The default.
    #[default]
    Checked,
    /// Without them: less work at every access. The shaders keep their indices in bounds themselves, and the tests run both ways.
    Trusted,
}

/// Choices for [`Context::with_options`](crate::Context::with_options). The default is what [`Context::new`](crate::Context::new) takes.
///
/// ```
/// use hotrow::{ContextOptions, Shaders};
/// let options = ContextOptions::default().shaders(Shaders::Trusted);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContextOptions {
    pub(crate) shaders: Shaders,
    pub(crate) rank: Option<RankBody>,
    pub(crate) add: Option<AddBody>,
    pub(crate) max_groups: Option<u32>,
}

impl ContextOptions {
    /// With or without wgpu's runtime checks.
    #[must_use]
    pub const fn shaders(self, shaders: Shaders) -> Self {
        Self { shaders, ..self }
    }

    /// A sort ranks its keys by this body. [`RankBody::Subgroup32`] is refused where subgroups may have another size.
    #[must_use]
    pub const fn rank(self, rank: RankBody) -> Self {
        Self { rank: Some(rank), ..self }
    }

    /// Floats in memory are added to by this body. [`AddBody::Native`] is refused where the device was created without it.
    #[must_use]
    pub const fn add(self, add: AddBody) -> Self {
        Self { add: Some(add), ..self }
    }

    /// At most so many workgroups in x: small values make small tests cross what large batches cross.
    #[must_use]
    pub const fn max_groups(self, max_groups: u32) -> Self {
        Self { max_groups: Some(max_groups), ..self }
    }
}
