//! Runs a dispatch: which workgroup and which of its subgroups runs next, and what a barrier waits for.

mod arithmetic;
mod machine;
mod shadow;
mod span;
mod state;

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use machine::{Machine, Stop};
pub use state::Bound;
use state::{Wait, Workgroup};

use crate::{
    findings::{Counts, Fault, Raw},
    program::Program,
};

/// The order in which workgroups and their subgroups run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// One after another.
    Ascending,
    /// One after another, the last first.
    Descending,
    /// Several at once, in turns of random length.
    Random,
}

/// How the executor runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Lanes of a subgroup: 4, 8, 16, 32 or 64.
    pub subgroup: u32,
    /// Which workgroup and which of its subgroups runs next.
    pub order: Order,
    /// What everything random depends on: the same seed gives the same run.
    pub seed: u64,
    /// One in so many weak compare-exchanges fails without a reason; 0: none.
    pub spurious: u32,
    /// Most operations of one subgroup; then a loop counts as endless.
    pub budget: u64,
    /// Most workgroups that run at once, in random order.
    pub flying: usize,
    /// Whether sectors, lines, atomic operations, issues and waits are counted.
    pub counting: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            subgroup: 32,
            order: Order::Random,
            seed: 1,
            spurious: 4,
            budget: 100_000_000,
            flying: 4,
            counting: false,
        }
    }
}

/// What a dispatch gave.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The faults, each at the lines of the text where it was met first.
    pub found: Vec<Raw>,
    /// What it asked of the device; all but dispatches, workgroups and barriers only if [`Options::counting`] says so.
    pub counts: Counts,
    /// Which barrier came behind which in any workgroup, by their positions plus one; 0 is the beginning.
    pub(crate) pairs: BTreeSet<(u32, u32)>,
}

/// Runs `groups` workgroups of a program on buffers. Those that it may write become its own; the others may be shared.
///
/// # Panics
///
/// Where no `bindings` has a buffer for a binding that the program declares, or a range ends behind its buffer.
pub fn dispatch(
    program: &Program,
    buffers: &mut [Arc<Vec<u32>>],
    bindings: &[Bound],
    groups: [u32; 3],
    options: &Options,
) -> Outcome {
    assert!(
        [4, 8, 16, 32, 64].contains(&options.subgroup),
        "wanted subgroups of 4, 8, 16, 32 or 64 lanes, found {}",
        options.subgroup
    );
    let bound: Vec<Bound> = program
        .bindings
        .iter()
        .map(|declared| {
            *bindings
                .iter()
                .find(|bound| bound.binding == declared.binding)
                .unwrap_or_else(|| panic!("wanted a buffer for binding {}, found none", declared.binding))
        })
        .collect();
    let mut shadows: Vec<_> = buffers.iter().map(|_| None).collect();
    for (declared, bound) in program.bindings.iter().zip(&bound) {
        let buffer = &buffers[bound.buffer];
        assert!(bound.first + bound.words <= buffer.len(), "{}: a range beyond its buffer", declared.name);
        if declared.writes && shadows[bound.buffer].is_none() {
            shadows[bound.buffer] = Some(shadow::fresh(buffer.len()));
            Arc::make_mut(&mut buffers[bound.buffer]);
        }
    }
    let random = options.order == Order::Random;
    let mut machine = Machine {
        program,
        width: options.subgroup as usize,
        groups,
        buffers,
        bound,
        shadows,
        found: Vec::new(),
        counts: Counts::default(),
        counting: options.counting,
        heat: HashMap::new(),
        pairs: BTreeSet::new(),
        budget: options.budget,
        spurious: options.spurious,
        shuffled: random,
        quantum: u32::MAX,
        random: options.seed,
    };
    let total: u32 = groups.iter().product();
    run_all(&mut machine, total, options);
    let Machine { found, mut counts, heat, pairs, .. } = machine;
    counts.dispatches = 1;
    counts.workgroups = u64::from(total);
    counts.hottest = heat.values().copied().max().unwrap_or(0);
    Outcome { found, counts, pairs }
}

