//! A device of wgpu whose kernels the lane executor runs. Commands are recorded and run at `submit`, on the caller's thread. It does what
//! compute kernels on buffers ask of a device and panics, with the name, at everything else.

/// Methods that panic with their name: what a kernel on buffers does not need.
macro_rules! absent {
    ($(fn $name:ident $arguments:tt $(-> $result:ty)?;)*) => {
        $(fn $name $arguments $(-> $result)? {
            panic!(concat!("the lane executor has no ", stringify!($name)))
        })*
    };
}

mod adapter;
mod buffer;
mod commands;
mod config;
mod kernel;
mod queue;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

pub use config::{Config, Findings};
pub(crate) use kernel::Code;

use crate::{findings::Report, project::Project, run::Bound};

/// A dispatch as it was submitted, for [`hunt`](crate::hunt).
#[derive(Clone, Debug)]
pub struct Recording {
    pub(crate) project: &'static dyn Project,
    pub(crate) code: Arc<Code>,
    /// The buffers before the dispatch.
    pub(crate) buffers: Vec<Arc<Vec<u32>>>,
    pub(crate) bindings: Vec<Bound>,
    pub(crate) groups: [u32; 3],
}

/// The recorded dispatches of a text: those in which a barrier came behind another for the first few times, and some of the others.
#[derive(Debug)]
struct Recorded {
    code: Arc<Code>,
    firsts: Vec<Recording>,
    pairs: BTreeMap<(u32, u32), u32>,
    others: Vec<Recording>,
    /// The number of all others.
    seen: usize,
}

/// What the parts of a device share, and what a test asks of it.
#[derive(Debug)]
pub struct World {
    config: Config,
    report: Mutex<Report>,
    recorded: Mutex<Vec<Recorded>>,
    pending: Mutex<Vec<buffer::Pending>>,
    submitted: Mutex<u64>,
    scopes: Mutex<Scopes>,
}

/// The error scopes that are open, each with its number and the first error in it, and the number of all so far.
#[derive(Debug, Default)]
struct Scopes {
    open: Vec<(u32, wgpu::ErrorFilter, Option<wgpu::Error>)>,
    so_far: u32,
}

/// The number of dispatches that are recorded for each barrier behind another.
const FIRSTS: u32 = 4;

/// Takes a lock, even one that a failed test left behind.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    /// Gives an internal error to the innermost scope that asks for such.
    fn internal_error(&self, description: String) {
        let mut scopes = lock(&self.scopes);
        let scope = scopes.open.iter_mut().rev().find(|(_, filter, _)| *filter == wgpu::ErrorFilter::Internal);
        let (.., found) = scope.unwrap_or_else(|| panic!("an error that no scope takes: {description}"));
        let source = description.clone().into();
        found.get_or_insert(wgpu::Error::Internal { source, description });
    }

    /// The findings and counts so far; the next call begins anew.
    pub fn take_report(&self) -> Report {
        std::mem::take(&mut lock(&self.report))
    }

    /// The dispatches recorded so far, if [`Config::record`] asks for them.
    pub fn take_recorded(&self) -> Vec<Recording> {
        let all = std::mem::take(&mut *lock(&self.recorded));
        all.into_iter().flat_map(|recorded| recorded.firsts.into_iter().chain(recorded.others)).collect()
    }

    /// Keeps a dispatch in which barriers came behind each other as in none before; of the others, each has the same chance.
    fn record(&self, recording: Recording, pairs: &BTreeSet<(u32, u32)>) {
        let mut all = lock(&self.recorded);
        let known = all.iter().position(|known| Arc::ptr_eq(&known.code, &recording.code));
        let known = known.unwrap_or_else(|| {
            let code = recording.code.clone();
            all.push(Recorded { code, firsts: Vec::new(), pairs: BTreeMap::new(), others: Vec::new(), seen: 0 });
            all.len() - 1
        });
        let known = &mut all[known];
        let mut rare = false;
        for &pair in pairs {
            let met = known.pairs.entry(pair).or_default();
            *met += 1;
            rare |= *met <= FIRSTS;
        }
        if rare {
            known.firsts.push(recording);
            return;
        }
        known.seen += 1;
        if known.others.len() < self.config.record {
            known.others.push(recording);
        } else {
            let place = (known.seen as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33;
            let place = place as usize % known.seen;
            if place < known.others.len() {
                known.others[place] = recording;
            }
        }
    }
}

/// A device and its queue, for a program to use in place of a card's, and what they share, which has the findings.
#[must_use]
pub fn open(config: &Config) -> (wgpu::Device, wgpu::Queue, Arc<World>) {
    let world = Arc::new(World {
        config: config.clone(),
        report: Mutex::default(),
        recorded: Mutex::default(),
        pending: Mutex::default(),
        submitted: Mutex::default(),
        scopes: Mutex::default(),
    });
    let device = wgpu::Device::from_custom(adapter::LaneDevice { world: world.clone() });
    let queue = wgpu::Queue::from_custom(queue::LaneQueue { world: world.clone() });
    (device, queue, world)
}
