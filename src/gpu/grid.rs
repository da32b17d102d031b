//! A hash grid on the device: points to batches, and gradients of coordinates.

use crate::{
    error::Error,
    gpu::{
        engine::{
            bind::Batch,
            call::{Call, Groups, Named, named},
            context::Context,
        },
        stages::{GRID, GRID_GRADIENT},
    },
    grid::Config,
    table::abi,
};

/// The hash grid of a [`Config`](crate::grid::Config) for points in the caller's buffers. [`CpuGrid`](crate::CpuGrid) does the same on the host,
/// with the same indices and weights, bit for bit.
///
/// ```
/// use hotrow::wgpu::{self, util::DeviceExt as _};
/// use hotrow::{Grid, Group, Mode, adapter, grid};
///
/// # fn main() -> Result<(), hotrow::Error> {
/// // A program that has a device and a queue calls `Context::new`.
/// let Ok(context) = adapter::open_best(adapter::Wanted::Any) else { return Ok(()) };
/// let storage = |values: &[f32]| {
///     let (label, usage) = (None, wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC);
///     let contents = bytemuck::cast_slice(values);
///     context.device().create_buffer_init(&wgpu::util::BufferInitDescriptor { label, contents, usage })
/// };
/// let config = grid::Config::new(3).with_levels(2).with_most_rows(1 << 12);
/// let mut features = Group::new(&context, config.group()?)?;
/// let grid = Grid::new(&context, config)?;
/// let bags = grid.bags(4)?; // room for four points
/// let (points, outputs) = (storage(&[0.5; 12]), storage(&[0.0; 2 * 4 * 2])); // levels, points, features
/// let (slopes, moves) = (storage(&[0.0; 2 * 4 * 8]), storage(&[0.0; 12]));
/// let mut encoder = context.device().create_command_encoder(&Default::default());
/// grid.encode(&mut encoder, points.slice(..), &bags)?;
/// let batch = bags.batch(4)?;
/// features.encode_forward(&mut encoder, &batch, outputs.slice(..), Mode::Train)?;
/// // The gradients of a loss; here they are the outputs themselves.
/// features.encode_weight_gradient(&mut encoder, &batch, outputs.slice(..), slopes.slice(..))?;
/// grid.encode_coordinate_gradient(&mut encoder, points.slice(..), slopes.slice(..), moves.slice(..))?;
/// features.encode_backward(&mut encoder, outputs.slice(..))?;
/// context.queue().submit([encoder.finish()]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Grid {
    context: Context,
    config: Config,
    levels: wgpu::Buffer,
}

/// Buffers for the batches of a [`Grid`].
///
/// Example: [`Grid`].
#[derive(Debug)]
pub struct GridBags {
    context: Context,
    config: Config,
    points: u32,
    indices: wgpu::Buffer,
    offsets: wgpu::Buffer,
    weights: wgpu::Buffer,
}

named!(GridBags: indices, weights);

impl Drop for Grid {
    fn drop(&mut self) {
        self.context.forget_bindings();
    }
}

impl Drop for GridBags {
    fn drop(&mut self) {
        self.context.forget_bindings();
    }
}

