//! The code that the executor runs: one flat list of operations on registers, for a whole subgroup at a time.
//!
//! A register holds one word for each lane. Vectors, arrays and structs are lists of registers. Functions are inlined, so an operation's
//! position says all about where a subgroup is, and a subgroup can stop before any operation and go on later.
//!
//! A register that an operation writes has a higher number than those it reads, except for [`Op::Move`] and accesses to local memory.

/// The number of a register.
pub(crate) type Reg = u32;

/// A position in the list of operations; a label while the code is being made.
pub(crate) type Target = u32;

/// An operation on one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unary {
    NegI,
    NegF,
    NotBool,
    NotBits,
    AbsI,
    AbsF,
    Ceil,
    Floor,
    Round,
    Trunc,
    Fract,
    Sqrt,
    InverseSqrt,
    Exp,
    Exp2,
    Log,
    Log2,
    SignF,
    SignI,
    CountOneBits,
    CountTrailingZeros,
    CountLeadingZeros,
    ReverseBits,
    FirstTrailingBit,
    FirstLeadingBitU,
    FirstLeadingBitI,
    UToF,
    IToF,
    FToU,
    FToI,
    ToBool,
    FToBool,
    BoolToF,
}

/// An operation on two words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binary {
    AddI,
    SubI,
    MulI,
    DivU,
    DivI,
    ModU,
    ModI,
    AddF,
    SubF,
    MulF,
    DivF,
    ModF,
    Eq,
    Ne,
    EqF,
    NeF,
    LtU,
    LeU,
    LtI,
    LeI,
    LtF,
    LeF,
    And,
    Or,
    Xor,
    Shl,
    ShrU,
    ShrI,
    MinU,
    MaxU,
    MinI,
    MaxI,
    MinF,
    MaxF,
    Pow,
}

/// A value that an invocation has from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Builtin {
    GlobalId(u8),
    LocalId(u8),
    LocalIndex,
    GroupId(u8),
    GroupSize(u8),
    Groups(u8),
    Subgroups,
    SubgroupId,
    SubgroupSize,
    SubgroupLane,
}

/// A word of every place where masks of lanes are kept: two each for `if`, loop and switch, one for a call.
pub(crate) type Slot = u32;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    Unary(Unary, Reg, Reg),
    Binary(Binary, Reg, Reg, Reg),
    Select { to: Reg, when: Reg, yes: Reg, no: Reg },
    // `a * b + c`, rounded once.
    Fused(Reg, [Reg; 3]),
    // For every lane, active or not.
    Copy { to: Reg, from: Reg },
    // For the active lanes.
    Move { to: Reg, from: Reg },
    Builtin { to: Reg, what: Builtin },
    // The length of an array of which the buffer sets the length.
    Length { to: Reg, binding: u32, first: u32, stride: u32 },
    // An element of a list of registers, chosen by a register.
    Pick(u32),
    Load(u32),
    Store(u32),
    Atomic(u32),
    Barrier(u32),
    Subgroup(u32),
    If { when: Reg, slot: Slot, otherwise: Target },
    Else { slot: Slot, end: Target },
    EndIf { slot: Slot, join: Target },
    LoopBegin { slot: Slot },
    Continuing { slot: Slot, end: Target },
    BreakIf { slot: Slot, when: Reg },
    LoopBack { head: Target },
    LoopEnd { slot: Slot, join: Target },
    Break { slot: Slot, join: Target },
    Continue { slot: Slot, join: Target },
    SwitchBegin { slot: Slot },
    // Turns to the lanes that take a case; `cases` says which.
    Case { slot: Slot, case: u32, next: Target },
    EndCase { slot: Slot },
    SwitchEnd { slot: Slot, join: Target },
    CallBegin { slot: Slot },
    Return { slot: Slot, join: Target },
    CallEnd { slot: Slot, join: Target },
    Exit,
}

/// The memory that an access reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    /// A binding, by its position in [`Program::bindings`].
    Binding(u32),
    /// The memory of the workgroup.
    Workgroup,
    /// Registers: variables of a function and private ones.
    Local,
}

/// The number of elements of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    Fixed(u32),
    // As many as lie behind word `first` of the binding.
    Runtime { first: u32 },
}

