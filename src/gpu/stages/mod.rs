//! Every stage: one file for each kernel, named like its shader, its CPU mirror and its test.

pub(crate) mod cached;
pub(crate) mod grid;
pub(crate) mod robe;
pub(crate) mod scaler;
pub(crate) mod sort;

use crate::{
    error::Error,
    gpu::engine::{context::Context, options::ContextOptions},
    wgsl::Kernel,
};

/// Every stage, in the order in which a step runs them.
pub(crate) const KERNELS: &[&Kernel] = &[
    &cached::linearize::KERNEL,
    &cached::wanted::KERNEL,
    &cached::begin::KERNEL,
    &cached::probe::KERNEL,
    &cached::touch::KERNEL,
    &sort::histogram::KERNEL,
    &sort::scan::KERNEL,
    &sort::scatter::KERNEL,
    &sort::heads::KERNEL,
    &sort::segments::KERNEL,
    &sort::sort_small::KERNEL,
    &cached::claim::KERNEL,
    &cached::admit::KERNEL,
    &cached::exchange::KERNEL,
    &cached::locate::KERNEL,
    &cached::gather::KERNEL,
    &cached::halves::KERNEL,
    &cached::weight_gradient::KERNEL,
    &cached::arrange::KERNEL,
    &cached::merge::KERNEL,
    &cached::combine::KERNEL,
    &cached::update::KERNEL,
    &scaler::inspect::KERNEL,
    &scaler::rescale::KERNEL,
    &cached::collect::KERNEL,
    &cached::reset::KERNEL,
    &cached::assign::KERNEL,
    &cached::send::KERNEL,
    &robe::robe_hash::KERNEL,
    &robe::robe_gather::KERNEL,
    &robe::robe_decode::KERNEL,
    &robe::robe_weight_gradient::KERNEL,
    &robe::robe_keys::KERNEL,
    &robe::robe_merge::KERNEL,
    &robe::robe_update::KERNEL,
    &robe::robe_gradient::KERNEL,
    &robe::robe_runs::KERNEL,
    &robe::robe_covered::KERNEL,
    &robe::robe_scatter::KERNEL,
    &robe::robe_step::KERNEL,
    &robe::robe_blocks::KERNEL,
    &grid::grid::KERNEL,
    &grid::grid_gradient::KERNEL,
];

impl Context {
    /// Compiles the crate's shaders on `device`. It installs nothing global on the device, such as an error handler.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the device was created with less than WebGPU's default limits, or if it refuses a shader.
    pub fn new(device: &wgpu::Device, queue: &wgpu::Queue) -> Result<Self, Error> {
        Self::with_options(device, queue, &ContextOptions::default())
    }

    /// As [`Context::new`], as a future. In a browser only this one knows whether the device compiles the shaders.
    ///
    /// # Errors
    /// As [`Context::new`].
    pub async fn new_async(device: &wgpu::Device, queue: &wgpu::Queue) -> Result<Self, Error> {
        let context = Self::new(device, queue)?;
        context.check_async().await.map(|()| context)
    }

    /// As [`Context::new`], with the caller's options.
    ///
    /// # Errors
    /// As [`Context::new`].
    pub fn with_options(device: &wgpu::Device, queue: &wgpu::Queue, options: &ContextOptions) -> Result<Self, Error> {
        Self::with_kernels(device, queue, KERNELS, options)
    }
}
