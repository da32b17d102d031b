//! Code for statements.

use naga::{
    AtomicFunction, Block, CollectiveOperation, Expression, GatherMode, Handle, ScalarKind, Span, Statement,
    SubgroupOperation, SwitchValue,
};

use super::{Compiler, Frame, Mutation, Value, types};
use crate::program::{Atomic, AtomicOp, Barrier, Case, Fold, Memory, Op, Over, Reg, Subgroup, SubgroupOp, Target};

impl<'m> Compiler<'m> {
    /// Code for a block. Where no lane goes on, the code goes on at `join`.
    pub(super) fn block(&mut self, frame: &mut Frame<'m>, block: &'m Block, join: Target) {
        let (mark, slots) = (self.next, self.slots);
        for (statement, &span) in block.span_iter() {
            self.statement(frame, statement, span, join);
        }
        (self.next, self.slots) = (mark, slots);
    }

    fn statement(&mut self, frame: &mut Frame<'m>, statement: &'m Statement, span: Span, join: Target) {
        let line = self.line(span);
        match statement {
            Statement::Emit(range) => {
                for handle in range.clone() {
                    self.emit(frame, handle);
                }
            }
            Statement::Block(block) => self.block(frame, block, join),
            Statement::If { condition, accept, reject } => {
                let when = self.reg(frame, *condition);
                let slot = self.take_slots(2);
                let (otherwise, end) = (self.label(), self.label());
                self.program.ops.push(Op::If { when, slot, otherwise });
                self.block(frame, accept, otherwise);
                self.put(otherwise);
                self.program.ops.push(Op::Else { slot, end });
                self.block(frame, reject, end);
                self.put(end);
                self.program.ops.push(Op::EndIf { slot, join });
            }
            Statement::Switch { selector, cases } => self.switch(frame, *selector, cases, join),
            Statement::Loop { body, continuing, break_if } => {
                // The continuing block sees what the body has made, so both are one scope.
                let mark = (self.next, self.slots);
                let slot = self.take_slots(2);
                let (head, on, end) = (self.label(), self.label(), self.label());
                self.program.ops.push(Op::LoopBegin { slot });
                self.put(head);
                frame.loops.push(slot);
                frame.breaks.push(slot);
                for (statement, &span) in body.span_iter() {
                    self.statement(frame, statement, span, on);
                }
                frame.loops.pop();
                frame.breaks.pop();
                self.put(on);
                self.program.ops.push(Op::Continuing { slot, end });
                for (statement, &span) in continuing.span_iter() {
                    self.statement(frame, statement, span, end);
                }
                if let Some(when) = break_if {
                    let when = self.reg(frame, *when);
                    self.program.ops.push(Op::BreakIf { slot, when });
                }
                self.program.ops.push(Op::LoopBack { head });
                self.put(end);
                self.program.ops.push(Op::LoopEnd { slot, join });
                (self.next, self.slots) = mark;
            }
            Statement::Break => {
                let slot = *frame.breaks.last().unwrap_or_else(|| panic!("a break outside of loops"));
                self.program.ops.push(Op::Break { slot, join });
            }
            Statement::Continue => {
                let slot = *frame.loops.last().unwrap_or_else(|| panic!("a continue outside of loops"));
                self.program.ops.push(Op::Continue { slot, join });
            }
            Statement::Return { value } => {
                if let Some(value) = value {
                    let from = self.regs(frame, *value);
                    for (&to, &from) in frame.result.iter().zip(from.iter()) {
                        self.program.ops.push(Op::Move { to, from });
                    }
                }
                self.program.ops.push(Op::Return { slot: frame.returned, join });
            }
            Statement::ControlBarrier(flags) => {
                let mut storage = flags.contains(naga::Barrier::STORAGE);
                let mut workgroup = flags.contains(naga::Barrier::WORK_GROUP);
                match self.mutation {
                    Some(Mutation::Remove(at)) if at == span => return,
                    Some(Mutation::Narrow(at)) if at == span => (storage, workgroup) = (false, true),
                    _ => {}
                }
                assert!(storage || workgroup, "no code for the barrier {flags:?}");
                self.barrier(Barrier { storage, workgroup, line });
            }
            Statement::Store { pointer, value } => self.store(frame, *pointer, *value, line),
            Statement::Atomic { pointer, fun, value, result } => {
                let plain = self.mutation == Some(Mutation::Plain(span));
                self.atomic(frame, *pointer, fun, *value, *result, plain, line);
            }
            Statement::WorkGroupUniformLoad { pointer, result } => {
                let around = Barrier { storage: false, workgroup: true, line };
                let demoted = self.mutation == Some(Mutation::Demote(span));
                if !demoted {
                    self.barrier(around);
                }
                let to = self.load(frame, *pointer, line);
                frame.values[result.index()] = Some(Value::Regs(to.into()));
                if !demoted {
                    self.barrier(around);
                }
            }
            Statement::Call { function, arguments, result } => {
                let arguments = arguments.iter().map(|&argument| self.value(frame, argument)).collect();
                let called = &self.module.functions[*function];
                let size = called
                    .result
                    .as_ref()
                    .map_or(0, |result| types::scalars(self.module, &self.module.types[result.ty].inner));
                let to = self.take(size);
                if let Some(result) = result {
                    frame.values[result.index()] = Some(Value::Regs(to.clone().into()));
                }
                self.function(called, &self.info[*function], arguments, to, join);
            }
            Statement::SubgroupBallot { result, predicate } => {
                let from = match predicate {
                    Some(predicate) => self.reg(frame, *predicate),
                    None => self.constant(1),
                };
                let to = self.take(4);
                frame.values[result.index()] = Some(Value::Regs(to.clone().into()));
                self.subgroup(Subgroup { op: SubgroupOp::Ballot, from: vec![from], to, line });
            }
            Statement::SubgroupGather { mode, argument, result } => {
                let op = match mode {
                    GatherMode::BroadcastFirst => SubgroupOp::First,
                    GatherMode::Broadcast(lane) => SubgroupOp::Broadcast(self.reg(frame, *lane)),
                    GatherMode::Shuffle(lane) => SubgroupOp::Shuffle(self.reg(frame, *lane)),
                    GatherMode::ShuffleDown(by) => SubgroupOp::ShuffleDown(self.reg(frame, *by)),
                    GatherMode::ShuffleUp(by) => SubgroupOp::ShuffleUp(self.reg(frame, *by)),
                    GatherMode::ShuffleXor(by) => SubgroupOp::ShuffleXor(self.reg(frame, *by)),
                    other => panic!("no code for {other:?}"),
                };
                self.subgroup_value(frame, op, *argument, *result, line);
            }
            Statement::SubgroupCollectiveOperation { op, collective_op, argument, result } => {
                use ScalarKind::{Float, Sint};
                let fold = match (op, self.kind(frame, *argument)) {
                    (SubgroupOperation::All, _) => Fold::All,
                    (SubgroupOperation::Any, _) => Fold::Any,
                    (SubgroupOperation::Add, Float) => Fold::AddF,
                    (SubgroupOperation::Add, _) => Fold::AddI,
                    (SubgroupOperation::Min, Sint) => Fold::MinI,
                    (SubgroupOperation::Max, Sint) => Fold::MaxI,
                    (SubgroupOperation::Min, ScalarKind::Uint) => Fold::MinU,
                    (SubgroupOperation::Max, ScalarKind::Uint) => Fold::MaxU,
                    (SubgroupOperation::And, _) => Fold::And,
                    (SubgroupOperation::Or, _) => Fold::Or,
                    (SubgroupOperation::Xor, _) => Fold::Xor,
                    other => panic!("no code for {other:?}"),
                };
                let over = match collective_op {
                    CollectiveOperation::Reduce => Over::All,
                    CollectiveOperation::ExclusiveScan => Over::Before,
                    CollectiveOperation::InclusiveScan => Over::UpToThis,
                };
                self.subgroup_value(frame, SubgroupOp::Fold(fold, over), *argument, *result, line);
            }
            other => panic!("no code for the statement {other:?}"),
        }
    }

