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
/// let Ok(context) = adapter::open_best() else { return Ok(()) };
/// let storage = |values: &[f32]| {
///     let (label, usage) = (None, wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC);
///     let contents = bytemuck::cast_slice(values);
///     context.device().create_buffer_init(&wgpu::util::BufferInitDescriptor { label, contents, usage })
/// };
/// let config = grid::Config::new(3).with_levels(2).with_most_rows(1 << 12);
/// let mut features = Group::new(&context, config.group()?)?;
/// let grid = Grid::new(&context, config, 4)?; // room for four points
/// let (points, outputs) = (storage(&[0.5; 12]), storage(&[0.0; 2 * 4 * 2])); // levels, points, features
/// let (slopes, moves) = (storage(&[0.0; 2 * 4 * 8]), storage(&[0.0; 12]));
/// let mut encoder = context.device().create_command_encoder(&Default::default());
/// let batch = grid.encode(&mut encoder, points.slice(..))?;
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
    points: u32,
    levels: wgpu::Buffer,
    indices: wgpu::Buffer,
    offsets: wgpu::Buffer,
    weights: wgpu::Buffer,
}

named!(Grid: levels, indices, weights);

impl Drop for Grid {
    fn drop(&mut self) {
        self.context.forget_bindings();
    }
}

impl Grid {
    /// Computes the levels, and allocates buffers for batches of up to `points` points: 8 x 2^d + 4 bytes for each point and level.
    ///
    /// # Errors
    /// [`Error::Grid`] for an illegal configuration; [`Error::TooLarge`] beyond 2^30 indices or the device's limit; [`Error::OutOfMemory`].
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn new(context: &Context, config: Config, points: u32) -> Result<Self, Error> {
        config.check()?;
        context.guarded(|| {
            let (_, indices) = config.points(points.into())?;
            let list = |what| context.buffer(what, indices * 4, wgpu::BufferUsages::empty());
            let offsets: Vec<u32> = config.offsets(points).collect();
            Ok(Self {
                context: context.clone(),
                points,
                levels: context.upload("levels", bytemuck::cast_slice(&config.levels_of()))?,
                indices: list("indices")?,
                offsets: context.upload("offsets", bytemuck::cast_slice(&offsets))?,
                weights: list("weights")?,
                config,
            })
        })
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Encodes the batch of points with `coordinates`, `[points, dims]` floats, and returns it, for the forward and the weight gradient of a
    /// group. It lies in buffers of the grid: the next call writes over it. A point with a coordinate that is not finite gets indices that no
    /// table has: the forward treats them as [`OutOfRange`](crate::OutOfRange) says.
    ///
    /// # Errors
    /// [`Error::Length`] unless each point has all its coordinates, and for more points than there is room for; [`Error::Buffer`] for coordinates
    /// that cannot be bound.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn encode(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        coordinates: wgpu::BufferSlice<'_>,
    ) -> Result<Batch<'_>, Error> {
        self.context.guarded(|| {
            let uniform = self.uniform(coordinates)?;
            let points = uniform.points;
            if points > self.points {
                return Err(Error::Length { what: "points", wanted: self.points.into(), found: points.into() });
            }
            if points > 0 {
                let bound = self.context.bind("coordinates", coordinates, 0)?;
                let call = &mut Call::begin(&self.context, encoder, "hotrow.grid");
                let groups = Groups::of(points * uniform.levels, 256);
                let uniform = self.context.uniform(&uniform);
                let from: &[&dyn Named] = &[&("grid", uniform), &("coordinates", bound), self];
                call.run(&GRID, from, &groups);
            }
            let bags = u64::from(points) * u64::from(self.config.levels);
            let bytes = bags * u64::from(self.config.corners()) * 4;
            let [indices, weights] =
                [&self.indices, &self.weights].map(|buffer| (bytes > 0).then(|| buffer.slice(..bytes)));
            Ok(Batch { indices, offsets: self.offsets.slice(..(bags + 1) * 4), weights })
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
