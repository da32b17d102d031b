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
//!
//! burn's feature `fusion` may be on or off, here and in any other package of the program.
//!
//! # Threads
//!
//! burn queues operations by thread. burn 0.22 reads a tensor that another thread has changed in place (`tensor * 2.0` of its only handle) as it was
//! before, and so does this crate: it uses a gradient that another thread has clipped unclipped. Call `device.flush()` at the end of the thread that
//! changes a tensor. A tensor that the thread makes anew is right without it.
#![forbid(unsafe_code)]

use burn::backend::Backend;
use burn::module::{Content, Flag, Module, ModuleDisplay, Param};
use burn::tensor::{DType, Device, Gradients, Tensor, wgpu::WgpuSetup};
use burn_cubecl::cubecl::wgpu::{AutoCompiler, WgpuResource, WgpuServer};
use burn_cubecl::{Cube, CubeBackend, tensor::CubeTensor};
use burn_fusion::{Fusion, FusionBackend};
use hotrow::{
    Batch, Context, Embedding as _, Group, GroupConfig, Lookup, Mode, OutOfRange, SharedArray as _, SharedGroup, wgpu,
};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

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

    fn wrong(what: &'static str, wanted: impl Into<String>, found: impl Into<String>, remedy: &'static str) -> Self {
        Self::Wrong { what, wanted: wanted.into(), found: found.into(), remedy }
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
pub fn requirements(adapter: &wgpu::Adapter) -> wgpu::DeviceDescriptor<'static> {
    let mut wanted = hotrow::requirements(adapter);
    wanted.required_features |= adapter.features() & OF_BURN;
    wanted
}

impl Shared {
    /// Opens a device on `adapter` and registers it with burn.
    ///
    /// # Errors
    /// [`hotrow::Error::Device`] if the adapter gives no device; those of [`new`](Self::new).
    pub fn open(instance: &wgpu::Instance, adapter: &wgpu::Adapter) -> Result<Self, Error> {
        let mut wanted = requirements(adapter);
        wanted.required_features |= adapter.features() & wgpu::Features::MAPPABLE_PRIMARY_BUFFERS;
        let (device, queue) = pollster::block_on(adapter.request_device(&wanted))
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
            let found = lacking.iter_names().map(|(name, _)| name).collect::<Vec<_>>().join(", ") + " left out";
            let wanted = "all features of its adapter that burn uses";
            return Err(Error::wrong("device", wanted, found, "request hotrow_burn::requirements of the adapter"));
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

    /// The same with burn's gradient checkpointing, which models on [`device`](Self::device) and the outputs of bags then have alike. Use it in
    /// place of that of [`Device`]: burn panics where tensors with and without it meet.
    #[must_use]
    pub fn gradient_checkpointing(self) -> Self {
        Self { device: self.device.gradient_checkpointing(), ..self }
    }

    /// Refuses tables on another device.
    fn has(&self, tables: &dyn Tables) -> Result<(), Error> {
        if tables.context().device() == self.context.device() {
            return Ok(());
        }
        let [wanted, found] = [self.context(), tables.context()].map(|context| context.caps().name.clone());
        let (wanted, found) = (format!("the device that burn shares, {wanted}"), format!("another device, {found}"));
        Err(Error::wrong("tables", wanted, found, "make the group with Shared::context"))
    }

    /// The tensor with the autodiff that the device has.
    fn autodiff(&self, tensor: Tensor<2>) -> Tensor<2> {
        let strategy = self.device.gradient_checkpointing_strategy().unwrap_or_default();
        tensor.autodiff().with_gradient_checkpointing_strategy(strategy)
    }
}

/// Tables on a device: [`Group`] and [`SharedGroup`]. The calls encode, as theirs of the same names do.
pub trait Tables: Lookup + fmt::Debug + Send {
    /// [`Group::context`]
    fn context(&self) -> &Context;

    /// Floats of a row.
    fn dim(&self) -> u32;

    /// The configuration of the rows that a batch reads, and the floats of the gradient that a backward takes now.
    #[doc(hidden)]
    fn batches(&self) -> (GroupConfig, Option<usize>);

