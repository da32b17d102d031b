//! The GPU's runner: steps recorded into queues, device timestamps.

use hotrow::robe::{Backward, Config};
use hotrow::wgpu;
use hotrow::{Error, GradBuffer, GradientBuffer, RobeGroup};

use super::beside::{Forward, Table};
use super::measure::{Runner, Step, What};
use crate::bench::suite::shapes::Batch as Rows;
use crate::bench::suite::workload::Workload;
use crate::lab::{Inputs, Lab, Measured};

pub(super) struct GpuRunner<'a> {
    lab: &'a Lab,
    group: Option<RobeGroup>,
}

impl<'a> GpuRunner<'a> {
    pub(super) fn new(lab: &'a Lab) -> Self {
        Self { lab, group: None }
    }
}

/// Where gradients go, over and over.
enum Room {
    Dense(wgpu::Buffer),
    Sparse { locations: wgpu::Buffer, sums: wgpu::Buffer, count: wgpu::Buffer },
}

impl Room {
    /// For batches of so many indices, one binding each.
    fn new(lab: &Lab, config: &Config, indices: u32) -> Result<Self, Error> {
        let make = |what, entries: u32| {
            let bytes = bound(what, entries, lab.binding())?;
            let scope = lab.timed.device().push_error_scope(wgpu::ErrorFilter::OutOfMemory);
            let buffer = lab.room(bytes, wgpu::BufferUsages::empty());
            match pollster::block_on(scope.pop()) {
                Some(_) => Err(Error::OutOfMemory { what, bytes }),
                None => Ok(buffer),
            }
        };
        if config.backward == Backward::Dense {
            return Ok(Self::Dense(make("dense gradient", config.weights)?));
        }
        let most = config.most_covered(indices);
        let (locations, sums) = (make("sparse gradient's locations", most)?, make("sparse gradient's sums", most)?);
        Ok(Self::Sparse { locations, sums, count: make("sparse gradient's count", 1)? })
    }

    fn buffer(&self) -> GradientBuffer<'_> {
        match self {
            Self::Dense(sums) => GradientBuffer::Dense(sums.slice(..)),
            Self::Sparse { locations, sums, count } => {
                GradientBuffer::Sparse { locations: locations.slice(..), sums: sums.slice(..), count: count.slice(..) }
            }
        }
    }
}

/// Bytes of so many entries of a gradient, if one binding holds them: rounded up to 16, as buffers are.
fn bound(what: &'static str, entries: u32, limit: u64) -> Result<u64, Error> {
    let bytes = (4 * u64::from(entries)).next_multiple_of(16);
    if bytes > limit {
        let remedy = "compress more: a gradient's sums are one binding";
        return Err(Error::TooLarge { what, wanted: bytes, limit, remedy });
    }
    Ok(bytes)
}

/// What comes behind a forward.
enum Behind {
    Nothing,
    Update,
    Gradient(Room),
}

impl Behind {
    fn phases(&self) -> &'static [&'static str] {
        match self {
            Self::Nothing => &["forward"],
            Self::Update => &["forward", "update"],
            Self::Gradient(_) => &["forward", "gradient"],
        }
    }

    fn record(&self, group: &mut RobeGroup, encoder: &mut wgpu::CommandEncoder, data: &Inputs) -> Result<(), Error> {
        let grads = data.grads.slice(..);
        match self {
            Self::Nothing => Ok(()),
            Self::Update => group.record_backward(encoder, grads),
            Self::Gradient(room) => group.record_gradient(encoder, GradBuffer::F32(grads), room.buffer()),
        }
    }
}

/// Forward and what comes behind it in turn; what is allocated and compiled is there before anything is counted.
fn measure(lab: &Lab, group: &mut RobeGroup, data: &Inputs, behind: &Behind) -> anyhow::Result<Measured> {
    lab.timeline.listen(false);
    let forward = |group: &mut RobeGroup, encoder: &mut wgpu::CommandEncoder, turn| {
        group.record_forward(encoder, &data.batch(turn), data.outputs.slice(..))
    };
    let mut encoder = lab.encoder();
    forward(group, &mut encoder, 0)?;
    behind.record(group, &mut encoder, data)?;
    lab.submit(encoder)?;
    let mut turn = 0;
    let measured = lab.measure(behind.phases(), |phase, encoder| {
        if phase == 0 {
            turn += 1;
            forward(group, encoder, turn)?;
        } else {
            behind.record(group, encoder, data)?;
        }
        Ok(())
    })?;
    group.abandon_backward();
    group.check()?;
    Ok(measured)
}

