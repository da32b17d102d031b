//! Embedding tables of hotrow in models of [burn], on one device and queue: a forward writes a burn tensor, a backward reads one, and nothing goes
//! through the host but the indices.
//!
//! burn itself would make a dense gradient of a whole table in every step. Here a table is no parameter of burn's optimiser: it stays packed
//! where hotrow keeps it, and hotrow's own optimiser updates the rows of a batch.
//!
//! ```no_run
//! use burn::{module::Module, nn::{Linear, LinearConfig}, optim::{GradientsParams, SgdConfig}, tensor::Tensor};
//! use hotrow::{Group, GroupConfig, Optimizer, Precision, wgpu};
//! use hotrow_burn::{EmbeddingBag, Shared};
//!
//! #[derive(Module, Debug)]
//! struct Clicks {
//!     words: EmbeddingBag,
//!     above: Linear,
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let instance = wgpu::Instance::default();
//! # let adapter = hotrow::adapter::adapters().remove(0);
//! // A device; `requirements` and `Shared::new` are for a program that has one.
//! let shared = Shared::open(&instance, &adapter)?;
//! let config = GroupConfig::new(&[1_000_000], 64)
//!     .with_precision(Precision::Int8)
//!     .with_cache_rows(50_000)
//!     .with_optimizer(Optimizer::row_wise_adagrad(0.05));
//! let mut model = Clicks {
//!     words: EmbeddingBag::new(&shared, Group::new(shared.context(), config)?)?,
//!     above: LinearConfig::new(64, 1).init(shared.device()),
//! };
//! let mut optimizer = SgdConfig::new().init();
//! for (indices, offsets) in [(&[3, 14, 15, 92], &[0, 3, 4])] {
//!     let pooled = model.words.forward(indices, offsets)?; // [2, 64]
//!     let loss = model.above.forward(pooled).square().mean();
//!     let mut gradients = loss.backward();
//!     model.words.backward(&mut gradients)?; // updates the rows
//!     let gradients = GradientsParams::from_grads(gradients, &model);
//!     model = optimizer.step(0.01, model, gradients);
//! }
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

use burn::module::Module;
use burn::tensor::{Device, Gradients, Tensor, wgpu::WgpuSetup};
use burn_cubecl::cubecl::wgpu::{AutoCompiler, WgpuResource, WgpuServer};
use burn_cubecl::{CubeBackend, tensor::CubeTensor};
use hotrow::{Batch, Context, Group, Lookup, Mode, Requirements, SharedGroup, wgpu};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a call refuses.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// hotrow refused the call.
    #[error(transparent)]
    Hotrow(#[from] hotrow::Error),
    /// burn refused the call.
    #[error("burn: {0}")]
    Burn(String),
    /// A call or a tensor that does not fit.
    #[error("{what}: wanted {wanted}, found {found}; {remedy}")]
    Wrong {
        /// What was refused.
        what: &'static str,
        /// What would have fitted.
        wanted: String,
        /// What came.
        found: String,
        /// What to do.
        remedy: &'static str,
    },
}

impl Error {
    fn burn(error: impl fmt::Debug) -> Self {
        Self::Burn(format!("{error:?}"))
    }
}

/// hotrow's device and queue, which burn uses too.
#[derive(Clone, Debug)]
pub struct Shared {
    context: Context,
    device: Device,
}

/// What burn takes for granted on a device if its adapter has it.
const OF_BURN: wgpu::Features = wgpu::Features::SHADER_INT64
    .union(wgpu::Features::SHADER_F64)
    .union(wgpu::Features::SHADER_F16)
    .union(wgpu::Features::SHADER_FLOAT32_ATOMIC)
    .union(wgpu::Features::SUBGROUP)
    .union(wgpu::Features::TIMESTAMP_QUERY);

/// What to request of an adapter for a device that hotrow and burn share.
#[must_use]
pub fn requirements(adapter: &wgpu::Adapter) -> Requirements {
    let mut wanted = hotrow::requirements(adapter);
    wanted.features |= adapter.features() & OF_BURN;
    wanted
}

impl Shared {
    /// Opens a device on `adapter` and registers it with burn.
    ///
    /// # Errors
    /// [`hotrow::Error::Device`] if the adapter gives no device; those of [`new`](Self::new).
    pub fn open(instance: &wgpu::Instance, adapter: &wgpu::Adapter) -> Result<Self, Error> {
        let Requirements { features: required_features, limits: required_limits, .. } = requirements(adapter).mapped();
        let descriptor = wgpu::DeviceDescriptor { required_features, required_limits, ..Default::default() };
        let (device, queue) = pollster::block_on(adapter.request_device(&descriptor))
            .map_err(|error| hotrow::Error::Device { reason: error.to_string() })?;
        Self::new(&Context::new(&device, &queue)?, instance, adapter)
    }

