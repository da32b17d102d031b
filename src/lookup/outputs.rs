//! Where the outputs of a call that waits go.

use half::f16;

use crate::{error::Error, host::alloc::room, record::rows::half::round_outputs};

/// The caller's slice for the outputs of a forward, row-major. The counterpart of [`GradSlice`](crate::GradSlice).
///
/// ```
/// use hotrow::{Bags, CpuGroup, GroupConfig, Init, Mode, OutputSlice, f16, prelude::*};
///
/// let mut group = CpuGroup::new(GroupConfig::new(&[10], 1).with_init(Init::Constant(1.5)))?;
/// let mut halves = [f16::ZERO; 2];
/// group.forward_into(Bags::new(&[3, 4, 5], &[0, 2, 3]), Mode::Frozen, OutputSlice::F16(&mut halves))?;
/// assert_eq!(halves.map(f16::to_f32), [3.0, 1.5]);
/// # Ok::<(), hotrow::Error>(())
/// ```
#[derive(Debug)]
pub enum OutputSlice<'a> {
    /// IEEE binary32.
    F32(&'a mut [f32]),
    /// FP16.
    F16(&'a mut [f16]),
}

impl OutputSlice<'_> {
    /// The number of outputs.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::F32(outputs) => outputs.len(),
            Self::F16(outputs) => outputs.len(),
        }
    }

    /// True if there is no output.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn is_half(&self) -> bool {
        matches!(self, Self::F16(_))
    }

    /// Has `run` write FP32 outputs. FP16 outputs are these, rounded as [`Lookup::forward_into`](crate::Lookup::forward_into) says: so a kind
    /// of table that only computes in FP32 has both.
    ///
    /// # Errors
    /// Those of `run`; [`Error::OutOfMemory`] if the host has no room for FP32 outputs. Even then `run` is called, without outputs, which it
    /// must refuse: over several ranks the others wait for this call.
    pub fn with_floats(self, run: impl FnOnce(&mut [f32]) -> Result<(), Error>) -> Result<(), Error> {
        let halves = match self {
            Self::F32(outputs) => return run(outputs),
            Self::F16(halves) => halves,
        };
        let (mut outputs, found) = room("outputs", halves.len());
        let done = run(&mut outputs);
        found.and(done)?;
        round_outputs(&outputs, bytemuck::cast_slice_mut(halves));
        Ok(())
    }
}

impl<'a> From<&'a mut [f32]> for OutputSlice<'a> {
    fn from(outputs: &'a mut [f32]) -> Self {
        Self::F32(outputs)
    }
}

impl<'a> From<&'a mut [f16]> for OutputSlice<'a> {
    fn from(outputs: &'a mut [f16]) -> Self {
        Self::F16(outputs)
    }
}
