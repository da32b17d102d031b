//! A device of wgpu whose kernels the lane executor runs. Commands are recorded and run at `submit`, on the caller's thread. It does what
//! hotrow asks of a device and panics, with the name, at everything else.

mod adapter;
mod buffer;
mod commands;
mod config;
mod kernel;
mod queue;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use config::{Config, Findings};
pub use kernel::Code;

use super::findings::Report;

/// A dispatch as it was submitted.
#[derive(Clone, Debug)]
pub struct Recording {
    pub code: Arc<Code>,
    /// The buffers before the dispatch.
    pub buffers: Vec<Arc<Vec<u32>>>,
    pub bindings: Vec<super::Bound>,
    pub groups: [u32; 3],
}

/// The recorded dispatches of a text, and the number of all its dispatches.
#[derive(Debug)]
struct Recorded {
    kept: Vec<Recording>,
    seen: usize,
}

/// What the parts of a device share, and what a test asks of it.
#[derive(Debug)]
pub struct World {
    pub config: Config,
    report: Mutex<Report>,
    recorded: Mutex<Vec<Recorded>>,
    pending: Mutex<Vec<buffer::Pending>>,
    submitted: Mutex<u64>,
}

/// Takes a lock, even one that a failed test left behind.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    /// The findings and counts so far; the next call begins anew.
    pub fn take_report(&self) -> Report {
        std::mem::take(&mut lock(&self.report))
    }

    /// The dispatches recorded so far, if [`Config::record`] asks for them.
    pub fn take_recorded(&self) -> Vec<Recording> {
        std::mem::take(&mut *lock(&self.recorded)).into_iter().flat_map(|recorded| recorded.kept).collect()
    }

    /// Keeps a dispatch, so that each of a text has the same chance.
    fn record(&self, recording: Recording) {
        let mut all = lock(&self.recorded);
        let known = all.iter().position(|known| Arc::ptr_eq(&known.kept[0].code, &recording.code));
        let Some(known) = known else {
            all.push(Recorded { kept: vec![recording], seen: 1 });
            return;
        };
        let Recorded { kept, seen } = &mut all[known];
        *seen += 1;
        if kept.len() < self.config.record {
            kept.push(recording);
        } else {
            let place = (*seen as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33;
            let place = place as usize % *seen;
            if place < kept.len() {
                kept[place] = recording;
            }
        }
    }
}

/// A device and its queue.
pub fn open(config: &Config) -> (wgpu::Device, wgpu::Queue, Arc<World>) {
    let world = Arc::new(World {
        config: config.clone(),
        report: Mutex::default(),
        recorded: Mutex::default(),
        pending: Mutex::default(),
        submitted: Mutex::default(),
    });
    let device = wgpu::Device::from_custom(adapter::LaneDevice { world: world.clone() });
    let queue = wgpu::Queue::from_custom(queue::LaneQueue { world: world.clone() });
    (device, queue, world)
}