    /// Registers the context's device and queue with burn. `instance` and `adapter` are those that the device came from. Do it once for a
    /// device, and clone the result.
    ///
    /// # Errors
    /// [`Error::Wrong`] for a device without the features of [`requirements`], [`Error::Burn`] for one that burn refuses.
    pub fn new(context: &Context, instance: &wgpu::Instance, adapter: &wgpu::Adapter) -> Result<Self, Error> {
        let lacking = (adapter.features() & OF_BURN) - context.device().features();
        if !lacking.is_empty() {
            return Err(Error::Wrong {
                what: "device",
                wanted: "all features of its adapter that burn uses".into(),
                found: lacking.iter_names().map(|(name, _)| name).collect::<Vec<_>>().join(", ") + " left out",
                remedy: "request hotrow_burn::requirements of the adapter",
            });
        }
        let setup = WgpuSetup {
            instance: instance.clone(),
            adapter: adapter.clone(),
            device: context.device().clone(),
            queue: context.queue().clone(),
            backend: adapter.get_info().backend,
        };
        let device = Device::wgpu_options().setup(setup).init().map_err(Error::burn)?;
        Ok(Self { context: context.clone(), device: device.autodiff() })
    }

    /// The context for groups.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// The device for burn's modules and tensors, with autodiff.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }
}

/// Tables on a device: [`Group`] and [`SharedGroup`]. The calls encode, as theirs of the same names do.
pub trait Tables: Lookup + fmt::Debug + Send {
    /// [`Group::context`]
    fn context(&self) -> &Context;

    /// Floats of a row.
    fn dim(&self) -> u32;

    /// [`Group::encode_forward`], or with [`Mode::Frozen`] [`Group::encode_forward_frozen`], which changes nothing.
    ///
    /// # Errors
    /// Those of the group.
    fn encode_forward(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        batch: &Batch<'_>,
        outputs: wgpu::BufferSlice<'_>,
        mode: Mode,
    ) -> Result<(), hotrow::Error>;

    /// [`Group::encode_backward`]
    ///
    /// # Errors
    /// Those of the group.
    fn encode_backward(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        grad_outputs: wgpu::BufferSlice<'_>,
    ) -> Result<(), hotrow::Error>;
}

macro_rules! tables {
    ($($group:ident)*) => {$(
        impl Tables for $group {
            fn context(&self) -> &Context {
                self.context()
            }

            fn dim(&self) -> u32 {
                self.memory().dim
            }

            fn encode_forward(
                &mut self,
                encoder: &mut wgpu::CommandEncoder,
                batch: &Batch<'_>,
                outputs: wgpu::BufferSlice<'_>,
                mode: Mode,
            ) -> Result<(), hotrow::Error> {
                match mode {
                    Mode::Train => self.encode_forward(encoder, batch, outputs),
                    Mode::Frozen => self.encode_forward_frozen(encoder, batch, outputs),
                }
            }

            fn encode_backward(
                &mut self,
                encoder: &mut wgpu::CommandEncoder,
                grad_outputs: wgpu::BufferSlice<'_>,
            ) -> Result<(), hotrow::Error> {
                self.encode_backward(encoder, grad_outputs)
            }
        }
    )*};
}

tables!(Group SharedGroup);

/// Looks rows up. Returns `[bags, dim]`, or `[indices, dim]` with pooling none, outside autodiff. The device checks the indices: a step with a bad
/// one changes nothing and gives zeros, and a later call returns its error.
///
/// # Errors
/// Those of the group, and of burn.
pub fn forward(
    tables: &mut dyn Tables,
    shared: &Shared,
    (indices, offsets): (&[u32], &[u32]),
    mode: Mode,
) -> Result<Tensor<2>, Error> {
    let dim = tables.dim() as usize;
    let rows = tables.output_len(indices.len(), offsets.len().saturating_sub(1)) / dim;
    let outputs = Tensor::<2>::zeros([rows, dim], &shared.device.clone().inner());
    let device = shared.context.device();
    let upload = |label, words: &[u32]| {
        let size = 4 * words.len().max(1) as u64;
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST;
        let buffer = device.create_buffer(&wgpu::BufferDescriptor {
            label: Some(label),
            size,
            usage,
            mapped_at_creation: false,
        });
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        shared.context.queue().write_buffer(&buffer, 0, &bytes);
        buffer
    };
    let (of_indices, of_offsets) = (upload("indices", indices), upload("offsets", offsets));
    let batch = Batch {
        indices: Some(of_indices.slice(..)).filter(|_| !indices.is_empty()),
        offsets: of_offsets.slice(..4 * offsets.len() as u64),
        weights: None,
    };
    within(shared, outputs.clone(), |encoder, slice| tables.encode_forward(encoder, &batch, slice, mode))?;
    Ok(outputs)
}

/// Updates the rows of the last forward with the gradient of its outputs, which has their shape.
///
/// # Errors
/// Those of the group, and of burn.
pub fn backward(tables: &mut dyn Tables, shared: &Shared, gradient: Tensor<2>) -> Result<(), Error> {
    within(shared, gradient, |encoder, slice| tables.encode_backward(encoder, slice))
}

