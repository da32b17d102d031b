//! Makes the executor's code from a module of naga: functions inlined, values in registers, structured control flow as jumps with masks.

mod expressions;
mod statements;
mod types;

use std::{collections::HashMap, rc::Rc};

use naga::{
    AddressSpace, BuiltIn, Expression, Function, Handle, Literal, Module, Span, StorageAccess, TypeInner,
    valid::{FunctionInfo, ModuleInfo},
};

use crate::{
    program::{Builtin, Declared, Memory, Op, Program, Reg, Slot, Step, Target, number},
    source::Source,
};

/// A change of the text, by the statement's span.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mutation {
    /// A barrier is left out.
    Remove(Span),
    /// `workgroupUniformLoad` becomes a plain load.
    Demote(Span),
    /// `storageBarrier` becomes `workgroupBarrier`.
    Narrow(Span),
    /// An atomic operation becomes a read and a write.
    Plain(Span),
}

/// A value while code is made: registers, or a place in memory.
#[derive(Clone, Debug)]
enum Value {
    Regs(Rc<[Reg]>),
    Pointer(Rc<Pointer>),
}

#[derive(Clone, Debug)]
struct Pointer {
    memory: Memory,
    /// Whether words lie as in a buffer.
    buffer: bool,
    base: u32,
    steps: Vec<Step>,
}

/// A function that is being inlined.
struct Frame<'m> {
    function: &'m Function,
    info: &'m FunctionInfo,
    values: Vec<Option<Value>>,
    arguments: Vec<Value>,
    locals: Vec<Reg>,
    result: Vec<Reg>,
    returned: Slot,
    /// The loops around the present statement; and the loops and switches, which `break` leaves.
    loops: Vec<Slot>,
    breaks: Vec<Slot>,
}

struct Compiler<'m> {
    module: &'m Module,
    info: &'m ModuleInfo,
    text: &'m str,
    mutation: Option<Mutation>,
    program: Program,
    known: HashMap<u32, Reg>,
    /// Where each label stands.
    labels: Vec<Target>,
    next: Reg,
    slots: Slot,
    globals: HashMap<Handle<naga::GlobalVariable>, (Memory, u32)>,
}

impl Source {
    /// The code of the text as it is.
    ///
    /// # Panics
    ///
    /// At what the executor has no code for: textures, samplers, matrices, scalars of other sizes than 4 bytes.
    #[must_use]
    pub fn program(&self) -> Program {
        compile(self, None)
    }
}

/// Makes the code of the entry point, with a mutation if there is one.
pub(crate) fn compile(source: &Source, mutation: Option<Mutation>) -> Program {
    // Constants have the first registers, so their number must be known: the first round counts them.
    let counted = compile_with(source, mutation, Vec::new(), false);
    compile_with(source, mutation, counted.constants, true)
}

fn compile_with(source: &Source, mutation: Option<Mutation>, constants: Vec<u32>, last: bool) -> Program {
    let Source { module, info, text, .. } = source;
    let entry = &module.entry_points[0];
    let known = (0..).zip(&constants).map(|(reg, &word)| (word, reg)).collect();
    let mut compiler = Compiler {
        module,
        info,
        text,
        mutation,
        next: constants.len() as Reg,
        program: Program { constants, workgroup_size: entry.workgroup_size, ..Program::default() },
        known,
        labels: Vec::new(),
        slots: 0,
        globals: HashMap::new(),
    };
    let before = compiler.program.constants.len();
    compiler.globals();
    compiler.entry(&entry.function, info.get_entry_point(0));
    assert!(!last || compiler.program.constants.len() == before, "the second round found more constants");
    compiler.finish()
}

impl<'m> Compiler<'m> {
    /// The register of a constant.
    fn constant(&mut self, word: u32) -> Reg {
        if let Some(&reg) = self.known.get(&word) {
            return reg;
        }
        let reg = self.program.constants.len() as Reg;
        self.program.constants.push(word);
        self.known.insert(word, reg);
        reg
    }