fn run_all(machine: &mut Machine<'_>, total: u32, options: &Options) {
    let random = options.order == Order::Random;
    let most = if random { options.flying.min(total as usize) } else { 1 };
    let mut begun = 0;
    // Random: the workgroups begin in an order of their own, which a step without a common divisor with their number gives.
    let (first, step) = match options.order {
        Order::Ascending => (0, 1),
        Order::Descending => (total.saturating_sub(1), total.saturating_sub(1)),
        Order::Random => (machine.random() % total.max(1), coprime(machine.random(), total)),
    };
    let mut idle: Vec<Workgroup> = Vec::new();
    let mut flying: Vec<Workgroup> = Vec::new();
    loop {
        while flying.len() < most && begun < total {
            let mut next = idle.pop().unwrap_or_else(|| Workgroup::new(machine.program, machine.width));
            let number = (u64::from(first) + u64::from(begun) * u64::from(step)) % u64::from(total);
            next.begin(number as u32);
            begun += 1;
            flying.push(next);
        }
        if flying.is_empty() {
            return;
        }
        let at = if random { machine.random() as usize % flying.len() } else { 0 };
        let group = &mut flying[at];
        let ready: Vec<usize> =
            (0..group.subgroups.len()).filter(|&i| group.subgroups[i].wait == Wait::Ready).collect();
        let chosen = match options.order {
            Order::Ascending => ready[0],
            Order::Descending => ready[ready.len() - 1],
            Order::Random => ready[machine.random() as usize % ready.len()],
        };
        if random {
            // Short turns find orders of neighbouring accesses, long ones finish a subgroup before another begins.
            let reach = [1, 4, 16, 256][machine.random() as usize % 4];
            machine.quantum = machine.random() % reach + 1;
        }
        if machine.run(&mut group.shared, &mut group.subgroups[chosen]) == Stop::Abort {
            return;
        }
        if group.subgroups[chosen].wait != Wait::Ready && !meet(machine, group) {
            return;
        }
        if group.subgroups.iter().all(|subgroup| subgroup.wait == Wait::Ended) {
            count(&mut machine.counts, group);
            idle.push(flying.swap_remove(at));
        }
    }
}

/// Counts a workgroup that has ended.
fn count(counts: &mut Counts, group: &Workgroup) {
    let issues = group.subgroups.iter().map(|subgroup| subgroup.span.issues).sum();
    counts.issues += issues;
    counts.longest = counts.longest.max(issues);
    counts.passed = counts.passed.max(group.shared.barriers);
    counts.working += u64::from(group.shared.wrote);
    for subgroup in &group.subgroups {
        counts.waits = counts.waits.max(subgroup.span.waits);
        counts.turn = counts.turn.max(subgroup.span.turn);
    }
}

/// A number below `total` that has no common divisor with it.
fn coprime(mut from: u32, total: u32) -> u32 {
    let divisor = |mut a: u32, mut b: u32| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    loop {
        from %= total.max(1);
        if divisor(from, total) == 1 || total <= 1 {
            return from;
        }
        from = from.wrapping_add(1);
    }
}

/// Lets a workgroup go on behind a barrier once all its subgroups are there. Returns false if they never will be.
fn meet(machine: &mut Machine<'_>, group: &mut Workgroup) -> bool {
    let mut barrier = None;
    let (mut ended, mut elsewhere) = (None, None);
    for subgroup in &group.subgroups {
        match subgroup.wait {
            Wait::Ready => return true,
            Wait::Ended => ended = Some(subgroup.number),
            Wait::Barrier(at) => match barrier {
                None => barrier = Some(at),
                Some(other) if other != at => elsewhere = Some((subgroup.number, other)),
                Some(_) => {}
            },
        }
    }
    let Some(at) = barrier else { return true };
    let lines = |at: u32| machine.program.barriers[at as usize].line;
    let line = lines(at);
    let trouble = match (ended, elsewhere) {
        (Some(subgroup), _) => Some((subgroup, 0, "a barrier that a subgroup does not reach before it ends")),
        (_, Some((subgroup, other))) => Some((subgroup, lines(other), "a barrier while a subgroup is at another")),
        (None, None) => None,
    };
    if let Some((subgroup, other, detail)) = trouble {
        let lane = subgroup * machine.width as u32;
        let workgroup = group.shared.number;
        machine.fault(Raw { fault: Fault::NonUniform, line, other, workgroup, lane, detail: detail.into() });
        return false;
    }
    let barrier = machine.program.barriers[at as usize];
    group.shared.storage_phase += u32::from(barrier.storage);
    group.shared.workgroup_phase += u32::from(barrier.workgroup);
    machine.counts.barriers += 1;
    group.shared.barriers += 1;
    machine.pairs.insert((group.shared.passed, at + 1));
    group.shared.passed = at + 1;
    for subgroup in &mut group.subgroups {
        subgroup.wait = Wait::Ready;
    }
    true
}