    fn barrier(&mut self, barrier: Barrier) {
        self.program.barriers.push(barrier);
        self.program.ops.push(Op::Barrier(self.program.barriers.len() as u32 - 1));
    }

    fn subgroup(&mut self, subgroup: Subgroup) {
        self.program.subgroups.push(subgroup);
        self.program.ops.push(Op::Subgroup(self.program.subgroups.len() as u32 - 1));
    }

    fn subgroup_value(
        &mut self,
        frame: &mut Frame<'m>,
        op: SubgroupOp,
        argument: Handle<Expression>,
        result: Handle<Expression>,
        line: u32,
    ) {
        let from = self.regs(frame, argument).to_vec();
        let to = self.take(from.len() as u32);
        frame.values[result.index()] = Some(Value::Regs(to.clone().into()));
        self.subgroup(Subgroup { op, from, to, line });
    }

    fn store(&mut self, frame: &mut Frame<'m>, handle: Handle<Expression>, value: Handle<Expression>, line: u32) {
        let pointer = self.pointer(frame, handle);
        let (words, atomic) = self.pointee(frame, handle, pointer.buffer);
        let from = self.regs(frame, value);
        if pointer.memory == Memory::Local && pointer.steps.is_empty() {
            for (&from, word) in from.iter().zip(words) {
                self.program.ops.push(Op::Move { to: pointer.base + word, from });
            }
            return;
        }
        let access = self.reach(&pointer, words, from.to_vec(), atomic, line);
        self.program.accesses.push(access);
        self.program.ops.push(Op::Store(self.program.accesses.len() as u32 - 1));
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of the statement")]
    fn atomic(
        &mut self,
        frame: &mut Frame<'m>,
        pointer: Handle<Expression>,
        fun: &AtomicFunction,
        value: Handle<Expression>,
        result: Option<Handle<Expression>>,
        plain: bool,
        line: u32,
    ) {
        let kind = self.kind(frame, value);
        let op = match (fun, kind) {
            (AtomicFunction::Add, ScalarKind::Float) => AtomicOp::AddF,
            (AtomicFunction::Add, _) => AtomicOp::Add,
            (AtomicFunction::Subtract, ScalarKind::Sint | ScalarKind::Uint) => AtomicOp::Sub,
            (AtomicFunction::And, _) => AtomicOp::And,
            (AtomicFunction::InclusiveOr, _) => AtomicOp::Or,
            (AtomicFunction::ExclusiveOr, _) => AtomicOp::Xor,
            (AtomicFunction::Min, ScalarKind::Uint) => AtomicOp::MinU,
            (AtomicFunction::Max, ScalarKind::Uint) => AtomicOp::MaxU,
            (AtomicFunction::Min, ScalarKind::Sint) => AtomicOp::MinI,
            (AtomicFunction::Max, ScalarKind::Sint) => AtomicOp::MaxI,
            (AtomicFunction::Exchange { compare: None }, _) => AtomicOp::Exchange,
            (AtomicFunction::Exchange { compare: Some(compare) }, _) => {
                AtomicOp::CompareExchange(self.reg(frame, *compare))
            }
            other => panic!("no code for the atomic operation {other:?}"),
        };
        let value = self.reg(frame, value);
        let at = self.pointer(frame, pointer);
        let exchanged = matches!(op, AtomicOp::CompareExchange(_));
        let to: Vec<Reg> = match result {
            Some(_) => self.take(if exchanged { 2 } else { 1 }),
            None => Vec::new(),
        };
        if let Some(result) = result {
            frame.values[result.index()] = Some(Value::Regs(to.clone().into()));
            if frame.info[result].ref_count > 0 && !self.program.used_results.contains(&line) {
                self.program.used_results.push(line);
            }
        }
        let access = self.reach(&at, vec![0], Vec::new(), !plain, line);
        self.program.atomics.push(Atomic { op, access, value, to, plain });
        self.program.ops.push(Op::Atomic(self.program.atomics.len() as u32 - 1));
    }

    fn switch(
        &mut self,
        frame: &mut Frame<'m>,
        selector: Handle<Expression>,
        cases: &'m [naga::SwitchCase],
        join: Target,
    ) {
        let selector = self.reg(frame, selector);
        let slot = self.take_slots(2);
        let end = self.label();
        let value = |case: &naga::SwitchCase| match case.value {
            SwitchValue::I32(value) => Some(value as u32),
            SwitchValue::U32(value) => Some(value),
            SwitchValue::Default => None,
        };
        let all: Vec<u32> = cases.iter().filter_map(value).collect();
        self.program.ops.push(Op::SwitchBegin { slot });
        frame.breaks.push(slot);
        let mut held: Vec<Option<u32>> = Vec::new();
        for case in cases {
            held.push(value(case));
            if case.fall_through {
                assert!(case.body.is_empty(), "no code for a case that falls through");
                continue;
            }
            let default = held.contains(&None);
            let mine: Vec<u32> = held.drain(..).flatten().collect();
            // The default case takes all that no other case takes.
            let values =
                if default { all.iter().copied().filter(|value| !mine.contains(value)).collect() } else { mine };
            self.program.cases.push(Case { selector, values, default });
            let (out, next) = (self.label(), self.label());
            self.program.ops.push(Op::Case { slot, case: self.program.cases.len() as u32 - 1, next });
            self.block(frame, &case.body, out);
            self.put(out);
            self.program.ops.push(Op::EndCase { slot });
            self.put(next);
        }
        frame.breaks.pop();
        self.put(end);
        self.program.ops.push(Op::SwitchEnd { slot, join });
    }
}