    /// The register of a literal.
    fn literal(&mut self, literal: Literal) -> Reg {
        self.constant(match literal {
            Literal::F32(x) => x.to_bits(),
            Literal::U32(x) => x,
            Literal::I32(x) => x as u32,
            Literal::Bool(x) => u32::from(x),
            other => panic!("no code for the literal {other:?}"),
        })
    }

    fn take(&mut self, count: u32) -> Vec<Reg> {
        let first = self.next;
        self.next += count;
        self.program.registers = self.program.registers.max(self.next);
        (first..self.next).collect()
    }

    fn take_slots(&mut self, count: u32) -> Slot {
        let first = self.slots;
        self.slots += count;
        self.program.slots = self.program.slots.max(self.slots);
        first
    }

    fn label(&mut self) -> Target {
        self.labels.push(u32::MAX);
        self.labels.len() as Target - 1
    }

    /// Puts a label in front of the next operation.
    fn put(&mut self, label: Target) {
        self.labels[label as usize] = self.program.ops.len() as Target;
    }

    fn line(&self, span: Span) -> u32 {
        if span.is_defined() { span.location(self.text).line_number } else { 0 }
    }

    /// Gives every global variable its place.
    fn globals(&mut self) {
        for (handle, variable) in self.module.global_variables.iter() {
            let inner = &self.module.types[variable.ty].inner;
            let place = match variable.space {
                AddressSpace::Storage { .. } | AddressSpace::Uniform => {
                    let Some(binding) = variable.binding else {
                        panic!("{:?}: wanted a binding", variable.name);
                    };
                    let writes = matches!(variable.space, AddressSpace::Storage { access } if access.contains(StorageAccess::STORE));
                    self.program.bindings.push(Declared {
                        binding: number(binding.group, binding.binding),
                        name: variable.name.clone().unwrap_or_default(),
                        writes,
                        uniform: variable.space == AddressSpace::Uniform,
                    });
                    (Memory::Binding(self.program.bindings.len() as u32 - 1), 0)
                }
                AddressSpace::WorkGroup => {
                    let at = self.program.workgroup_words;
                    self.program.workgroup_words += types::scalars(self.module, inner);
                    (Memory::Workgroup, at)
                }
                AddressSpace::Private => {
                    let regs = self.take(types::scalars(self.module, inner));
                    let words = match variable.init {
                        Some(init) => self.global_value(init),
                        None => vec![self.constant(0); regs.len()],
                    };
                    for (&to, from) in regs.iter().zip(words) {
                        self.program.ops.push(Op::Copy { to, from });
                    }
                    (Memory::Local, regs.first().copied().unwrap_or(0))
                }
                other => panic!("no code for variables in {other:?}"),
            };
            self.globals.insert(handle, place);
        }
    }

    /// The registers of a constant expression of the module.
    fn global_value(&mut self, handle: Handle<Expression>) -> Vec<Reg> {
        match &self.module.global_expressions[handle] {
            Expression::Literal(literal) => vec![self.literal(*literal)],
            Expression::Constant(constant) => self.global_value(self.module.constants[*constant].init),
            Expression::ZeroValue(ty) => {
                let count = types::scalars(self.module, &self.module.types[*ty].inner);
                vec![self.constant(0); count as usize]
            }
            Expression::Compose { components, .. } => {
                components.iter().flat_map(|&component| self.global_value(component)).collect()
            }
            Expression::Splat { size, value } => self.global_value(*value).repeat(*size as usize),
            other => panic!("no code for the constant {other:?}"),
        }
    }

