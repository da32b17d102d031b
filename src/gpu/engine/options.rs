//! Options for a context.

use crate::wgsl::{AddBody, LookupBody, RankBody};

/// Options for [`Context::with_options`](crate::Context::with_options). The defaults are those of [`Context::new`](crate::Context::new).
///
/// ```
/// use hotrow::{ContextOptions, RankBody};
/// let options = ContextOptions::default().rank(RankBody::Portable).trusted_shaders(true);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContextOptions {
    pub(crate) trusted: bool,
    pub(crate) rank: Option<RankBody>,
    pub(crate) add: Option<AddBody>,
    pub(crate) lookup: Option<LookupBody>,
    pub(crate) max_groups: Option<u32>,
}

impl ContextOptions {
    /// Chooses shaders without wgpu's bounds checks (true), or with them (the default). With the checks a wrong index, for example on a device whose
    /// memory another program has spoiled, stays within its buffer. Without them each access costs less: the shaders keep their indices in
    /// bounds themselves, and the tests run both ways.
    #[must_use]
    pub const fn trusted_shaders(self, trusted: bool) -> Self {
        Self { trusted, ..self }
    }

    /// Chooses the body that ranks the keys of a sort. A subgroup body is refused if subgroups may have another size.
    #[must_use]
    pub const fn rank(self, rank: RankBody) -> Self {
        Self { rank: Some(rank), ..self }
    }

    /// Chooses the body that adds to floats in memory. [`AddBody::Native`] is refused if the device was created without it.
    #[must_use]
    pub const fn add(self, add: AddBody) -> Self {
        Self { add: Some(add), ..self }
    }

    /// Chooses the body that looks up rows. [`LookupBody::Lanes32`] is refused if subgroups may have another size.
    #[must_use]
    pub const fn lookup(self, lookup: LookupBody) -> Self {
        Self { lookup: Some(lookup), ..self }
    }

    /// Limits the workgroups in x: a small value makes small tests reach limits that only large batches would reach.
    #[must_use]
    pub const fn max_groups(self, max_groups: u32) -> Self {
        Self { max_groups: Some(max_groups), ..self }
    }
}