impl Runner for GpuRunner<'_> {
    fn allocate(&mut self, config: Config) -> Result<(), Error> {
        self.group = None; // freed before the next is allocated
        self.group = Some(RobeGroup::new(&self.lab.timed, config)?);
        Ok(())
    }

    fn reconfigure(&mut self, config: Config) -> Result<(), Error> {
        self.group.as_mut().map_or(Ok(()), |group| group.reconfigure(config))
    }

    fn steps(&mut self, batches: &[Vec<u32>], what: What) -> anyhow::Result<Step> {
        let group = self.group.as_mut().ok_or_else(|| anyhow::anyhow!("bench robe: wanted an array, found none"))?;
        let offsets: Vec<u32> = (0..=batches[0].len() as u32).collect();
        let data = inputs(self.lab, batches, &offsets, group.config().dim);
        let behind = match what {
            What::Update => Behind::Update,
            What::Gradient => Behind::Gradient(Room::new(self.lab, group.config(), batches[0].len() as u32)?),
        };
        let measured = measure(self.lab, group, &data, &behind)?;
        Ok(Step {
            forward: measured.phase("forward").unwrap_or_default(),
            backward: measured.phase(what.name()).unwrap_or_default(),
            stages: measured.stages,
        })
    }

    /// There it is the sparse update.
    fn auto(&self, _: u32) -> &'static str {
        "sparse"
    }

    fn free(&mut self) {
        self.group = None;
    }
}

/// A table's forward over batches in turn, after others that fill its cache.
pub(super) fn forward(
    lab: &Lab,
    table: &Table,
    warm: &[Vec<u32>],
    batches: &[Vec<u32>],
    offsets: &[u32],
    bag: u32,
) -> anyhow::Result<Forward> {
    match table {
        Table::Robe(config) => {
            let mut group = RobeGroup::new(&lab.timed, config.clone())?;
            let data = inputs(lab, batches, offsets, config.dim);
            let times = measure(lab, &mut group, &data, &Behind::Nothing)?.phase("forward").unwrap_or_default();
            Ok(Forward { times, hit_rate: None })
        }
        Table::Cached(config) => {
            let of = |batches: &[Vec<u32>]| batches.iter().map(|rows| Rows::of(rows.clone(), bag)).collect();
            let workload = Workload {
                warm: of(warm),
                batches: of(batches),
                backward: false,
                ..Workload::new("beside", "", (**config).clone())
            };
            let case = workload.run(lab)?;
            Ok(Forward { times: case.times("forward").unwrap_or_default(), hit_rate: Some(case.hit_rate()) })
        }
    }
}

/// The batches with the same offsets; ROBE's loss is the sum of all that was read.
fn inputs(lab: &Lab, batches: &[Vec<u32>], offsets: &[u32], dim: u32) -> Inputs {
    let parts: Vec<_> = batches.iter().map(|batch| (batch.clone(), offsets.to_vec())).collect();
    Inputs::new(lab, &parts, dim, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gradient_is_one_binding() {
        assert_eq!(bound("sums", 4, 16).ok(), Some(16));
        assert_eq!(bound("sums", u32::MAX, u64::MAX).ok(), Some(1 << 34));
        // 5 entries take the 32 bytes that a buffer of them has.
        for (entries, limit) in [(5, 16), (5, 31), (1 << 25, (1 << 27) - 1)] {
            let error = bound("dense gradient", entries, limit).unwrap_err();
            assert!(matches!(error, Error::TooLarge { .. }), "{error}");
            assert!(error.to_string().contains("dense gradient"), "{error}");
        }
        assert_eq!(bound("sums", 5, 32).ok(), Some(32));
    }
}