    fn entry(&mut self, function: &'m Function, info: &'m FunctionInfo) {
        let mut arguments = Vec::new();
        for argument in &function.arguments {
            let mut regs = Vec::new();
            match (&argument.binding, &self.module.types[argument.ty].inner) {
                (Some(binding), inner) => self.builtin(binding, types::scalars(self.module, inner), &mut regs),
                (None, TypeInner::Struct { members, .. }) => {
                    for member in members {
                        let binding =
                            member.binding.as_ref().unwrap_or_else(|| panic!("an argument without a binding"));
                        let count = types::scalars(self.module, &self.module.types[member.ty].inner);
                        self.builtin(binding, count, &mut regs);
                    }
                }
                (None, other) => panic!("no code for an argument of type {other:?}"),
            }
            arguments.push(Value::Regs(regs.into()));
        }
        let end = self.label();
        self.function(function, info, arguments, Vec::new(), end);
        self.put(end);
        self.program.ops.push(Op::Exit);
    }

    fn builtin(&mut self, binding: &naga::Binding, count: u32, regs: &mut Vec<Reg>) {
        let naga::Binding::BuiltIn(builtin) = binding else { panic!("no code for the binding {binding:?}") };
        for (axis, to) in (0..).zip(self.take(count)) {
            let what = match builtin {
                BuiltIn::GlobalInvocationId => Builtin::GlobalId(axis),
                BuiltIn::LocalInvocationId => Builtin::LocalId(axis),
                BuiltIn::LocalInvocationIndex => Builtin::LocalIndex,
                BuiltIn::WorkGroupId => Builtin::GroupId(axis),
                BuiltIn::WorkGroupSize => Builtin::GroupSize(axis),
                BuiltIn::NumWorkGroups => Builtin::Groups(axis),
                BuiltIn::NumSubgroups => Builtin::Subgroups,
                BuiltIn::SubgroupId => Builtin::SubgroupId,
                BuiltIn::SubgroupSize => Builtin::SubgroupSize,
                BuiltIn::SubgroupInvocationId => Builtin::SubgroupLane,
                other => panic!("no code for the built-in value {other:?}"),
            };
            self.program.ops.push(Op::Builtin { to, what });
            regs.push(to);
        }
    }

    /// Inlines a function. Its results go to `result`; where no lane goes on, the code goes on at `join`.
    fn function(
        &mut self,
        function: &'m Function,
        info: &'m FunctionInfo,
        arguments: Vec<Value>,
        result: Vec<Reg>,
        join: Target,
    ) {
        let (mark, slots) = (self.next, self.slots);
        let returned = self.take_slots(1);
        self.program.ops.push(Op::CallBegin { slot: returned });
        let mut frame = Frame {
            function,
            info,
            values: vec![None; function.expressions.len()],
            arguments,
            locals: Vec::new(),
            result,
            returned,
            loops: Vec::new(),
            breaks: Vec::new(),
        };
        for (_, variable) in function.local_variables.iter() {
            let regs = self.take(types::scalars(self.module, &self.module.types[variable.ty].inner));
            frame.locals.push(regs.first().copied().unwrap_or(0));
            let words = match variable.init {
                Some(init) => self.regs(&mut frame, init).to_vec(),
                None => vec![self.constant(0); regs.len()],
            };
            for (&to, from) in regs.iter().zip(words) {
                self.program.ops.push(Op::Copy { to, from });
            }
        }
        let end = self.label();
        self.block(&mut frame, &function.body, end);
        self.put(end);
        self.program.ops.push(Op::CallEnd { slot: returned, join });
        (self.next, self.slots) = (mark, slots);
    }

    /// Replaces labels by positions.
    fn finish(mut self) -> Program {
        let labels = &self.labels;
        for op in &mut self.program.ops {
            match op {
                Op::If { otherwise: at, .. }
                | Op::Else { end: at, .. }
                | Op::EndIf { join: at, .. }
                | Op::Continuing { end: at, .. }
                | Op::LoopBack { head: at }
                | Op::LoopEnd { join: at, .. }
                | Op::Break { join: at, .. }
                | Op::Continue { join: at, .. }
                | Op::Case { next: at, .. }
                | Op::SwitchEnd { join: at, .. }
                | Op::Return { join: at, .. }
                | Op::CallEnd { join: at, .. } => {
                    *at = labels[*at as usize];
                    assert!(*at != u32::MAX, "a jump to nowhere");
                }
                _ => {}
            }
        }
        self.program
    }
}
