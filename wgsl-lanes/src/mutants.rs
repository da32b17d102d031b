//! Mutants of the kernels: each barrier left out and each `workgroupUniformLoad` made a plain load, one at a time, over recorded
//! dispatches. A mutant that nothing tells from the kernel is a barrier that nothing needs, or inputs that are too tame.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use naga::{Block, Function, Statement};

use crate::{
    compile::{Mutation, compile},
    device::{Code, Recording},
    files::Files,
    program::Program,
    run::{Options, Order, dispatch},
    source::Source,
};

/// The kinds of mutants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A barrier is left out.
    Removed,
    /// `workgroupUniformLoad` is a plain load.
    Demoted,
    /// `storageBarrier` is `workgroupBarrier`.
    Narrowed,
    /// An atomic operation is a read and a write.
    Plain,
}

impl Kind {
    /// The kinds of which nearly all must be found.
    pub const STRICT: [Self; 2] = [Self::Removed, Self::Demoted];
    /// The kinds whose survivors only are listed.
    pub const LISTED: [Self; 2] = [Self::Narrowed, Self::Plain];
}

/// A mutant of a kernel, whatever variant of its text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mutant {
    /// The kernel's name.
    pub kernel: String,
    /// What is changed.
    pub kind: Kind,
    /// `file:line`, or `line N` of a text of which no file is known.
    pub place: String,
}

impl std::fmt::Display for Mutant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kernel, kind, place } = self;
        write!(f, "{kernel} {place} {kind:?}")
    }
}

/// A mutant that no run tells from its kernel: a barrier that nothing needs, say.
#[derive(Clone, Copy, Debug)]
pub struct Redundant {
    /// The kernel's name, or nothing for any kernel.
    pub kernel: &'static str,
    /// The file with the mutant's line.
    pub file: &'static str,
    /// A part of that line, or of the line before or behind it.
    pub near: &'static str,
    /// Why no run tells it.
    pub proof: &'static str,
}

impl Redundant {
    /// True if this entry is about a mutant, whose place is in one of these files.
    #[must_use]
    pub fn is(&self, mutant: &Mutant, files: &Files) -> bool {
        let place = mutant.place.rsplit_once(':').and_then(|(file, line)| Some((file, line.parse::<usize>().ok()?)));
        let Some((file, line)) = place else { return false };
        let Some((_, lines)) = files.files.iter().find(|(name, _)| name == file) else { return false };
        let near = &lines[line.saturating_sub(2)..lines.len().min(line + 1)];
        (self.kernel.is_empty() || self.kernel == mutant.kernel)
            && self.file == file
            && near.iter().any(|line| line.contains(self.near))
    }
}

/// Every mutant of a text's entry point, with the mutation that makes it.
fn mutations(source: &Source) -> Vec<(Kind, Mutation, u32)> {
    let mut found = Vec::new();
    let mut functions: Vec<&Function> = vec![&source.module.entry_points[0].function];
    let mut seen = BTreeSet::new();
    while let Some(function) = functions.pop() {
        let mut blocks: Vec<&Block> = vec![&function.body];
        while let Some(block) = blocks.pop() {
            for (statement, &span) in block.span_iter() {
                let line = span.location(&source.text).line_number;
                match statement {
                    Statement::Block(block) => blocks.push(block),
                    Statement::If { accept, reject, .. } => blocks.extend([accept, reject]),
                    Statement::Switch { cases, .. } => blocks.extend(cases.iter().map(|case| &case.body)),
                    Statement::Loop { body, continuing, .. } => blocks.extend([body, continuing]),
                    Statement::ControlBarrier(flags) => {
                        found.push((Kind::Removed, Mutation::Remove(span), line));
                        if flags.contains(naga::Barrier::STORAGE) {
                            found.push((Kind::Narrowed, Mutation::Narrow(span), line));
                        }
                    }
                    Statement::WorkGroupUniformLoad { .. } => found.push((Kind::Demoted, Mutation::Demote(span), line)),
                    Statement::Atomic { .. } => found.push((Kind::Plain, Mutation::Plain(span), line)),
                    Statement::Call { function, .. } if seen.insert(*function) => {
                        functions.push(&source.module.functions[*function]);
                    }
                    _ => {}
                }
            }
        }
    }
    found
}

/// A mutant with the code that it has in each recorded text.
struct Hunted {
    mutant: Mutant,
    made: Vec<(Arc<Code>, Mutation)>,
}

/// What a hunt has found.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// For each mutant, whether anything told it from its kernel.
    pub told: BTreeMap<Mutant, bool>,
    /// The mutants for which there was no time.
    pub left: BTreeSet<Mutant>,
}

impl Tally {
    /// Takes over what another hunt found.
    pub fn merge(&mut self, other: Self) {
        for (mutant, told) in other.told {
            *self.told.entry(mutant).or_default() |= told;
        }
        self.left.extend(other.left);
    }

