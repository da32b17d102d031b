//! A hash grid on the host: points to batches, and gradients of coordinates.

use crate::{
    cpu::stages::grid::{grid, grid_gradient},
    error::Error,
    grid::Config,
    host::alloc::{reserved, zeroed},
    table::{abi::Level, batch::Bags},
};

/// The hash grid of a [`Config`](crate::grid::Config) for points on the host, for tables on any backend. [`Grid`](crate::Grid) does the same on
/// the device, with the same indices and weights, bit for bit.
///
/// Example: [`Config`].
#[derive(Clone, Debug)]
pub struct CpuGrid {
    config: Config,
    levels: Vec<Level>,
    indices: Vec<u32>,
    offsets: Vec<u32>,
    weights: Vec<f32>,
}

impl CpuGrid {
    /// Computes the levels.
    ///
    /// # Errors
    /// [`Error::Grid`] for an illegal configuration.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn new(config: Config) -> Result<Self, Error> {
        config.check()?;
        let levels = config.levels_of();
        Ok(Self { config, levels, indices: Vec::new(), offsets: Vec::new(), weights: Vec::new() })
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The batch of points with `coordinates`, `[points, dims]`: bags level by level, in each level point by point, each with 2^d indices, the rows
    /// of the corners, and their d-linear weights, which add up to 1. Bit k of a corner's number is set at the further corner along axis k.
    ///
    /// # Errors
    /// [`Error::Grid`] for the first coordinate that is not finite, [`Error::Length`] unless each point has all its coordinates,
    /// [`Error::TooLarge`] beyond 2^30 indices, [`Error::OutOfMemory`].
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn bags(&mut self, coordinates: &[f32]) -> Result<Bags<'_>, Error> {
        if let Some(at) = coordinates.iter().position(|x| !x.is_finite()) {
            let (wanted, dims) = ("finite numbers".into(), self.config.dims as usize);
            let found = format!("{} on axis {} of point {}", coordinates[at], at % dims, at / dims);
            return Err(Error::Grid { what: "coordinates", wanted, found, remedy: "leave the point out" });
        }
        let points = self.config.points_of(coordinates.len() as u64)?;
        let (uniform, n) = self.config.points(points)?;
        (self.indices, self.weights) = (zeroed("indices", n as usize)?, zeroed("weights", n as usize)?);
        grid(&uniform, &self.levels, coordinates, &mut self.indices, &mut self.weights);
        self.offsets = reserved("offsets", points as usize * self.levels.len() + 1)?;
        self.offsets.extend(self.config.offsets(uniform.points));
        Ok(Bags::new(&self.indices, &self.offsets).with_weights(Some(&self.weights)))
    }

    /// The gradient with respect to `coordinates`, `[points, dims]`, from the gradients of the weights of these points' bags
    /// ([`Lookup::weight_gradient`](crate::Lookup::weight_gradient)).
    ///
    /// # Errors
    /// [`Error::Length`] for gradients of another number of weights, and as [`bags`](Self::bags), but for coordinates that are not finite: their
    /// points have gradient 0.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn coordinate_gradient(&self, coordinates: &[f32], grad_weights: &[f32]) -> Result<Vec<f32>, Error> {
        let (uniform, wanted) = self.config.points(self.config.points_of(coordinates.len() as u64)?)?;
        let found = grad_weights.len() as u64;
        if found != wanted {
            return Err(Error::Length { what: "grad_weights", wanted, found });
        }
        let mut grads = zeroed("grad_coordinates", coordinates.len())?;
        grid_gradient(&uniform, &self.levels, coordinates, grad_weights, &mut grads);
        Ok(grads)
    }
}
