//! What the parts of a device share: its configuration, what it found, and what it recorded.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use wgpu::custom::BufferMapCallback;

use super::{
    code::{Code, lock},
    config::Config,
};
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
    /// Of the others, those of one workgroup and those of several, and the number of all of each kind.
    others: [(Vec<Recording>, usize); 2],
}

/// What the parts of a device share, and what a test asks of it.
#[derive(Debug)]
pub struct World {
    pub(super) config: Config,
    pub(super) report: Mutex<Report>,
    recorded: Mutex<Vec<Recorded>>,
    pub(super) pending: Mutex<Vec<Pending>>,
    pub(super) submitted: Mutex<u64>,
    pub(super) scopes: Mutex<Scopes>,
}

/// The error scopes that are open, each with its number and the first error in it, and the number of all so far.
#[derive(Debug, Default)]
pub(super) struct Scopes {
    pub(super) open: Vec<(u32, wgpu::ErrorFilter, Option<wgpu::Error>)>,
    pub(super) so_far: u32,
}

/// A mapping whose caller has not heard yet.
pub(super) struct Pending(pub(super) BufferMapCallback);

impl std::fmt::Debug for Pending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pending")
    }
}

/// The number of dispatches that are recorded for each barrier behind another.
const FIRSTS: u32 = 4;

impl World {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            config: config.clone(),
            report: Mutex::default(),
            recorded: Mutex::default(),
            pending: Mutex::default(),
            submitted: Mutex::default(),
            scopes: Mutex::default(),
        }
    }

    /// Gives an internal error to the innermost scope that asks for such.
    pub(super) fn internal_error(&self, description: String) {
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
        let recorded = all.into_iter().flat_map(|recorded| {
            recorded.firsts.into_iter().chain(recorded.others.into_iter().flat_map(|(some, _)| some))
        });
        recorded.collect()
    }

    /// Keeps a dispatch in which barriers came behind each other as in none before; of the others, each has the same chance among those of one workgroup, or
    /// of several, between which alone a missing atomic operation shows.
    pub(super) fn record(&self, recording: Recording, pairs: &BTreeSet<(u32, u32)>) {
        let mut all = lock(&self.recorded);
        let known = all.iter().position(|known| Arc::ptr_eq(&known.code, &recording.code));
        let known = known.unwrap_or_else(|| {
            let code = recording.code.clone();
            all.push(Recorded { code, firsts: Vec::new(), pairs: BTreeMap::new(), others: Default::default() });
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
        let several = recording.groups.iter().product::<u32>() > 1;
        let (others, seen) = &mut known.others[usize::from(several)];
        *seen += 1;
        if others.len() < self.config.record {
            others.push(recording);
        } else {
            let place = (*seen as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33;
            let place = place as usize % *seen;
            if place < others.len() {
                others[place] = recording;
            }
        }
    }
}
