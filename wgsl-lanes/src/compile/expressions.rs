//! Code for expressions. Composing and taking apart costs nothing: it only renames registers.

use std::rc::Rc;

use naga::{
    BinaryOperator as Wgsl, Expression, Handle, MathFunction, RelationalFunction, ScalarKind, TypeInner, UnaryOperator,
};

use super::{Compiler, Frame, Pointer, Value, types};
use crate::program::{Access, Binary, Length, Memory, Op, Pick, Reg, Step, Unary};

/// The kind of scalar of a scalar, a vector or an atomic.
fn kind(inner: &TypeInner) -> ScalarKind {
    match inner {
        TypeInner::Scalar(scalar) | TypeInner::Vector { scalar, .. } | TypeInner::Atomic(scalar) => scalar.kind,
        other => panic!("wanted a scalar or a vector, found {other:?}"),
    }
}

impl<'m> Compiler<'m> {
    pub(super) fn inner(&self, frame: &Frame<'m>, handle: Handle<Expression>) -> &'m TypeInner {
        frame.info[handle].ty.inner_with(&self.module.types)
    }

    pub(super) fn kind(&self, frame: &Frame<'m>, handle: Handle<Expression>) -> ScalarKind {
        kind(self.inner(frame, handle))
    }

    /// The registers of an expression that is no pointer.
    pub(super) fn regs(&mut self, frame: &mut Frame<'m>, handle: Handle<Expression>) -> Rc<[Reg]> {
        match self.value(frame, handle) {
            Value::Regs(regs) => regs,
            Value::Pointer(_) => panic!("wanted a value, found a pointer"),
        }
    }

    pub(super) fn reg(&mut self, frame: &mut Frame<'m>, handle: Handle<Expression>) -> Reg {
        self.regs(frame, handle)[0]
    }

    pub(super) fn pointer(&mut self, frame: &mut Frame<'m>, handle: Handle<Expression>) -> Rc<Pointer> {
        match self.value(frame, handle) {
            Value::Pointer(pointer) => pointer,
            Value::Regs(_) => panic!("wanted a pointer, found a value"),
        }
    }

    /// The value of an expression that was emitted, or that needs no code.
    pub(super) fn value(&mut self, frame: &mut Frame<'m>, handle: Handle<Expression>) -> Value {
        if let Some(value) = &frame.values[handle.index()] {
            return value.clone();
        }
        let expression = &frame.function.expressions[handle];
        let value = match expression {
            Expression::Literal(literal) => Value::Regs([self.literal(*literal)].into()),
            Expression::Constant(constant) => {
                Value::Regs(self.global_value(self.module.constants[*constant].init).into())
            }
            Expression::ZeroValue(ty) => {
                let count = types::scalars(self.module, &self.module.types[*ty].inner);
                Value::Regs(vec![self.constant(0); count as usize].into())
            }
            Expression::Compose { components, .. } => {
                let parts: Vec<Rc<[Reg]>> = components.iter().map(|&part| self.regs(frame, part)).collect();
                Value::Regs(parts.concat().into())
            }
            Expression::Splat { size, value } => Value::Regs(vec![self.reg(frame, *value); *size as usize].into()),
            Expression::Swizzle { size, vector, pattern } => {
                let from = self.regs(frame, *vector);
                Value::Regs(pattern[..*size as usize].iter().map(|&part| from[part as usize]).collect())
            }
            Expression::FunctionArgument(index) => frame.arguments[*index as usize].clone(),
            Expression::GlobalVariable(variable) => {
                let (memory, base) = self.globals[variable];
                let buffer = matches!(memory, Memory::Binding(_));
                Value::Pointer(Rc::new(Pointer { memory, buffer, base, steps: Vec::new() }))
            }
            Expression::LocalVariable(variable) => {
                let base = frame.locals[variable.index()];
                Value::Pointer(Rc::new(Pointer { memory: Memory::Local, buffer: false, base, steps: Vec::new() }))
            }
            Expression::AccessIndex { base, index } => self.access_index(frame, *base, *index),
            other => panic!("used before its value was made: {other:?}"),
        };
        frame.values[handle.index()] = Some(value.clone());
        value
    }

    /// Makes code for an expression at the place where the module emits it.
    pub(super) fn emit(&mut self, frame: &mut Frame<'m>, handle: Handle<Expression>) {
        let line = self.line(frame.function.expressions.get_span(handle));
        let value = match &frame.function.expressions[handle] {
            Expression::Access { base, index } => self.access(frame, *base, *index, line),
            Expression::Load { pointer } => Value::Regs(self.load(frame, *pointer, line).into()),
            Expression::Unary { op, expr } => {
                let op = match (op, self.kind(frame, *expr)) {
                    (UnaryOperator::Negate, ScalarKind::Float) => Unary::NegF,
                    (UnaryOperator::Negate, _) => Unary::NegI,
                    (UnaryOperator::LogicalNot, _) => Unary::NotBool,
                    (UnaryOperator::BitwiseNot, _) => Unary::NotBits,
                };
                let from = self.regs(frame, *expr);
                Value::Regs(self.each(op, &from))
            }
            Expression::Binary { op, left, right } => self.binary(frame, *op, *left, *right),
            Expression::Select { condition, accept, reject } => {
                let when = self.regs(frame, *condition);
                let (yes, no) = (self.regs(frame, *accept), self.regs(frame, *reject));
                let to = self.take(yes.len() as u32);
                for i in 0..to.len() {
                    let when = when[i.min(when.len() - 1)];
                    self.program.ops.push(Op::Select { to: to[i], when, yes: yes[i], no: no[i] });
                }
                Value::Regs(to.into())
            }
            Expression::Relational { fun, argument } => {
                let from = self.regs(frame, *argument);
                let op = match fun {
                    RelationalFunction::All => Binary::And,
                    RelationalFunction::Any => Binary::Or,
                    other => panic!("no code for {other:?}"),
                };
                Value::Regs([self.fold(op, &from)].into())
            }
            Expression::Math { fun, arg, arg1, arg2, arg3 } => {
                let more: Vec<Rc<[Reg]>> =
                    [arg1, arg2, arg3].into_iter().flatten().map(|&more| self.regs(frame, more)).collect();
                let kind = self.kind(frame, *arg);
                let first = self.regs(frame, *arg);
                Value::Regs(self.math(*fun, kind, &first, &more))
            }
            Expression::As { expr, kind: to, convert } => {
                let (from, to, regs) = (self.kind(frame, *expr), *to, self.regs(frame, *expr));
                match (from, to, convert) {
                    (_, _, None) => Value::Regs(regs),
                    (a, b, Some(_)) if a == b => Value::Regs(regs),
                    (_, _, Some(_)) => Value::Regs(self.convert(from, to, &regs)),
                }
            }
            Expression::ArrayLength(pointer) => {
                let TypeInner::Pointer { base, .. } = self.inner(frame, *pointer) else {
                    panic!("wanted a pointer to an array");
                };
                let stride = types::part(self.module, &self.module.types[*base].inner, 0, true).stride;
                let pointer = self.pointer(frame, *pointer);
                let Memory::Binding(binding) = pointer.memory else { panic!("wanted an array in a buffer") };
                let to = self.take(1)[0];
                self.program.ops.push(Op::Length { to, binding, first: pointer.base, stride });
                Value::Regs([to].into())
            }
            // The rest needs no code.
            _ => self.value(frame, handle),
        };
        frame.values[handle.index()] = Some(value);
    }

    fn each(&mut self, op: Unary, from: &[Reg]) -> Rc<[Reg]> {
        let to = self.take(from.len() as u32);
        for (&to, &from) in to.iter().zip(from) {
            self.program.ops.push(Op::Unary(op, to, from));
        }
        to.into()
    }

    fn pairs(&mut self, op: Binary, left: &[Reg], right: &[Reg]) -> Rc<[Reg]> {
        let to = self.take(left.len().max(right.len()) as u32);
        for (i, &to) in to.iter().enumerate() {
            let (a, b) = (left[i.min(left.len() - 1)], right[i.min(right.len() - 1)]);
            self.program.ops.push(Op::Binary(op, to, a, b));
        }
        to.into()
    }

    fn fold(&mut self, op: Binary, from: &[Reg]) -> Reg {
        let mut sum = from[0];
        for &next in &from[1..] {
            sum = self.pairs(op, &[sum], &[next])[0];
        }
        sum
    }

    fn convert(&mut self, from: ScalarKind, to: ScalarKind, regs: &[Reg]) -> Rc<[Reg]> {
        use ScalarKind::{Bool, Float, Sint, Uint};
        let op = match (from, to) {
            (Sint, Uint) | (Uint, Sint) | (Bool, Sint | Uint) => return regs.into(),
            (Uint, Float) => Unary::UToF,
            (Sint, Float) => Unary::IToF,
            (Float, Uint) => Unary::FToU,
            (Float, Sint) => Unary::FToI,
            (Sint | Uint, Bool) => Unary::ToBool,
            (Float, Bool) => Unary::FToBool,
            (Bool, Float) => Unary::BoolToF,
            other => panic!("no code for the conversion {other:?}"),
        };
        self.each(op, regs)
    }

    fn binary(
        &mut self,
        frame: &mut Frame<'m>,
        op: Wgsl,
        left: Handle<Expression>,
        right: Handle<Expression>,
    ) -> Value {
        use ScalarKind::{Float, Sint};
        let kind = self.kind(frame, left);
        let (mut a, mut b) = (self.regs(frame, left), self.regs(frame, right));
        if matches!(op, Wgsl::Greater | Wgsl::GreaterEqual) {
            std::mem::swap(&mut a, &mut b);
        }
        let op = match (op, kind) {
            (Wgsl::Add, Float) => Binary::AddF,
            (Wgsl::Add, _) => Binary::AddI,
            (Wgsl::Subtract, Float) => Binary::SubF,
            (Wgsl::Subtract, _) => Binary::SubI,
            (Wgsl::Multiply, Float) => Binary::MulF,
            (Wgsl::Multiply, _) => Binary::MulI,
            (Wgsl::Divide, Float) => Binary::DivF,
            (Wgsl::Divide, Sint) => Binary::DivI,
            (Wgsl::Divide, _) => Binary::DivU,
            (Wgsl::Modulo, Float) => Binary::ModF,
            (Wgsl::Modulo, Sint) => Binary::ModI,
            (Wgsl::Modulo, _) => Binary::ModU,
            (Wgsl::Equal, Float) => Binary::EqF,
            (Wgsl::Equal, _) => Binary::Eq,
            (Wgsl::NotEqual, Float) => Binary::NeF,
            (Wgsl::NotEqual, _) => Binary::Ne,
            (Wgsl::Less | Wgsl::Greater, Float) => Binary::LtF,
            (Wgsl::Less | Wgsl::Greater, Sint) => Binary::LtI,
            (Wgsl::Less | Wgsl::Greater, _) => Binary::LtU,
            (Wgsl::LessEqual | Wgsl::GreaterEqual, Float) => Binary::LeF,
            (Wgsl::LessEqual | Wgsl::GreaterEqual, Sint) => Binary::LeI,
            (Wgsl::LessEqual | Wgsl::GreaterEqual, _) => Binary::LeU,
            (Wgsl::And | Wgsl::LogicalAnd, _) => Binary::And,
            (Wgsl::InclusiveOr | Wgsl::LogicalOr, _) => Binary::Or,
            (Wgsl::ExclusiveOr, _) => Binary::Xor,
            (Wgsl::ShiftLeft, _) => Binary::Shl,
            (Wgsl::ShiftRight, Sint) => Binary::ShrI,
            (Wgsl::ShiftRight, _) => Binary::ShrU,
        };
        Value::Regs(self.pairs(op, &a, &b))
    }

    fn math(&mut self, fun: MathFunction, kind: ScalarKind, first: &[Reg], more: &[Rc<[Reg]>]) -> Rc<[Reg]> {
        use ScalarKind::{Float, Sint, Uint};
        let min = match kind {
            Float => Binary::MinF,
            Sint => Binary::MinI,
            _ => Binary::MinU,
        };
        let max = match kind {
            Float => Binary::MaxF,
            Sint => Binary::MaxI,
            _ => Binary::MaxU,
        };
        let one = match (fun, kind) {
            (MathFunction::Abs, Float) => Unary::AbsF,
            (MathFunction::Abs, Sint) => Unary::AbsI,
            (MathFunction::Abs, Uint) => return first.into(),
            (MathFunction::Sign, Float) => Unary::SignF,
            (MathFunction::Sign, _) => Unary::SignI,
            (MathFunction::Ceil, _) => Unary::Ceil,
            (MathFunction::Floor, _) => Unary::Floor,
            (MathFunction::Round, _) => Unary::Round,
            (MathFunction::Trunc, _) => Unary::Trunc,
            (MathFunction::Fract, _) => Unary::Fract,
            (MathFunction::Sqrt, _) => Unary::Sqrt,
            (MathFunction::InverseSqrt, _) => Unary::InverseSqrt,
            (MathFunction::Exp, _) => Unary::Exp,
            (MathFunction::Exp2, _) => Unary::Exp2,
            (MathFunction::Log, _) => Unary::Log,
            (MathFunction::Log2, _) => Unary::Log2,
            (MathFunction::CountOneBits, _) => Unary::CountOneBits,
            (MathFunction::CountTrailingZeros, _) => Unary::CountTrailingZeros,
            (MathFunction::CountLeadingZeros, _) => Unary::CountLeadingZeros,
            (MathFunction::ReverseBits, _) => Unary::ReverseBits,
            (MathFunction::FirstTrailingBit, _) => Unary::FirstTrailingBit,
            (MathFunction::FirstLeadingBit, Sint) => Unary::FirstLeadingBitI,
            (MathFunction::FirstLeadingBit, _) => Unary::FirstLeadingBitU,
            (MathFunction::Min, _) => return self.pairs(min, first, &more[0]),
            (MathFunction::Max, _) => return self.pairs(max, first, &more[0]),
            (MathFunction::Pow, _) => return self.pairs(Binary::Pow, first, &more[0]),
            (MathFunction::Clamp, _) => {
                let low = self.pairs(max, first, &more[0]);
                return self.pairs(min, &low, &more[1]);
            }
            (MathFunction::Dot, _) => {
                let (times, plus) =
                    if kind == Float { (Binary::MulF, Binary::AddF) } else { (Binary::MulI, Binary::AddI) };
                let products = self.pairs(times, first, &more[0]);
                return [self.fold(plus, &products)].into();
            }
            (MathFunction::Fma, Float) => {
                let to = self.take(first.len() as u32);
                for (i, &to) in to.iter().enumerate() {
                    self.program.ops.push(Op::Fused(to, [first[i], more[0][i], more[1][i]]));
                }
                return to.into();
            }
            (other, _) => panic!("no code for the function {other:?}"),
        };
        self.each(one, first)
    }

    /// A part with a number of a value or of the memory behind a pointer.
    fn access_index(&mut self, frame: &mut Frame<'m>, base: Handle<Expression>, index: u32) -> Value {
        let inner = self.inner(frame, base);
        match self.value(frame, base) {
            Value::Regs(regs) => {
                let at = types::part(self.module, inner, index, false).at as usize;
                let size = match inner {
                    TypeInner::Vector { .. } => 1,
                    TypeInner::Array { base, .. } => types::scalars(self.module, &self.module.types[*base].inner),
                    TypeInner::Struct { members, .. } => {
                        types::scalars(self.module, &self.module.types[members[index as usize].ty].inner)
                    }
                    other => panic!("no parts of {other:?}"),
                };
                Value::Regs(regs[at..at + size as usize].into())
            }
            Value::Pointer(pointer) => {
                let mut pointer = (*pointer).clone();
                pointer.base += self.part_behind(inner, index, pointer.buffer).at;
                Value::Pointer(Rc::new(pointer))
            }
        }
    }

    /// A part of what a pointer of type `inner` points to.
    fn part_behind(&self, inner: &TypeInner, index: u32, buffer: bool) -> types::Part {
        match inner {
            TypeInner::Pointer { base, .. } => types::part(self.module, &self.module.types[*base].inner, index, buffer),
            TypeInner::ValuePointer { size: Some(size), .. } => {
                types::Part { at: index, stride: 1, count: Some(*size as u32) }
            }
            other => panic!("wanted a pointer with parts, found {other:?}"),
        }
    }

    /// A part that only the running code knows.
    fn access(
        &mut self,
        frame: &mut Frame<'m>,
        base: Handle<Expression>,
        index: Handle<Expression>,
        line: u32,
    ) -> Value {
        let inner = self.inner(frame, base);
        let index = self.reg(frame, index);
        match self.value(frame, base) {
            Value::Regs(from) => {
                let part = types::part(self.module, inner, 0, false);
                let to = self.take(part.stride);
                let pick = Pick { index, from: from.to_vec(), to: to.clone(), line };
                self.program.picks.push(pick);
                self.program.ops.push(Op::Pick(self.program.picks.len() as u32 - 1));
                Value::Regs(to.into())
            }
            Value::Pointer(pointer) => {
                let part = self.part_behind(inner, 0, pointer.buffer);
                let mut pointer = (*pointer).clone();
                let length = match part.count {
                    Some(count) => Length::Fixed(count),
                    None => Length::Runtime { first: pointer.base },
                };
                pointer.steps.push(Step { index, stride: part.stride, length });
                Value::Pointer(Rc::new(pointer))
            }
        }
    }

    /// What a pointer points to: its words, and whether it is atomic.
    pub(super) fn pointee(&self, frame: &Frame<'m>, handle: Handle<Expression>, buffer: bool) -> (Vec<u32>, bool) {
        match self.inner(frame, handle) {
            TypeInner::Pointer { base, .. } => {
                let inner = &self.module.types[*base].inner;
                (types::words(self.module, inner, buffer), matches!(inner, TypeInner::Atomic(_)))
            }
            TypeInner::ValuePointer { size, .. } => ((0..size.map_or(1, |size| size as u32)).collect(), false),
            other => panic!("wanted a pointer, found {other:?}"),
        }
    }

    /// Code that loads what a pointer points to.
    pub(super) fn load(&mut self, frame: &mut Frame<'m>, handle: Handle<Expression>, line: u32) -> Vec<Reg> {
        let pointer = self.pointer(frame, handle);
        let (words, atomic) = self.pointee(frame, handle, pointer.buffer);
        let to = self.take(words.len() as u32);
        if pointer.memory == Memory::Local && pointer.steps.is_empty() {
            for (&to, word) in to.iter().zip(words) {
                self.program.ops.push(Op::Copy { to, from: pointer.base + word });
            }
            return to;
        }
        let access = self.reach(&pointer, words, to.clone(), atomic, line);
        self.program.accesses.push(access);
        self.program.ops.push(Op::Load(self.program.accesses.len() as u32 - 1));
        to
    }

    pub(super) fn reach(&self, pointer: &Pointer, words: Vec<u32>, regs: Vec<Reg>, atomic: bool, line: u32) -> Access {
        let Pointer { memory, base, ref steps, .. } = *pointer;
        Access { memory, base, steps: steps.clone(), words, regs, atomic, line }
    }
}