impl Grid {
    /// Computes the levels and uploads them.
    ///
    /// # Errors
    /// [`Error::Grid`] for an illegal configuration; [`Error::OutOfMemory`].
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn new(context: &Context, config: Config) -> Result<Self, Error> {
        config.check()?;
        let levels = context.guarded(|| context.upload("levels", bytemuck::cast_slice(&config.levels_of())))?;
        Ok(Self { context: context.clone(), config, levels })
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Allocates buffers for the batches of up to `points` points: 8 x 2^d + 4 bytes for each point and level.
    ///
    /// # Errors
    /// [`Error::TooLarge`] beyond 2^30 indices or the device's limit, [`Error::OutOfMemory`].
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn bags(&self, points: u32) -> Result<GridBags, Error> {
        let context = &self.context;
        context.guarded(|| {
            let (_, indices) = self.config.points(points.into())?;
            let list = |what| context.buffer(what, indices * 4, wgpu::BufferUsages::empty());
            let offsets: Vec<u32> = self.config.offsets(points).collect();
            Ok(GridBags {
                context: context.clone(),
                config: self.config.clone(),
                points,
                indices: list("indices")?,
                offsets: context.upload("offsets", bytemuck::cast_slice(&offsets))?,
                weights: list("weights")?,
            })
        })
    }

    /// Encodes the batch of points with `coordinates`, `[points, dims]` floats, into `bags`. A point with a coordinate that is not finite gets
    /// indices that no table has: the forward treats them as [`OutOfRange`](crate::OutOfRange) says.
    ///
    /// # Errors
    /// [`Error::Length`] unless each point has all its coordinates, and for more points than `bags` has room for; [`Error::Grid`] for bags of
    /// another configuration; [`Error::Buffer`] for coordinates that cannot be bound.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn encode(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        coordinates: wgpu::BufferSlice<'_>,
        bags: &GridBags,
    ) -> Result<(), Error> {
        self.context.guarded(|| {
            if bags.config != self.config {
                let (wanted, found) = ("bags that this grid made".into(), "bags of another configuration".into());
                return Err(Error::Grid { what: "bags", wanted, found, remedy: "call this grid's `bags`" });
            }
            let uniform = self.uniform(coordinates)?;
            bags.holds(uniform.points)?;
            if uniform.points > 0 {
                let bound = self.context.bind("coordinates", coordinates, 0)?;
                let call = &mut Call::begin(&self.context, encoder, "hotrow.grid");
                let groups = Groups::of(uniform.points * uniform.levels, 256);
                let uniform = self.context.uniform(&uniform);
                let from: &[&dyn Named] =
                    &[&("grid", uniform), &("levels", &self.levels), &("coordinates", bound), bags];
                call.run(&GRID, from, &groups);
            }
            Ok(())
        })
    }

    /// Encodes the gradient with respect to `coordinates` into `grad_coordinates`, both `[points, dims]` floats, from the gradients of the
    /// weights of these points' bags ([`encode_weight_gradient`](crate::Group::encode_weight_gradient)). `grad_coordinates` must lie in a
    /// buffer that holds none of the inputs.
    ///
    /// # Errors
    /// [`Error::Length`] unless each point has all its coordinates; [`Error::Buffer`] for buffers that are too small or cannot be bound.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn encode_coordinate_gradient(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        coordinates: wgpu::BufferSlice<'_>,
        grad_weights: wgpu::BufferSlice<'_>,
        grad_coordinates: wgpu::BufferSlice<'_>,
    ) -> Result<(), Error> {
        let context = &self.context;
        context.guarded(|| {
            for (what, slice) in [("coordinates", coordinates), ("grad_weights", grad_weights)] {
                if slice.buffer() == grad_coordinates.buffer() {
                    let (wanted, found) = ("a buffer of its own".into(), format!("the buffer of the {what}"));
                    return Err(Error::Buffer { what: "grad_coordinates", wanted, found });
                }
            }
            let uniform = self.uniform(coordinates)?;
            if uniform.points > 0 {
                let (_, weights) = self.config.points(uniform.points.into())?;
                let bind = |what, slice, bytes| Ok::<_, Error>((what, context.bind(what, slice, bytes)?));
                let from: &[&dyn Named] = &[
                    &("grid", context.uniform(&uniform)),
                    &("levels", &self.levels),
                    &bind("coordinates", coordinates, 0)?,
                    &bind("grad_weights", grad_weights, weights * 4)?,
                    &bind("grad_coordinates", grad_coordinates, coordinates.size())?,
                ];
                let call = &mut Call::begin(context, encoder, "hotrow.grid.gradient");
                call.run(&GRID_GRADIENT, from, &Groups::of(uniform.points, 256));
            }
            Ok(())
        })
    }

    fn uniform(&self, coordinates: wgpu::BufferSlice<'_>) -> Result<abi::Grid, Error> {
        let points = self.config.points_of(coordinates.size() / 4)?;
        Ok(self.config.points(points)?.0)
    }
}

impl GridBags {
    /// The batch of the first `points` points, for the forward and the weight gradient of a group.
    ///
    /// # Errors
    /// [`Error::Length`] for more points than there is room for.
    pub fn batch(&self, points: u32) -> Result<Batch<'_>, Error> {
        self.holds(points)?;
        let bags = u64::from(points) * u64::from(self.config.levels);
        let bytes = bags * u64::from(self.config.corners()) * 4;
        let [indices, weights] =
            [&self.indices, &self.weights].map(|buffer| (bytes > 0).then(|| buffer.slice(..bytes)));
        Ok(Batch { indices, offsets: self.offsets.slice(..(bags + 1) * 4), weights })
    }

    fn holds(&self, points: u32) -> Result<(), Error> {
        if points > self.points {
            return Err(Error::Length { what: "points", wanted: self.points.into(), found: points.into() });
        }
        Ok(())
    }
}
