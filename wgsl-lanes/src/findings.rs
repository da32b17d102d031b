//! What the executor reports: faults, and counts of what the memory had to do.

use std::collections::BTreeMap;

use crate::{files::Files, source::Source};

/// The kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// Two accesses to one word, one of them a plain write, that nothing orders.
    Race,
    /// A barrier or an operation of a subgroup that some invocations do not reach.
    NonUniform,
    /// Memory of the workgroup is read before it was written.
    Poison,
    /// A word outside of the bound range, or an element outside of an array.
    OutOfBounds,
    /// More operations than the budget.
    Endless,
    /// The result depends on the order in which invocations run.
    Order,
}

/// A fault, at lines of the composed text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raw {
    /// What it is.
    pub fault: Fault,
    /// The line, from 1; 0 where there is none.
    pub line: u32,
    /// The line of the other access of a race, else 0.
    pub other: u32,
    /// The number of the workgroup.
    pub workgroup: u32,
    /// The invocation in its workgroup.
    pub lane: u32,
    /// Which word of which binding, or what is not reached.
    pub detail: String,
}

/// A fault of a kernel, at lines of its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What it is.
    pub fault: Fault,
    /// The kernel's name.
    pub kernel: String,
    /// `file:line`, or `line N` of a text of which no file is known.
    pub place: String,
    /// The place of the other access of a race, else empty.
    pub other: String,
    /// The number of the workgroup.
    pub workgroup: u32,
    /// The invocation in its workgroup.
    pub lane: u32,
    /// Which word of which binding, or what is not reached, and the line's text.
    pub detail: String,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { fault, kernel, place, other, workgroup, lane, detail } = self;
        write!(f, "{kernel}: {fault:?} at {place}")?;
        if !other.is_empty() {
            write!(f, " with {other}")?;
        }
        write!(f, ", workgroup {workgroup}, lane {lane}: {detail}")
    }
}

/// What a dispatch asked of the device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Dispatches.
    pub dispatches: u64,
    /// Workgroups.
    pub workgroups: u64,
    /// Workgroups with work: those of which a lane writes storage.
    pub working: u64,
    /// Accesses of a subgroup to storage buffers.
    pub accesses: u64,
    /// Distinct 32-byte sectors of each such access, added up.
    pub sectors: u64,
    /// Distinct 128-byte lines of each such access, added up.
    pub lines: u64,
    /// Atomic operations on words of storage buffers.
    pub atomics: u64,
    /// The most atomic operations on one word in one dispatch.
    pub hottest: u64,
    /// Barriers, each counted once a workgroup.
    pub barriers: u64,
    /// The most barriers that a workgroup of one dispatch passes.
    pub passed: u64,
    /// Operations of subgroups, each counted once for all lanes that take part. Copies, local loads and stores, what only renames values (composing, parts,
    /// swizzles, bitcasts), branches and barriers are none.
    pub issues: u64,
    /// The most issues of one workgroup.
    pub longest: u64,
    /// The most waits of one subgroup in a dispatch. A load of storage, or an atomic operation on it whose result is used, is under way until a value that
    /// derives from it is an operand of an issue, part of an address, decides a branch, or is stored outside of registers. That is one wait, in which all
    /// loads of the subgroup arrive.
    pub waits: u64,
    /// The most waits of one subgroup in one turn of a loop that lies in no other loop; what comes before a loop counts to its first turn,
    /// and what comes behind it to its last.
    pub turn: u64,
}

impl Counts {
    /// Adds those of other dispatches.
    pub fn add(&mut self, other: &Self) {
        self.dispatches += other.dispatches;
        self.workgroups += other.workgroups;
        self.working += other.working;
        self.accesses += other.accesses;
        self.sectors += other.sectors;
        self.lines += other.lines;
        self.atomics += other.atomics;
        self.hottest = self.hottest.max(other.hottest);
        self.barriers += other.barriers;
        self.passed = self.passed.max(other.passed);
        self.issues += other.issues;
        self.longest = self.longest.max(other.longest);
        self.waits = self.waits.max(other.waits);
        self.turn = self.turn.max(other.turn);
    }
}

/// Findings and counts of many dispatches.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The findings, each once.
    pub findings: Vec<Finding>,
    /// The counts of each kernel, by its name.
    pub counts: BTreeMap<String, Counts>,
    /// The kernel's name and the counts of each dispatch, in their order, if [`Options::counting`](crate::Options::counting) says so.
    pub dispatches: Vec<(String, Counts)>,
}

impl Report {
    /// Adds a finding unless one of the same kind at the same places is there. Returns whether it is new.
    pub fn add(&mut self, finding: Finding) -> bool {
        let same = |known: &Finding| {
            (known.fault, &known.kernel, &known.place, &known.other)
                == (finding.fault, &finding.kernel, &finding.place, &finding.other)
                && (known.fault != Fault::Order || known.detail == finding.detail)
        };
        let new = !self.findings.iter().any(same);
        if new {
            self.findings.push(finding);
        }
        new
    }
}

impl Finding {
    /// A fault of `source`, with its places in the files.
    pub(crate) fn of(source: &Source, files: &Files, raw: &Raw) -> Self {
        let &Raw { fault, line, other, workgroup, lane, ref detail } = raw;
        let text = line.checked_sub(1).and_then(|line| source.text.lines().nth(line as usize));
        let detail = text.map_or(detail.clone(), |text| format!("{detail}: `{}`", text.trim()));
        Self {
            fault,
            kernel: source.name.clone(),
            place: files.place(&source.text, line),
            other: files.place(&source.text, other),
            workgroup,
            lane,
            detail,
        }
    }
}