/// Encodes with the buffer of a tensor, after the commands that burn has queued, and submits.
fn within(
    shared: &Shared,
    tensor: Tensor<2>,
    encode: impl FnOnce(&mut wgpu::CommandEncoder, wgpu::BufferSlice<'_>) -> Result<(), hotrow::Error>,
) -> Result<(), Error> {
    if tensor.dtype() != burn::tensor::DType::F32 {
        let found = format!("{:?}", tensor.dtype());
        return Err(Error::Wrong { what: "tensor", wanted: "FP32".into(), found, remedy: "cast it" });
    }
    let tensor = tensor.try_into_primitive::<CubeBackend>().map_err(Error::burn)?;
    let CubeTensor { client, handle, .. } = burn_cubecl::kernel::into_contiguous(tensor);
    // Until it is dropped burn gives the memory to no other tensor.
    let held = client.get_resource::<WgpuServer<AutoCompiler>>(handle).map_err(Error::burn)?;
    client.flush().map_err(Error::burn)?;
    let WgpuResource { buffer, offset, size, .. } = held.resource();
    let mut encoder = shared.context.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    encode(&mut encoder, buffer.slice(*offset..offset + size))?;
    shared.context.queue().submit([encoder.finish()]);
    Ok(())
}

/// A module of burn: tables of hotrow, with a forward and a backward. It has no parameters, since hotrow's optimiser updates its rows, and it is no
/// part of burn's records: [`tables`](Self::tables) lends the group for checkpoints. A clone is the same tables.
///
/// Example: [the crate](crate).
#[derive(Module, Debug)]
pub struct EmbeddingBag {
    #[module(skip)]
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug)]
struct Inner {
    tables: Box<dyn Tables>,
    shared: Shared,
    /// The outputs of the last forward, until its backward.
    outputs: Option<Tensor<2>>,
}

impl EmbeddingBag {
    /// A module of these tables, which must be on the shared device.
    ///
    /// # Errors
    /// [`Error::Wrong`] for tables on another device.
    pub fn new(shared: &Shared, tables: impl Tables + 'static) -> Result<Self, Error> {
        if tables.context().device() != shared.context.device() {
            let [wanted, found] = [shared.context(), tables.context()].map(|context| context.caps().name.clone());
            return Err(Error::Wrong {
                what: "tables",
                wanted: format!("the device that burn shares, {wanted}"),
                found: format!("another device, {found}"),
                remedy: "make the group with Shared::context",
            });
        }
        let inner = Inner { tables: Box::new(tables), shared: shared.clone(), outputs: None };
        Ok(Self { inner: Arc::new(Mutex::new(inner)) })
    }

    /// Looks up bags of rows: `offsets` has the start of each bag in `indices`, and the end of the last. Several tables' bags follow one
    /// another, table after table. Returns `[bags, dim]`, or `[indices, dim]` with pooling none, whose gradient [`backward`](Self::backward)
    /// takes. The indices are checked on the device: a bad one gives zeros, changes nothing, and a later call returns its error.
    ///
    /// # Errors
    /// Those of [`Group::encode_forward`].
    pub fn forward(&self, indices: &[u32], offsets: &[u32]) -> Result<Tensor<2>, Error> {
        let inner = &mut *self.inner();
        let outputs = forward(&mut *inner.tables, &inner.shared, (indices, offsets), Mode::Train)?;
        let outputs = Tensor::from_inner(outputs).require_grad();
        inner.outputs = Some(outputs.clone());
        Ok(outputs)
    }

    /// As [`forward`](Self::forward), but nothing changes and no backward follows (evaluation).
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn forward_frozen(&self, indices: &[u32], offsets: &[u32]) -> Result<Tensor<2>, Error> {
        let inner = &mut *self.inner();
        forward(&mut *inner.tables, &inner.shared, (indices, offsets), Mode::Frozen).map(Tensor::from_inner)
    }

    /// Takes the gradient of the last forward's outputs out of `gradients` and updates the rows with hotrow's optimiser.
    ///
    /// # Errors
    /// [`Error::Wrong`] without a forward, or for gradients of a loss that does not depend on its outputs.
    pub fn backward(&self, gradients: &mut Gradients) -> Result<(), Error> {
        let inner = &mut *self.inner();
        let wrong = |found: &str, remedy| Error::Wrong {
            what: "backward",
            wanted: "the gradient of the last forward's outputs".into(),
            found: found.into(),
            remedy,
        };
        let outputs = inner.outputs.take().ok_or_else(|| wrong("no forward before it", "call forward first"))?;
        let Some(gradient) = outputs.grad_remove(gradients) else {
            inner.tables.discard_pending();
            return Err(wrong("none", "take the gradients of a loss made of those outputs"));
        };
        backward(&mut *inner.tables, &inner.shared, gradient)
    }

    /// Calls `with` with the tables, to read rows or counters or to set a learning rate.
    pub fn tables<R>(&self, with: impl FnOnce(&mut dyn Tables) -> R) -> R {
        with(&mut *self.inner().tables)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // A panic of another thread leaves the group as the device has it.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
