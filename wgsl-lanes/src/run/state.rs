//! What a dispatch under way consists of: bound memory, workgroups and their subgroups.

use super::{
    shadow::{Cell, fresh},
    span::Span,
};
use crate::program::{Builtin, Program};

/// The most lanes of a subgroup.
pub(super) const MOST: usize = 64;

/// A range of a buffer that is bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// The number in the shader, plus 65,536 times the number of its bind group.
    pub binding: u32,
    /// The position in the list of buffers. One buffer may be bound twice.
    pub buffer: usize,
    /// The first word.
    pub first: usize,
    /// The number of words.
    pub words: usize,
}

/// What a subgroup waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// Nothing.
    Ready,
    /// A barrier, by its position in [`Program::barriers`].
    Barrier(u32),
    /// It has ended.
    Ended,
}

/// Lanes that run together.
#[derive(Debug)]
pub(super) struct Subgroup {
    pub(super) number: u32,
    pub(super) registers: Vec<u32>,
    pub(super) masks: Vec<u64>,
    pub(super) at: usize,
    /// The lanes that run the next operation.
    pub(super) mask: u64,
    /// The lanes that exist.
    pub(super) full: u64,
    pub(super) wait: Wait,
    pub(super) executed: u64,
    pub(super) span: Span,
}

/// A workgroup's memory.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) number: u32,
    pub(super) words: Vec<u32>,
    pub(super) written: Vec<bool>,
    pub(super) shadow: Vec<Cell>,
    pub(super) storage_phase: u32,
    pub(super) workgroup_phase: u32,
    /// The barrier passed last, by its position plus one; 0 before the first.
    pub(super) passed: u32,
    /// The number of barriers passed, and whether a lane wrote storage.
    pub(super) barriers: u64,
    pub(super) wrote: bool,
}

/// A workgroup that runs.
#[derive(Debug)]
pub(super) struct Workgroup {
    pub(super) shared: Shared,
    pub(super) subgroups: Vec<Subgroup>,
}

impl Workgroup {
    /// A workgroup without a number, with room for its registers.
    pub(super) fn new(program: &Program, width: usize) -> Self {
        let invocations = program.invocations() as usize;
        let subgroup = |number: usize| {
            let lanes = (invocations - number * width).min(width);
            let mut registers = vec![0; program.registers.max(program.constants.len() as u32) as usize * width];
            for (reg, &word) in program.constants.iter().enumerate() {
                registers[reg * width..(reg + 1) * width].fill(word);
            }
            let full = if lanes == MOST { u64::MAX } else { (1 << lanes) - 1 };
            let masks = vec![0; program.slots as usize];
            let number = number as u32;
            let span = Span::new(registers.len() / width);
            Subgroup { number, registers, masks, at: 0, mask: full, full, wait: Wait::Ready, executed: 0, span }
        };
        let words = program.workgroup_words as usize;
        let shared = Shared {
            number: 0,
            words: vec![0; words],
            written: vec![false; words],
            shadow: fresh(words),
            storage_phase: 0,
            workgroup_phase: 0,
            passed: 0,
            barriers: 0,
            wrote: false,
        };
        Self { shared, subgroups: (0..invocations.div_ceil(width)).map(subgroup).collect() }
    }

    /// Begins workgroup `number`. Memory keeps what it held, as hardware may, and is unwritten again.
    pub(super) fn begin(&mut self, number: u32) {
        self.shared.number = number;
        self.shared.written.fill(false);
        self.shared.shadow.fill([0; 9]);
        (self.shared.storage_phase, self.shared.workgroup_phase, self.shared.passed) = (0, 0, 0);
        (self.shared.barriers, self.shared.wrote) = (0, false);
        for subgroup in &mut self.subgroups {
            (subgroup.at, subgroup.mask, subgroup.wait, subgroup.executed) = (0, subgroup.full, Wait::Ready, 0);
            subgroup.span.begin();
        }
    }
}

/// A built-in value of a lane.
pub(super) fn builtin(
    what: Builtin,
    size: [u32; 3],
    groups: [u32; 3],
    group: u32,
    subgroup: u32,
    width: u32,
    lane: u32,
) -> u32 {
    let place = |n: u32, of: [u32; 3], axis: u8| match axis {
        0 => n % of[0],
        1 => n / of[0] % of[1],
        _ => n / of[0] / of[1],
    };
    let local = subgroup * width + lane;
    match what {
        Builtin::GlobalId(axis) => place(group, groups, axis) * size[usize::from(axis)] + place(local, size, axis),
        Builtin::LocalId(axis) => place(local, size, axis),
        Builtin::LocalIndex => local,
        Builtin::GroupId(axis) => place(group, groups, axis),
        Builtin::GroupSize(axis) => size[usize::from(axis)],
        Builtin::Groups(axis) => groups[usize::from(axis)],
        Builtin::Subgroups => size.iter().product::<u32>().div_ceil(width),
        Builtin::SubgroupId => subgroup,
        Builtin::SubgroupSize => width,
        Builtin::SubgroupLane => lane,
    }
}