    /// The numbers of mutants found and of all, of some kinds.
    pub fn count(&self, kinds: &[Kind]) -> (usize, usize) {
        let of_kind = self.told.iter().filter(|(mutant, _)| kinds.contains(&mutant.kind));
        (of_kind.clone().filter(|&(_, &told)| told).count(), of_kind.count())
    }

    /// The mutants that nothing told, of some kinds.
    pub fn survivors(&self, kinds: &[Kind]) -> Vec<&Mutant> {
        let survived = self.told.iter().filter(|(mutant, told)| kinds.contains(&mutant.kind) && !**told);
        survived.map(|(mutant, _)| mutant).collect()
    }
}

/// What a sound run of a recording gave.
struct Sound {
    buffers: Vec<Arc<Vec<u32>>>,
    /// The lines of its findings, which tell nothing about a mutant.
    faults: BTreeSet<(u32, u32)>,
}

fn replay(program: &Program, recording: &Recording, options: &Options) -> Sound {
    let mut buffers = recording.buffers.clone();
    let outcome = dispatch(program, &mut buffers, &recording.bindings, recording.groups, options);
    let faults = outcome.found.iter().map(|raw| (raw.line, raw.other)).collect();
    Sound { buffers, faults }
}

/// What sound runs of a recording gave, in the orders of [`orders`], and whether they gave the same.
struct Baseline {
    runs: Vec<Sound>,
    settled: bool,
}

/// The orders in which a recording is replayed. Races show in any; unwritten memory and wrong results where the first or the last subgroup
/// runs ahead, or where subgroups take turns.
fn orders(options: &Options) -> [Options; 3] {
    [Order::Descending, Order::Ascending, Order::Random].map(|order| Options { order, ..*options })
}

fn baseline(recording: &Recording, options: &Options) -> Baseline {
    let runs: Vec<Sound> =
        orders(options).iter().map(|options| replay(&recording.code.made().1, recording, options)).collect();
    let settled = runs.iter().all(|run| run.buffers == runs[0].buffers);
    Baseline { runs, settled }
}

/// Runs every mutant that `wanted` names over the recorded dispatches, on all cores, until one tells it: by a fault that the kernel does not have there, or
/// by another result. Begins none behind the time `until`; `seed` says which are first.
pub fn hunt(
    recordings: &[Recording],
    options: &Options,
    until: Option<Instant>,
    seed: u64,
    wanted: impl Fn(&Mutant) -> bool,
) -> Tally {
    let mut hunted: BTreeMap<Mutant, Hunted> = BTreeMap::new();
    let mut texts: Vec<&Arc<Code>> = Vec::new();
    for Recording { code, project, .. } in recordings {
        if texts.iter().any(|text| Arc::ptr_eq(text, code)) {
            continue;
        }
        texts.push(code);
        let (source, _) = code.made();
        for (kind, mutation, line) in mutations(source) {
            let mutant = Mutant { kernel: code.name.clone(), kind, place: project.files().place(&source.text, line) };
            if wanted(&mutant) {
                let made = hunted.entry(mutant.clone()).or_insert(Hunted { mutant, made: Vec::new() });
                made.made.push((code.clone(), mutation));
            }
        }
    }
    let mut hunted: Vec<Hunted> = hunted.into_values().collect();
    let first = seed as usize % hunted.len().max(1);
    hunted.rotate_left(first);
    let options = Options { budget: options.budget.min(2_000_000), ..*options };
    // Small dispatches first: most mutants fall there.
    let mut recordings: Vec<&Recording> = recordings.iter().collect();
    recordings.sort_by_key(|recording| recording.groups.iter().product::<u32>());
    let sound: Vec<OnceLock<Baseline>> = recordings.iter().map(|_| OnceLock::new()).collect();
    let next = AtomicUsize::new(0);
    let tally = Mutex::new(Tally::default());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while let Some(Hunted { mutant, made }) = hunted.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if until.is_some_and(|until| Instant::now() > until) {
                        tally.lock().unwrap_or_else(PoisonError::into_inner).left.insert(mutant.clone());
                        continue;
                    }
                    let told = made.iter().any(|(code, mutation)| {
                        let program = compile(&code.made().0, Some(*mutation));
                        recordings.iter().zip(&sound).any(|(recording, sound)| {
                            Arc::ptr_eq(&recording.code, code) && differs(&program, recording, sound, &options)
                        })
                    });
                    let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
                    tally.told.insert(mutant.clone(), told);
                }
            });
        }
    });
    tally.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// True if a mutant's program does something else than the recording's.
fn differs(program: &Program, recording: &Recording, held: &OnceLock<Baseline>, options: &Options) -> bool {
    let Baseline { runs, settled } = held.get_or_init(|| baseline(recording, options));
    orders(options).iter().zip(runs).any(|(options, sound)| {
        let found = replay(program, recording, options);
        !found.faults.is_subset(&sound.faults) || (*settled && found.buffers != sound.buffers)
    })
}
