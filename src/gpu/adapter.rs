//! Finds a device for programs that have none, such as the command, tests and examples. A program that has a device uses [`Context::new`].

use crate::{
    error::Error,
    gpu::engine::{
        caps::{self, requirements},
        context::Context,
        wait::CALLS_WAIT,
    },
};

/// What to do where no driver is found.
const NO_DRIVER: &str = "install a driver (on Debian, mesa-vulkan-drivers is a software one), unset WGPU_ADAPTER_NAME, \
     or take the CPU backend";
/// What to do where a browser has no WebGPU.
const NO_WEBGPU: &str =
    "take a newer browser, open the page over https or from localhost, switch WebGPU on, or take the CPU backend";

/// The adapters that wgpu's environment variables (`WGPU_BACKEND`, `WGPU_ADAPTER_NAME`) allow, hardware first.
///
/// Only Vulkan, Metal and DX12, because on OpenGL the same GPU would appear a second time.
#[cfg(not(target_family = "wasm"))]
#[must_use]
pub fn adapters() -> Vec<wgpu::Adapter> {
    pollster::block_on(adapters_async())
}

/// As [`adapters`], as a future. A browser has at most one adapter.
#[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
pub async fn adapters_async() -> Vec<wgpu::Adapter> {
    if wgpu::Instance::enabled_backend_features().is_empty() {
        return Vec::new();
    }
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle_from_env();
    // wgpu refuses an allocation before the driver over-commits, so that the program gets an error and is not killed later.
    descriptor.memory_budget_thresholds.for_resource_creation = Some(95);
    // OpenGL is not even loaded. Another crate may bring it into the build, and it complains where there is no display.
    let backends = wgpu::Backends::from_env().unwrap_or(wgpu::Backends::PRIMARY);
    descriptor.backends = backends;
    let instance = wgpu::Instance::new(descriptor);
    let mut found = instance.enumerate_adapters(backends).await;
    if let Ok(name) = std::env::var("WGPU_ADAPTER_NAME") {
        let name = name.to_lowercase();
        found.retain(|adapter| adapter.get_info().name.to_lowercase().contains(&name));
    }
    found.sort_by_key(|adapter| match adapter.get_info().device_type {
        wgpu::DeviceType::DiscreteGpu => 0,
        wgpu::DeviceType::IntegratedGpu => 1,
        wgpu::DeviceType::VirtualGpu => 2,
        wgpu::DeviceType::Other => 3,
        wgpu::DeviceType::Cpu => 4,
    });
    found
}

/// True for an adapter that is no software driver.
#[must_use]
pub fn is_hardware(adapter: &wgpu::Adapter) -> bool {
    let info = adapter.get_info();
    caps::is_hardware(info.backend, info.device_type)
}

/// Opens a device on `adapter` with all features and limits that the crate uses.
///
/// # Errors
/// [`Error::Device`] if the adapter gives no device; the errors of [`Context::new`].
#[cfg(not(target_family = "wasm"))]
#[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
pub fn open(adapter: &wgpu::Adapter) -> Result<Context, Error> {
    pollster::block_on(open_async(adapter))
}

/// As [`open`], as a future.
///
/// # Errors
/// As [`open`].
#[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
pub async fn open_async(adapter: &wgpu::Adapter) -> Result<Context, Error> {
    // Whoever has no device of their own chooses the placement later.
    let mut descriptor = requirements(adapter);
    descriptor.required_features |= adapter.features() & wgpu::Features::MAPPABLE_PRIMARY_BUFFERS;
    let (device, queue) =
        adapter.request_device(&descriptor).await.map_err(|error| Error::Device { reason: error.to_string() })?;
    Context::new_async(&device, &queue).await
}

/// Opens a device on the best adapter that gives one, a GPU before a software driver. Each better adapter is logged as a warning, with the
/// reason why it was passed over.
///
/// # Errors
/// [`Error::Unsupported`] if there is no adapter; the error of [`open`] on the best adapter, if none gives a device.
#[cfg(not(target_family = "wasm"))]
#[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
pub fn open_best() -> Result<Context, Error> {
    pollster::block_on(open_best_async())
}

/// As [`open_best`], on GPUs only.
///
/// # Errors
/// As [`open_best`].
#[cfg(not(target_family = "wasm"))]
#[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
pub fn open_hardware() -> Result<Context, Error> {
    pollster::block_on(first(is_hardware, "a GPU with a Vulkan, Metal or DX12 driver"))
}

/// As [`open_best`], as a future.
///
/// # Errors
/// As [`open_best`].
#[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
pub async fn open_best_async() -> Result<Context, Error> {
    first(|_| true, "a Vulkan, Metal or DX12 driver").await
}

async fn first(suits: impl Fn(&wgpu::Adapter) -> bool, wanted: &str) -> Result<Context, Error> {
    let all = adapters_async().await;
    let suitable = all.iter().filter(|&adapter| suits(adapter));
    let opened = first_opened(suitable, |adapter| adapter.get_info().name, open_async).await;
    opened.unwrap_or_else(|| {
        Err(Error::Unsupported {
            what: "gpu",
            wanted: if CALLS_WAIT { wanted } else { "a browser with WebGPU" }.into(),
            found: match all.first() {
                None => "no adapter".into(),
                Some(adapter) => format!("only {}", adapter.get_info().name),
            },
            remedy: if CALLS_WAIT { NO_DRIVER } else { NO_WEBGPU },
        })
    })
}

/// Opens the first that can be opened. Returns the error of the first if none can, and nothing if there is none.
async fn first_opened<A: Copy, T>(
    all: impl Iterator<Item = A>,
    name: impl Fn(A) -> String,
    open: impl AsyncFn(A) -> Result<T, Error>,
) -> Option<Result<T, Error>> {
    let mut first = None;
    for adapter in all {
        match open(adapter).await {
            Ok(opened) => return Some(Ok(opened)),
            Err(error) => {
                log::warn!("{} is passed over: {error}", name(adapter));
                first = first.or(Some(Err(error)));
            }
        }
    }
    first
}

#[cfg(all(test, not(target_family = "wasm")))]
mod tests {
    use super::*;

    #[test]
    fn an_adapter_that_does_not_open_is_passed_over() {
        let fault = |number: u32| Error::Device { reason: number.to_string() };
        let opened = |good: &'static [u32]| {
            let open = async |number: u32| if good.contains(&number) { Ok(number) } else { Err(fault(number)) };
            pollster::block_on(first_opened([1, 2, 3].into_iter(), |number| number.to_string(), open))
        };
        assert_eq!(opened(&[1, 2]), Some(Ok(1)));
        assert_eq!(opened(&[2, 3]), Some(Ok(2)));
        assert_eq!(opened(&[]), Some(Err(fault(1))), "the best one's error");
        let none = first_opened(std::iter::empty(), |number: u32| number.to_string(), async |number| Ok(number));
        assert_eq!(pollster::block_on(none), None);
    }
}
