//! Shadow memory: who read and wrote each word, as far as a later access may conflict with it.
//!
//! Two accesses to one word conflict if they are of different invocations, one of them is a plain write, and no barrier lies between them:
//! no barrier orders two workgroups, and within one a barrier begins a new phase. Accesses of one invocation are ordered. Lanes of one
//! subgroup are not.

/// An access for the shadow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Who {
    /// The workgroup's number plus one.
    pub(super) group: u32,
    /// The barriers of this kind of memory that the workgroup has passed.
    pub(super) phase: u32,
    /// The invocation in its workgroup.
    pub(super) lane: u16,
    pub(super) line: u16,
}

/// The kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    Read,
    Write,
    Atomic,
}

/// A word's last plain writer, readers and atomic accesses: for each the workgroup (0: none), the phase, and invocation and line. Zero is
/// "never touched", so a fresh shadow costs only the pages that are used.
pub(super) type Cell = [u32; 9];

const WRITER: usize = 0;
const READERS: usize = 3;
const ATOMICS: usize = 6;
/// Stands for several workgroups, or several invocations.
const SEVERAL: u32 = u32::MAX;
const SEVERAL_LANES: u16 = u16::MAX;

pub(super) fn fresh(words: usize) -> Vec<Cell> {
    vec![[0; 9]; words]
}

fn lane_of(entry: u32) -> u16 {
    (entry >> 16) as u16
}

/// True if an access noted in `cell[at..]` and `who` have no order.
fn conflicts(cell: &Cell, at: usize, who: Who) -> bool {
    let group = cell[at];
    if group == 0 {
        return false;
    }
    group != who.group || (cell[at + 1] == who.phase && lane_of(cell[at + 2]) != who.lane)
}

/// Notes an access that others may share.
fn join(cell: &mut Cell, at: usize, who: Who) {
    let entry = u32::from(who.lane) << 16 | u32::from(who.line);
    match cell[at] {
        0 => cell[at..at + 3].copy_from_slice(&[who.group, who.phase, entry]),
        group if group == who.group => {
            if cell[at + 1] != who.phase {
                cell[at + 1] = who.phase;
                cell[at + 2] = entry;
            } else if lane_of(cell[at + 2]) != who.lane {
                cell[at + 2] = u32::from(SEVERAL_LANES) << 16 | (cell[at + 2] & 0xffff);
            }
        }
        _ => cell[at] = SEVERAL,
    }
}

/// Notes an access. Returns the line of an access that conflicts with it.
pub(super) fn note(cell: &mut Cell, how: How, who: Who) -> Option<u16> {
    let line = |cell: &Cell, at: usize| Some(cell[at + 2] as u16);
    let mut found = None;
    if conflicts(cell, WRITER, who) {
        found = line(cell, WRITER);
    }
    match how {
        How::Read => join(cell, READERS, who),
        How::Atomic => join(cell, ATOMICS, who),
        How::Write => {
            for at in [READERS, ATOMICS] {
                if found.is_none() && conflicts(cell, at, who) {
                    found = line(cell, at);
                }
            }
            let entry = u32::from(who.lane) << 16 | u32::from(who.line);
            cell[WRITER..WRITER + 3].copy_from_slice(&[who.group, who.phase, entry]);
        }
    }
    found
}