    /// [`Group::encode_forward`]; with [`Mode::Frozen`] it changes nothing.
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
    ($($group:ident: $rows:expr;)*) => {$(
        impl Tables for $group {
            fn context(&self) -> &Context {
                self.context()
            }

            fn dim(&self) -> u32 {
                self.memory().dim
            }

            fn batches(&self) -> (GroupConfig, Option<usize>) {
                ($rows(self), self.gradient_len())
            }

            fn encode_forward(
                &mut self,
                encoder: &mut wgpu::CommandEncoder,
                batch: &Batch<'_>,
                outputs: wgpu::BufferSlice<'_>,
                mode: Mode,
            ) -> Result<(), hotrow::Error> {
                self.encode_forward(encoder, batch, outputs, mode)
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

tables! {
    Group: |group: &Group| group.config().clone();
    SharedGroup: |group: &SharedGroup| group.config().rows();
}

/// Refuses a bad offset, or an index outside its table that the configuration does not allow, as the device would a step later. The group itself
/// refuses a number of bags that does not fit its features.
fn check(rows: &GroupConfig, indices: &[u32], offsets: &[u32]) -> Result<(), hotrow::Error> {
    let (n, features) = (indices.len() as u32, rows.feature_tables());
    for (at, &value) in offsets.iter().enumerate() {
        let next = offsets.get(at + 1).copied().unwrap_or(n);
        if value > next || value > n || (at == 0 && value != 0) || (at + 1 == offsets.len() && value != n) {
            return Err(hotrow::Error::BadOffsets { indices: n, position: at as u32, value });
        }
    }
    let each = offsets.len().saturating_sub(1) / features.len();
    if rows.out_of_range != OutOfRange::Error || each * features.len() + 1 != offsets.len() {
        return Ok(());
    }
    for (feature, &table) in features.iter().enumerate() {
        let [start, end] = [feature, feature + 1].map(|at| offsets[at * each] as usize);
        let (below, padding) = (rows.tables[table as usize], rows.padding_of(table));
        if let Some(at) = (start..end).find(|&at| indices[at] >= below && Some(indices[at]) != padding) {
            return Err(hotrow::Error::IndexOutOfRange { table, rows: below, position: at as u32, value: indices[at] });
        }
    }
    Ok(())
}

/// Looks rows up. Returns `[bags, dim]` in FP32, or `[indices, dim]` with pooling none, outside autodiff.
///
/// # Errors
/// Those of the group, and of burn. A bad index or offset is refused at once.
pub fn forward(
    tables: &mut dyn Tables,
    shared: &Shared,
    (indices, offsets): (&[u32], &[u32]),
    mode: Mode,
) -> Result<Tensor<2>, Error> {
    shared.has(tables)?;
    check(&tables.batches().0, indices, offsets)?;
    let dim = tables.dim() as usize;
    let rows = tables.output_len(indices.len(), offsets.len().saturating_sub(1)) / dim;
    // By name: the device may have another default.
    let outputs = Tensor::<2>::zeros([rows, dim], (&shared.device.clone().inner(), DType::F32));
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

/// Updates the rows of the last forward with the gradient of its outputs: FP32, in their shape, on the shared device, in any layout.
///
/// # Errors
/// [`Error::Wrong`] for another shape, type or device, after which the group waits for its gradient as before; those of the group, and of burn.
pub fn backward(tables: &mut dyn Tables, shared: &Shared, gradient: Tensor<2>) -> Result<(), Error> {
    shared.has(tables)?;
    let dim = tables.dim() as usize;
    if let (_, Some(floats)) = tables.batches()
        && gradient.dims() != [floats / dim, dim]
    {
        let wanted = format!("the shape of the last forward's outputs, {:?}", [floats / dim, dim]);
        let found = format!("{:?}", gradient.dims());
        return Err(Error::wrong("gradient", wanted, found, "pass the gradient of those outputs"));
    }
    within(shared, gradient, |encoder, slice| tables.encode_backward(encoder, slice))
}

/// burn's backend for wgpu, which is [`CubeBackend`], or with burn's feature `fusion`, wherever it was turned on, a [`Fusion`] of it.
trait Resolve: Backend {
    /// The tensor with a buffer, after the operations that make it.
    fn resolve(tensor: Self::FloatTensorPrimitive) -> CubeTensor;
}

impl Resolve for CubeBackend {
    fn resolve(tensor: CubeTensor) -> CubeTensor {
        tensor
    }
}

impl<B: FusionBackend<FloatTensorPrimitive = CubeTensor>> Resolve for Fusion<B> {
    fn resolve(tensor: Self::FloatTensorPrimitive) -> CubeTensor {
        tensor.client.clone().resolve_tensor_float::<B>(tensor)
    }
}

/// Encodes with the buffer of a tensor, after the commands that burn has queued, and submits.
fn within(
    shared: &Shared,
    tensor: Tensor<2>,
    encode: impl FnOnce(&mut wgpu::CommandEncoder, wgpu::BufferSlice<'_>) -> Result<(), hotrow::Error>,
) -> Result<(), Error> {
    if tensor.device() != shared.device {
        let (wanted, remedy) = ("the device that burn shares", "make it on Shared::device");
        return Err(Error::wrong("tensor", wanted, "another device", remedy));
    }
    match tensor.dtype() {
        DType::F32 => {}
        DType::QFloat(_) => return Err(Error::wrong("tensor", "FP32", "a quantised one", "dequantise it")),
        other => return Err(Error::wrong("tensor", "FP32", format!("{other:?}"), "cast it")),
    }
    let bytes = 4 * tensor.shape().num_elements() as u64;
    let tensor = Cube::resolve(tensor.inner().try_into_primitive::<Cube>().map_err(Error::burn)?);
    let CubeTensor { client, handle, .. } = burn_cubecl::kernel::into_contiguous(tensor);
    // Until it is dropped burn gives the memory to no other tensor.
    let held = client.get_resource::<WgpuServer<AutoCompiler>>(handle).map_err(Error::burn)?;
    client.flush().map_err(Error::burn)?;
    let WgpuResource { buffer, offset, .. } = held.resource();
    let mut encoder = shared.context.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    encode(&mut encoder, buffer.slice(*offset..offset + bytes))?;
    shared.context.queue().submit([encoder.finish()]);
    Ok(())
}

/// A module of burn: tables of hotrow, with a forward and a backward. It has no parameters, since hotrow's optimiser updates its rows, and it is no
/// part of burn's records: [`tables`](Self::tables) lends the group for checkpoints. A clone is the same tables.
///
/// `freeze` and `valid` of a model stop its tables, too: [`forward`](Self::forward) is then [`forward_frozen`](Self::forward_frozen), and
/// [`backward`](Self::backward) does nothing; `unfreeze` and `train` let them train again. **`no_grad` and `set_require_grad` do not stop them**: burn
/// shows these to parameters alone.
///
/// Example: [the crate](crate).
#[derive(Module)]
#[module(custom_display)]
pub struct EmbeddingBag {
    #[module(skip)]
    bag: Arc<Bag>,
    /// Whether the tables train.
    trains: Param<Flag>,
}

#[derive(Debug)]
struct Bag {
    shared: Shared,
    /// Name, rows, dim and precision, for display.
    about: String,
    step: Mutex<Step>,
    /// The thread to which [`EmbeddingBag::tables`] lends the tables.
    lent_to: Mutex<Option<ThreadId>>,
}

#[derive(Debug)]
struct Step {
    tables: Box<dyn Tables>,
    /// The outputs of the last forward, until its backward.
    outputs: Option<Tensor<2>>,
}

impl fmt::Debug for EmbeddingBag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.bag.about)
    }
}

impl ModuleDisplay for EmbeddingBag {
    fn custom_content(&self, content: Content) -> Option<Content> {
        content.add_formatted(&self.bag.about).optional()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic of another thread leaves the group as the device has it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl EmbeddingBag {
    /// A module of these tables, which must be on the shared device.
    ///
    /// # Errors
    /// [`Error::Wrong`] for tables on another device.
    pub fn new(shared: &Shared, tables: impl Tables + 'static) -> Result<Self, Error> {
        shared.has(&tables)?;
        let (config, _) = tables.batches();
        let (rows, GroupConfig { dim, precision, .. }) = (config.total_rows(), config);
        let bag = Bag {
            shared: shared.clone(),
            about: format!("EmbeddingBag {{rows: {rows}, dim: {dim}, precision: {precision}}}"),
            step: Mutex::new(Step { tables: Box::new(tables), outputs: None }),
            lent_to: Mutex::new(None),
        };
        Ok(Self { bag: Arc::new(bag), trains: Param::from_bool(true) })
    }

    /// Looks up bags of rows: `offsets` has the start of each bag in `indices`, and the end of the last. Several tables' bags follow one
    /// another, table after table. Returns `[bags, dim]` in FP32, or `[indices, dim]` with pooling none, whose gradient
    /// [`backward`](Self::backward) takes.
    ///
    /// # Errors
    /// Those of [`Group::encode_forward`], of a bad index or offset at once; [`Error::Wrong`] inside [`tables`](Self::tables).
    pub fn forward(&self, indices: &[u32], offsets: &[u32]) -> Result<Tensor<2>, Error> {
        if !self.trains.is_enabled() {
            return self.forward_frozen(indices, offsets);
        }
        let (step, shared) = (&mut *self.step()?, &self.bag.shared);
        let outputs = forward(&mut *step.tables, shared, (indices, offsets), Mode::Train)?;
        let outputs = shared.autodiff(outputs).require_grad();
        step.outputs = Some(outputs.clone());
        Ok(outputs)
    }

    /// As [`forward`](Self::forward), but nothing changes and no backward follows (evaluation).
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn forward_frozen(&self, indices: &[u32], offsets: &[u32]) -> Result<Tensor<2>, Error> {
        let (step, shared) = (&mut *self.step()?, &self.bag.shared);
        let outputs = forward(&mut *step.tables, shared, (indices, offsets), Mode::Frozen)?;
        Ok(shared.autodiff(outputs))
    }

    /// Takes the gradient of the last forward's outputs out of `gradients` and updates the rows with hotrow's optimiser.
    ///
    /// # Errors
    /// [`Error::Wrong`] without a forward, or for gradients of a loss that does not depend on its outputs; as [`backward`](fn@backward) for a
    /// gradient that was put in its place; inside [`tables`](Self::tables).
    pub fn backward(&self, gradients: &mut Gradients) -> Result<(), Error> {
        let step = &mut *self.step()?;
        if !self.trains.is_enabled() {
            step.tables.discard_pending();
            step.outputs = None;
            return Ok(());
        }
        let wanted = "the gradient of the last forward's outputs";
        let wrong = |found: &str, remedy| Error::wrong("backward", wanted, found, remedy);
        let outputs = step.outputs.as_ref().ok_or_else(|| wrong("no forward before it", "call forward first"))?;
        match outputs.grad(gradients) {
            Some(gradient) => backward(&mut *step.tables, &self.bag.shared, gradient)?,
            None => step.tables.discard_pending(),
        }
        let found = outputs.grad_remove(gradients).map(drop);
        step.outputs = None;
        found.ok_or_else(|| wrong("none", "take the gradients of a loss made of those outputs"))
    }

    /// Calls `with` with the tables, to read rows or counters or to set a learning rate. Other threads wait; on this one the bag's other calls
    /// return an error until it ends.
    ///
    /// # Panics
    /// Inside `with`.
    pub fn tables<R>(&self, with: impl FnOnce(&mut dyn Tables) -> R) -> R {
        struct Returned<'a>(&'a Mutex<Option<ThreadId>>);
        impl Drop for Returned<'_> {
            fn drop(&mut self) {
                *locked(self.0) = None;
            }
        }
        let mut step = self.step().unwrap_or_else(|error| panic!("{error}"));
        let _returned = Returned(&self.bag.lent_to);
        *locked(&self.bag.lent_to) = Some(thread::current().id());
        with(&mut *step.tables)
    }

    fn step(&self) -> Result<MutexGuard<'_, Step>, Error> {
        if *locked(&self.bag.lent_to) == Some(thread::current().id()) {
            let wanted = "no call of it inside EmbeddingBag::tables";
            return Err(Error::wrong("bag", wanted, "one", "call the tables that it lends"));
        }
        Ok(locked(&self.bag.step))
    }
}
