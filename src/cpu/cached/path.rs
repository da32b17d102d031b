//! How a group on the CPU computes.

/// How a [`CpuGroup`](crate::CpuGroup) computes. Both ways give the same outputs, state and counters, bit for bit.
///
/// # Example
///
/// ```
/// use hotrow::{CpuGroup, CpuPath, GroupConfig, prelude::*};
///
/// let mut group = CpuGroup::new(GroupConfig::new(&[100], 4))?;
/// let mut reference = CpuGroup::new(GroupConfig::new(&[100], 4))?.with_path(CpuPath::Mirrors);
/// assert_eq!(group.forward(&[7, 8], &[0, 2], None)?, reference.forward(&[7, 8], &[0, 2], None)?);
/// # Ok::<(), hotrow::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CpuPath {
    /// Reads and moves rows where they lie: fast.
    #[default]
    Direct,
    /// A plain function for each shader, over the same lists as on a GPU: the reference, several times slower.
    Mirrors,
}

/// Stands for the direct path's scratch where a [`Pending`](crate::table::step_state::Pending) names a space.
pub(crate) const SPACE: usize = 2;