/// An index that is known only when the code runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) index: Reg,
    pub(crate) stride: u32,
    pub(crate) length: Length,
}

/// A load or a store.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    pub(crate) memory: Memory,
    pub(crate) base: u32,
    pub(crate) steps: Vec<Step>,
    /// The distance of each word of the value from the address.
    pub(crate) words: Vec<u32>,
    /// The register of each word.
    pub(crate) regs: Vec<Reg>,
    /// Whether the access is an atomic one.
    pub(crate) atomic: bool,
    /// The line in the text.
    pub(crate) line: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtomicOp {
    Add,
    AddF,
    Sub,
    And,
    Or,
    Xor,
    MinU,
    MaxU,
    MinI,
    MaxI,
    Exchange,
    /// The register is the value that is compared.
    CompareExchange(Reg),
}

/// An atomic operation. Its access names one word.
#[derive(Clone, Debug)]
pub(crate) struct Atomic {
    pub(crate) op: AtomicOp,
    pub(crate) access: Access,
    pub(crate) value: Reg,
    /// The registers of the result: the old value, then whether the values were exchanged.
    pub(crate) to: Vec<Reg>,
    /// A mutant's operation: a plain read and a plain write.
    pub(crate) plain: bool,
}

/// A barrier, and the memories that it orders.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Barrier {
    pub(crate) storage: bool,
    pub(crate) workgroup: bool,
    pub(crate) line: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fold {
    All,
    Any,
    AddI,
    AddF,
    MinU,
    MaxU,
    MinI,
    MaxI,
    And,
    Or,
    Xor,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    All,
    Before,
    UpToThis,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SubgroupOp {
    Ballot,
    Fold(Fold, Over),
    First,
    /// The value of the lane in the register, which is the same in all lanes.
    Broadcast(Reg),
    Shuffle(Reg),
    ShuffleDown(Reg),
    ShuffleUp(Reg),
    ShuffleXor(Reg),
}

/// An operation of a subgroup on each of several words.
#[derive(Clone, Debug)]
pub(crate) struct Subgroup {
    pub(crate) op: SubgroupOp,
    pub(crate) from: Vec<Reg>,
    pub(crate) to: Vec<Reg>,
    pub(crate) line: u32,
}

/// A choice among lists of registers.
#[derive(Clone, Debug)]
pub(crate) struct Pick {
    pub(crate) index: Reg,
    pub(crate) from: Vec<Reg>,
    pub(crate) to: Vec<Reg>,
    pub(crate) line: u32,
}

/// A case of a switch: the lanes whose selector is among `values`, or, of the default case, those whose selector is not.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) selector: Reg,
    pub(crate) values: Vec<u32>,
    pub(crate) default: bool,
}

/// The number of a binding of any bind group.
pub(crate) fn number(group: u32, binding: u32) -> u32 {
    group << 16 | binding
}

/// A binding that the text declares.
#[derive(Clone, Debug)]
pub(crate) struct Declared {
    pub(crate) binding: u32,
    pub(crate) name: String,
    pub(crate) writes: bool,
    pub(crate) uniform: bool,
}

/// A compiled entry point, for [`dispatch`](crate::dispatch).
#[derive(Clone, Debug, Default)]
pub struct Program {
    pub(crate) ops: Vec<Op>,
    pub(crate) accesses: Vec<Access>,
    pub(crate) atomics: Vec<Atomic>,
    pub(crate) barriers: Vec<Barrier>,
    pub(crate) subgroups: Vec<Subgroup>,
    pub(crate) picks: Vec<Pick>,
    pub(crate) cases: Vec<Case>,
    /// The first registers: constants, the same in all lanes.
    pub(crate) constants: Vec<u32>,
    pub(crate) registers: u32,
    pub(crate) slots: u32,
    pub(crate) workgroup_words: u32,
    pub(crate) workgroup_size: [u32; 3],
    pub(crate) bindings: Vec<Declared>,
    /// Lines of atomic operations whose result is used.
    pub used_results: Vec<u32>,
}

impl Program {
    pub(crate) fn invocations(&self) -> u32 {
        self.workgroup_size.iter().product()
    }
}
