//! Work and span of a subgroup: the operations that it issues, and how often it waits for loads of storage.

use crate::program::{Access, Op, Program, Reg, SubgroupOp};

/// Calls `f` for each lane of `mask`.
#[inline(always)]
pub(super) fn each(mut mask: u64, mut f: impl FnMut(usize)) {
    while mask != 0 {
        f(mask.trailing_zeros() as usize);
        mask &= mask - 1;
    }
}

/// A load of storage is under way until a value that derives from it is used; then all loads of the subgroup have arrived.
#[derive(Debug)]
pub(super) struct Span {
    pub(super) issues: u64,
    pub(super) waits: u64,
    /// The most waits of a turn of an outermost loop, and those of the turn under way.
    pub(super) turn: u64,
    in_turn: u64,
    depth: u32,
    /// The number of waits so far, of earlier workgroups too, plus one.
    epoch: u32,
    /// For each register the epoch of the last load that its value derives from; 0 for none.
    loaded: Vec<u32>,
}

impl Span {
    pub(super) fn new(registers: usize) -> Self {
        Self { issues: 0, waits: 0, turn: 0, in_turn: 0, depth: 0, epoch: 1, loaded: vec![0; registers] }
    }

    /// Begins a workgroup.
    pub(super) fn begin(&mut self) {
        (self.issues, self.waits, self.turn, self.in_turn, self.depth) = (0, 0, 0, 0, 0);
        self.epoch += 1;
    }

    /// Uses values, and waits if one derives from a load that is under way.
    fn uses(&mut self, regs: &[Reg]) {
        if regs.iter().any(|&reg| self.loaded[reg as usize] == self.epoch) {
            self.epoch += 1;
            self.waits += 1;
            self.in_turn += 1;
            self.turn = self.turn.max(self.in_turn);
        }
    }

    fn issue(&mut self, to: &[Reg], from: &[Reg]) {
        self.uses(from);
        self.issues += 1;
        to.iter().for_each(|&to| self.loaded[to as usize] = 0);
    }

    /// Passes a value on; `whole` if nothing of the old one is left.
    fn pass(&mut self, to: Reg, from: Reg, whole: bool) {
        let from = self.loaded[from as usize];
        let to = &mut self.loaded[to as usize];
        *to = if whole { from } else { from.max(*to) };
    }

    /// Any operation but accesses to memory; `whole` if all lanes take part.
    pub(super) fn operation(&mut self, op: Op, program: &Program, whole: bool) {
        match op {
            Op::Unary(_, to, from) => self.issue(&[to], &[from]),
            Op::Binary(_, to, a, b) => self.issue(&[to], &[a, b]),
            Op::Select { to, when, yes, no } => self.issue(&[to], &[when, yes, no]),
            Op::Fused(to, from) => self.issue(&[to], &from),
            Op::Builtin { to, .. } | Op::Length { to, .. } => self.issue(&[to], &[]),
            Op::Copy { to, from } => self.pass(to, from, true),
            Op::Move { to, from } => self.pass(to, from, whole),
            Op::Pick(at) => {
                let pick = &program.picks[at as usize];
                self.uses(&[pick.index]);
                self.issue(&pick.to, &pick.from);
            }
            Op::Subgroup(at) => {
                use SubgroupOp::{Broadcast, Shuffle, ShuffleDown, ShuffleUp, ShuffleXor};
                let op = &program.subgroups[at as usize];
                if let Broadcast(by) | Shuffle(by) | ShuffleDown(by) | ShuffleUp(by) | ShuffleXor(by) = op.op {
                    self.uses(&[by]);
                }
                self.issue(&op.to, &op.from);
            }
            Op::If { when, .. } | Op::BreakIf { when, .. } => self.uses(&[when]),
            Op::Case { case, .. } => self.uses(&[program.cases[case as usize].selector]),
            Op::LoopBegin { .. } => self.depth += 1,
            Op::LoopBack { .. } if self.depth == 1 => self.in_turn = 0,
            Op::LoopEnd { .. } => self.depth -= 1,
            _ => {}
        }
    }

    /// An access to memory outside of registers, which gives values to `to` and takes those of `from`.
    pub(super) fn access(&mut self, access: &Access, [to, from]: [&[Reg]; 2], storage: bool) {
        access.steps.iter().for_each(|step| self.uses(&[step.index]));
        self.issue(to, from);
        if storage {
            to.iter().for_each(|&to| self.loaded[to as usize] = self.epoch);
        }
    }

    /// An access to an array in registers, by the lanes of `mask`.
    pub(super) fn local(&mut self, access: &Access, stores: bool, at: &[u32], mask: u64, whole: bool) {
        access.steps.iter().for_each(|step| self.uses(&[step.index]));
        let first = mask.trailing_zeros() as usize;
        let whole = whole && at.iter().all(|&place| place == at[0]);
        for (&word, &reg) in access.words.iter().zip(&access.regs) {
            each(mask, |lane| match stores {
                true => self.pass(at[lane] + word, reg, whole),
                false => self.pass(reg, at[lane] + word, lane == first),
            });
        }
    }
}
