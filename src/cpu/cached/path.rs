//! The ways in which a group on the CPU computes.

/// How a [`CpuGroup`](crate::CpuGroup) computes. Both ways give the same outputs, state and counters, bit for bit.
///
/// # Example
///
/// ```
/// use hotrow::{CpuGroup, CpuPath, Embedding, GroupConfig, Table};
///
/// # fn main() -> Result<(), hotrow::Error> {
/// let config = GroupConfig::new(4, vec![Table::new("items", 100)]);
/// let mut group = CpuGroup::new(config)?.with_path(CpuPath::Mirrors);
/// assert_eq!(group.forward(&[7, 8], &[0, 2])?.len(), 4);
/// # Ok(())
/// # }
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
