//! Where a run computes: on the processor; with its embeddings on a device; or, with the feature `gpu`, wholly on a device.

use crate::dense;
use anyhow::Result;
use hotrow::Context;
#[cfg(feature = "gpu")]
pub(crate) use hotrow_burn::{Shared, Tables as OnDevice, backward, forward};
use hotrow_report::options::Backend;
#[cfg(not(feature = "gpu"))]
pub(crate) use none::{OnDevice, Shared, backward, forward};

#[derive(Clone, Debug, Default)]
pub(crate) struct Device {
    /// The device of the embeddings; without one the processor has them.
    pub(crate) context: Option<Context>,
    /// That device, if the dense part is on it too.
    pub(crate) shared: Option<Shared>,
}

impl Device {
    #[cfg(feature = "gpu")]
    pub(crate) fn open(backend: Backend) -> Result<Self> {
        use hotrow::{adapter, wgpu};
        let suits = |adapter: &wgpu::Adapter| backend == Backend::Gpu || adapter::is_hardware(adapter);
        let adapter = adapter::adapters().into_iter().find(suits).filter(|_| backend != Backend::Cpu);
        // Without an adapter it says so, or refuses.
        let Some(adapter) = adapter else { return Ok(Self { context: backend.open("training")?, shared: None }) };
        let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle_from_env());
        let shared = Shared::open(&instance, &adapter)?;
        Ok(Self { context: Some(shared.context().clone()), shared: Some(shared) })
    }

    #[cfg(not(feature = "gpu"))]
    pub(crate) fn open(backend: Backend) -> Result<Self> {
        Ok(Self { context: backend.open("training")?, shared: None })
    }

    pub(crate) fn dense(&self) -> burn::tensor::Device {
        self.shared.as_ref().map_or_else(dense::cpu, |shared| shared.device().clone())
    }
}

/// Stands for hotrow-burn where it is not compiled. There is no value of [`Shared`], so that no call is made.
#[cfg(not(feature = "gpu"))]
mod none {
    use anyhow::Result;
    use burn::tensor::{Device, Tensor};
    use hotrow::Mode;

    pub(crate) trait OnDevice {}

    #[derive(Clone, Debug)]
    pub(crate) enum Shared {}

    impl Shared {
        pub(crate) fn device(&self) -> &Device {
            match *self {}
        }
    }

    pub(crate) fn forward(_: &mut dyn OnDevice, shared: &Shared, _: (&[u32], &[u32]), _: Mode) -> Result<Tensor<2>> {
        match *shared {}
    }

    pub(crate) fn backward(_: &mut dyn OnDevice, shared: &Shared, _: Tensor<2>) -> Result<()> {
        match *shared {}
    }
}
