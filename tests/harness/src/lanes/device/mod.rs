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

impl Recording {
    fn words(&self) -> usize {
        self.buffers.iter().map(|words| words.len()).sum()
    }
}

/// The recorded dispatches of a text, and the number of all its dispatches.
#[derive(Debug)]
struct Recorded {
    code: Arc<Code>,
    /// Some, chosen at random.
    any: Vec<Recording>,
    /// Those with the most words, for loops that turn several times; none of more than [`MOST_WORDS`], which would take too long.
    large: Vec<Recording>,
    seen: usize,
}

/// Most words of the buffers of a dispatch that is recorded for its size.
const MOST_WORDS: usize = 80_000;

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
        let all = std::mem::take(&mut *lock(&self.recorded));
        all.into_iter().flat_map(|recorded| recorded.any.into_iter().chain(recorded.large)).collect()
    }

    /// Keeps a dispatch in one half if it is large, else in the other half, where each of a text has the same chance.
    fn record(&self, recording: Recording) {
        let mut all = lock(&self.recorded);
        let at = all.iter().position(|known| Arc::ptr_eq(&known.code, &recording.code)).unwrap_or_else(|| {
            let (code, any, large) = (recording.code.clone(), Vec::new(), Vec::new());
            all.push(Recorded { code, any, large, seen: 0 });
            all.len() - 1
        });
        let Recorded { any, large, seen, .. } = &mut all[at];
        let most = self.config.record.div_ceil(2);
        *seen += 1;
        let words = recording.words();
        let smallest = (0..large.len()).min_by_key(|&at| large[at].words());
        match smallest {
            _ if words > MOST_WORDS => {}
            _ if large.len() < most => return large.push(recording),
            Some(at) if large[at].words() < words => {
                large[at] = recording;
                return;
            }
            _ => {}
        }
        if any.len() < most {
            any.push(recording);
            return;
        }
        let place = ((*seen as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33) as usize % *seen;
        if place < any.len() {
            any[place] = recording;
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
