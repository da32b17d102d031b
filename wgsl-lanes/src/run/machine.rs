//! Runs a subgroup up to its next barrier, to its end, or until another subgroup's turn comes.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use super::{
    arithmetic,
    shadow::{Cell, How, Who, note},
    span::each,
    state::{Bound, MOST, Shared, Subgroup, Wait, builtin},
};
use crate::{
    findings::{Counts, Fault, Raw},
    program::{self, Access, Atomic, AtomicOp, Fold, Length, Memory, Op, Over, Pick, Program, Reg, SubgroupOp},
};

/// Why a subgroup stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// Another subgroup's turn, a barrier or the end.
    Turn,
    /// A fault after which nothing can be said.
    Abort,
}

/// The most findings of a dispatch.
const MOST_FINDINGS: usize = 200;

/// A dispatch under way, without its workgroups.
pub(super) struct Machine<'a> {
    pub(super) program: &'a Program,
    pub(super) width: usize,
    pub(super) groups: [u32; 3],
    pub(super) buffers: &'a mut [Arc<Vec<u32>>],
    /// For each binding that the program declares.
    pub(super) bound: Vec<Bound>,
    /// For each buffer that the dispatch may write.
    pub(super) shadows: Vec<Option<Vec<Cell>>>,
    pub(super) found: Vec<Raw>,
    pub(super) counts: Counts,
    pub(super) counting: bool,
    pub(super) heat: HashMap<(usize, usize), u64>,
    /// Which barrier came behind which in any workgroup.
    pub(super) pairs: BTreeSet<(u32, u32)>,
    pub(super) budget: u64,
    /// One in so many weak compare-exchanges fails without a reason; 0: none.
    pub(super) spurious: u32,
    /// Whether lanes do atomic operations in a random order.
    pub(super) shuffled: bool,
    /// Memory accesses until the next subgroup's turn.
    pub(super) quantum: u32,
    pub(super) random: u64,
}

/// A buffer that the dispatch may write: [`dispatch`](super::dispatch) holds it alone.
fn owned(buffer: &mut Arc<Vec<u32>>) -> &mut Vec<u32> {
    Arc::get_mut(buffer).unwrap_or_else(|| panic!("a write to a buffer that is bound for reading"))
}

/// The lanes whose register is not zero.
fn lanes_of(subgroup: &Subgroup, width: usize, reg: Reg) -> u64 {
    let words = &subgroup.registers[reg as usize * width..][..width];
    words.iter().enumerate().fold(0, |mask, (lane, &word)| mask | u64::from(word != 0) << lane)
}

/// The fault that several lanes of an access met first.
type Hit = Option<(Fault, usize, u32, String)>;

impl Machine<'_> {
    /// The next random number.
    pub(super) fn random(&mut self) -> u32 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.random;
        x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((x ^ x >> 31) >> 32) as u32
    }

    pub(super) fn fault(&mut self, raw: Raw) {
        let same = |known: &Raw| (known.fault, known.line, known.other) == (raw.fault, raw.line, raw.other);
        if self.found.len() < MOST_FINDINGS && !self.found.iter().any(same) {
            self.found.push(raw);
        }
    }

    fn hit(&mut self, hit: Hit, line: u32, shared: &Shared, subgroup: &Subgroup) {
        if let Some((fault, lane, other, detail)) = hit {
            let lane = subgroup.number * self.width as u32 + lane as u32;
            self.fault(Raw { fault, line, other, workgroup: shared.number, lane, detail });
        }
    }

    fn bound_words(&self, memory: Memory) -> usize {
        match memory {
            Memory::Binding(binding) => self.bound[binding as usize].words,
            Memory::Workgroup => self.program.workgroup_words as usize,
            Memory::Local => usize::MAX,
        }
    }

    fn name(&self, access: &Access) -> &str {
        match access.memory {
            Memory::Binding(binding) => &self.program.bindings[binding as usize].name,
            Memory::Workgroup => "memory of the workgroup",
            Memory::Local => "a variable",
        }
    }

    /// The address of each lane, and the lanes whose address is legal.
    fn addresses(&mut self, access: &Access, shared: &Shared, subgroup: &Subgroup, at: &mut [u32; MOST]) -> u64 {
        let width = self.width;
        let words = self.bound_words(access.memory);
        let mut mask = subgroup.mask;
        at[..width].fill(access.base);
        let mut hit: Hit = None;
        for step in &access.steps {
            let length = match step.length {
                Length::Fixed(length) => length,
                Length::Runtime { first } => (words.saturating_sub(first as usize) / step.stride as usize) as u32,
            };
            let indices = &subgroup.registers[step.index as usize * width..][..width];
            let mut legal = 0;
            for (lane, (&index, at)) in indices.iter().zip(at.iter_mut()).enumerate() {
                legal |= u64::from(index < length) << lane;
                *at = at.wrapping_add(index.wrapping_mul(step.stride));
            }
            if mask & !legal != 0 {
                let lane = (mask & !legal).trailing_zeros() as usize;
                let detail = format!("element {} of {length} of {}", indices[lane], self.name(access));
                hit = hit.or(Some((Fault::OutOfBounds, lane, 0, detail)));
                mask &= legal;
            }
        }
        let reach = access.words.last().copied().unwrap_or(0) as usize;
        if access.memory != Memory::Local {
            let mut legal = mask;
            each(mask, |lane| {
                if at[lane] as usize + reach >= words {
                    legal &= !(1 << lane);
                }
            });
            if mask != legal {
                let lane = (mask & !legal).trailing_zeros() as usize;
                let detail = format!("word {} of {words} of {}", at[lane] as usize + reach, self.name(access));
                hit = hit.or(Some((Fault::OutOfBounds, lane, 0, detail)));
                mask = legal;
            }
        }
        self.hit(hit, access.line, shared, subgroup);
        mask
    }

    fn who(&self, storage: bool, shared: &Shared, subgroup: &Subgroup, line: u32) -> Who {
        Who {
            group: shared.number + 1,
            phase: if storage { shared.storage_phase } else { shared.workgroup_phase },
            lane: (subgroup.number * self.width as u32) as u16,
            line: line as u16,
        }
    }

    /// Counts an access of a subgroup that gives values to the first registers and takes those of the others.
    fn count(
        &mut self,
        access: &Access,
        regs: [&[Reg]; 2],
        at: &[u32; MOST],
        mask: u64,
        shared: &mut Shared,
        subgroup: &mut Subgroup,
    ) {
        if access.memory == Memory::Local {
            let whole = mask == subgroup.full;
            return subgroup.span.local(access, regs[0].is_empty(), &at[..self.width], mask, whole);
        }
        let binding = match access.memory {
            Memory::Binding(binding) if !self.program.bindings[binding as usize].uniform => Some(binding),
            _ => None,
        };
        subgroup.span.access(access, regs, binding.is_some());
        let Some(binding) = binding.filter(|_| mask != 0) else { return };
        shared.wrote |= !regs[1].is_empty();
        let first = self.bound[binding as usize].first as u32;
        let mut sectors = Vec::with_capacity(self.width);
        each(mask, |lane| sectors.extend(access.words.iter().map(|word| (first + at[lane] + word) / 8)));
        sectors.sort_unstable();
        sectors.dedup();
        self.counts.accesses += 1;
        self.counts.sectors += sectors.len() as u64;
        sectors.iter_mut().for_each(|sector| *sector /= 4);
        sectors.dedup();
        self.counts.lines += sectors.len() as u64;
    }

    fn load(&mut self, access: &Access, shared: &mut Shared, subgroup: &mut Subgroup) {
        let width = self.width;
        let mut at = [0; MOST];
        let mask = self.addresses(access, shared, subgroup, &mut at);
        if self.counting {
            self.count(access, [&access.regs, &[]], &at, mask, shared, subgroup);
        }
        let how = if access.atomic { How::Atomic } else { How::Read };
        let (mut hit, mut unwritten): (Hit, Hit) = (None, None);
        match access.memory {
            Memory::Local => {
                for (&word, &to) in access.words.iter().zip(&access.regs) {
                    each(mask, |lane| {
                        let from = (at[lane] + word) as usize * width + lane;
                        subgroup.registers[to as usize * width + lane] = subgroup.registers[from];
                    });
                }
            }
            Memory::Binding(binding) => {
                let bound = self.bound[binding as usize];
                let who = self.who(true, shared, subgroup, access.line);
                let words = &self.buffers[bound.buffer];
                let mut shadow = self.shadows[bound.buffer].as_mut();
                for (&word, &to) in access.words.iter().zip(&access.regs) {
                    let to = &mut subgroup.registers[to as usize * width..][..width];
                    each(mask, |lane| {
                        let from = bound.first + (at[lane] + word) as usize;
                        to[lane] = words[from];
                        if let Some(shadow) = &mut shadow {
                            let who = Who { lane: who.lane + lane as u16, ..who };
                            if let Some(other) = note(&mut shadow[from], how, who)
                                && hit.is_none()
                            {
                                hit = Some((Fault::Race, lane, u32::from(other), String::new()));
                            }
                        }
                    });
                }
            }
            Memory::Workgroup => {
                let who = self.who(false, shared, subgroup, access.line);
                let Shared { words, written, shadow, .. } = &mut *shared;
                for (&word, &to) in access.words.iter().zip(&access.regs) {
                    let to = &mut subgroup.registers[to as usize * width..][..width];
                    each(mask, |lane| {
                        let from = (at[lane] + word) as usize;
                        to[lane] = words[from];
                        if !written[from] && unwritten.is_none() {
                            unwritten = Some((Fault::Poison, lane, 0, String::new()));
                        }
                        let who = Who { lane: who.lane + lane as u16, ..who };
                        if let Some(other) = note(&mut shadow[from], how, who)
                            && hit.is_none()
                        {
                            hit = Some((Fault::Race, lane, u32::from(other), String::new()));
                        }
                    });
                }
            }
        }
        self.told(hit, access, &at, shared, subgroup);
        self.told(unwritten, access, &at, shared, subgroup);
    }

    /// Reports a hit with the word's name.
    fn told(&mut self, hit: Hit, access: &Access, at: &[u32; MOST], shared: &Shared, subgroup: &Subgroup) {
        let hit = hit.map(|(fault, lane, other, _)| {
            let detail = format!("word {} of {}", at[lane], self.name(access));
            (fault, lane, other, detail)
        });
        self.hit(hit, access.line, shared, subgroup);
    }

    fn store(&mut self, access: &Access, shared: &mut Shared, subgroup: &mut Subgroup) {
        let width = self.width;
        let mut at = [0; MOST];
        let mask = self.addresses(access, shared, subgroup, &mut at);
        if self.counting {
            self.count(access, [&[], &access.regs], &at, mask, shared, subgroup);
        }
        let how = if access.atomic { How::Atomic } else { How::Write };
        let mut hit: Hit = None;
        match access.memory {
            Memory::Local => {
                for (&word, &from) in access.words.iter().zip(&access.regs) {
                    each(mask, |lane| {
                        let to = (at[lane] + word) as usize * width + lane;
                        subgroup.registers[to] = subgroup.registers[from as usize * width + lane];
                    });
                }
            }
            Memory::Binding(binding) => {
                let bound = self.bound[binding as usize];
                let who = self.who(true, shared, subgroup, access.line);
                let words = owned(&mut self.buffers[bound.buffer]);
                let mut shadow = self.shadows[bound.buffer].as_mut();
                for (&word, &from) in access.words.iter().zip(&access.regs) {
                    let from = &subgroup.registers[from as usize * width..][..width];
                    each(mask, |lane| {
                        let to = bound.first + (at[lane] + word) as usize;
                        words[to] = from[lane];
                        if let Some(shadow) = &mut shadow {
                            let who = Who { lane: who.lane + lane as u16, ..who };
                            if let Some(other) = note(&mut shadow[to], how, who)
                                && hit.is_none()
                            {
                                hit = Some((Fault::Race, lane, u32::from(other), String::new()));
                            }
                        }
                    });
                }
            }
            Memory::Workgroup => {
                let who = self.who(false, shared, subgroup, access.line);
                let Shared { words, written, shadow, .. } = &mut *shared;
                for (&word, &from) in access.words.iter().zip(&access.regs) {
                    let from = &subgroup.registers[from as usize * width..][..width];
                    each(mask, |lane| {
                        let to = (at[lane] + word) as usize;
                        words[to] = from[lane];
                        written[to] = true;
                        let who = Who { lane: who.lane + lane as u16, ..who };
                        if let Some(other) = note(&mut shadow[to], how, who)
                            && hit.is_none()
                        {
                            hit = Some((Fault::Race, lane, u32::from(other), String::new()));
                        }
                    });
                }
            }
        }
        self.told(hit, access, &at, shared, subgroup);
    }

    fn atomic(&mut self, atomic: &Atomic, shared: &mut Shared, subgroup: &mut Subgroup) {
        let width = self.width;
        let access = &atomic.access;
        let mut at = [0; MOST];
        let mask = self.addresses(access, shared, subgroup, &mut at);
        if self.counting {
            let mut from = vec![atomic.value];
            if let AtomicOp::CompareExchange(compare) = atomic.op {
                from.push(compare);
            }
            self.count(access, [&atomic.to, &from], &at, mask, shared, subgroup);
        }
        let (turn, step) = match self.shuffled {
            true => (self.random() as usize, self.random() as usize | 1),
            false => (0, 1),
        };
        let (mut hit, mut unwritten): (Hit, Hit) = (None, None);
        for i in 0..width {
            let lane = turn.wrapping_add(i.wrapping_mul(step)) % width;
            if mask >> lane & 1 == 0 {
                continue;
            }
            let of = |reg: Reg| subgroup.registers[reg as usize * width + lane];
            let (value, compare) = match atomic.op {
                AtomicOp::CompareExchange(compare) => (of(atomic.value), of(compare)),
                _ => (of(atomic.value), 0),
            };
            let fails = matches!(atomic.op, AtomicOp::CompareExchange(_))
                && self.spurious > 0
                && self.random().is_multiple_of(self.spurious);
            let storage = access.memory != Memory::Workgroup;
            let who = self.who(storage, shared, subgroup, access.line);
            let who = Who { lane: who.lane + lane as u16, ..who };
            let (word, cell) = match access.memory {
                Memory::Binding(binding) => {
                    let bound = self.bound[binding as usize];
                    let to = bound.first + at[lane] as usize;
                    if self.counting {
                        self.counts.atomics += 1;
                        *self.heat.entry((bound.buffer, to)).or_default() += 1;
                    }
                    let shadow = self.shadows[bound.buffer].as_mut().map(|shadow| &mut shadow[to]);
                    (&mut owned(&mut self.buffers[bound.buffer])[to], shadow)
                }
                Memory::Workgroup => {
                    let to = at[lane] as usize;
                    if !shared.written[to] && unwritten.is_none() {
                        unwritten = Some((Fault::Poison, lane, 0, String::new()));
                    }
                    shared.written[to] = true;
                    (&mut shared.words[to], Some(&mut shared.shadow[to]))
                }
                Memory::Local => panic!("an atomic operation on a variable"),
            };
            let old = *word;
            let new = match atomic.op {
                AtomicOp::Add => old.wrapping_add(value),
                AtomicOp::AddF => (f32::from_bits(old) + f32::from_bits(value)).to_bits(),
                AtomicOp::Sub => old.wrapping_sub(value),
                AtomicOp::And => old & value,
                AtomicOp::Or => old | value,
                AtomicOp::Xor => old ^ value,
                AtomicOp::MinU => old.min(value),
                AtomicOp::MaxU => old.max(value),
                AtomicOp::MinI => (old as i32).min(value as i32) as u32,
                AtomicOp::MaxI => (old as i32).max(value as i32) as u32,
                AtomicOp::Exchange => value,
                AtomicOp::CompareExchange(_) if old == compare && !fails => value,
                AtomicOp::CompareExchange(_) => old,
            };
            *word = new;
            if let Some(cell) = cell {
                let other = match atomic.plain {
                    false => note(cell, How::Atomic, who),
                    true => note(cell, How::Read, who).or(note(cell, How::Write, who)),
                };
                if let Some(other) = other
                    && hit.is_none()
                {
                    hit = Some((Fault::Race, lane, u32::from(other), String::new()));
                }
            }
            if let Some(&to) = atomic.to.first() {
                subgroup.registers[to as usize * width + lane] = old;
            }
            if let Some(&to) = atomic.to.get(1) {
                subgroup.registers[to as usize * width + lane] = u32::from(old == compare && !fails);
            }
        }
        self.told(hit, access, &at, shared, subgroup);
        self.told(unwritten, access, &at, shared, subgroup);
    }

    fn pick(&mut self, pick: &Pick, shared: &Shared, subgroup: &mut Subgroup) {
        let width = self.width;
        let parts = pick.from.len() / pick.to.len();
        let mut hit: Hit = None;
        each(subgroup.mask, |lane| {
            let index = subgroup.registers[pick.index as usize * width + lane] as usize;
            if index >= parts {
                let detail = format!("element {index} of {parts} of a value");
                hit.get_or_insert((Fault::OutOfBounds, lane, 0, detail));
                return;
            }
            for (i, &to) in pick.to.iter().enumerate() {
                let from = pick.from[index * pick.to.len() + i];
                subgroup.registers[to as usize * width + lane] = subgroup.registers[from as usize * width + lane];
            }
        });
        self.hit(hit, pick.line, shared, subgroup);
    }

    fn together(&mut self, op: &program::Subgroup, subgroup: &mut Subgroup) {
        let width = self.width;
        let mask = subgroup.mask;
        if op.op == SubgroupOp::Ballot {
            let votes = lanes_of(subgroup, width, op.from[0]) & mask;
            for (part, &to) in op.to.iter().enumerate() {
                let word = if part < 2 { (votes >> (32 * part)) as u32 } else { 0 };
                subgroup.registers[to as usize * width..][..width].fill(word);
            }
            return;
        }
        for (&from, &to) in op.from.iter().zip(&op.to) {
            let mut words = [0; MOST];
            words[..width].copy_from_slice(&subgroup.registers[from as usize * width..][..width]);
            let reg = |reg: Reg, lane: usize| subgroup.registers[reg as usize * width + lane] as usize;
            let mut out = [0; MOST];
            let folded = |fold: Fold, lanes: u64| {
                let mut sum = match fold {
                    Fold::All => 1,
                    Fold::And | Fold::MinU => u32::MAX,
                    Fold::MinI => i32::MAX as u32,
                    Fold::MaxI => i32::MIN as u32,
                    Fold::Any | Fold::AddI | Fold::AddF | Fold::MaxU | Fold::Or | Fold::Xor => 0,
                };
                each(lanes, |lane| {
                    let word = words[lane];
                    sum = match fold {
                        Fold::All => sum & word,
                        Fold::Any => sum | word,
                        Fold::AddI => sum.wrapping_add(word),
                        Fold::AddF => (f32::from_bits(sum) + f32::from_bits(word)).to_bits(),
                        Fold::MinU => sum.min(word),
                        Fold::MaxU => sum.max(word),
                        Fold::MinI => (sum as i32).min(word as i32) as u32,
                        Fold::MaxI => (sum as i32).max(word as i32) as u32,
                        Fold::And => sum & word,
                        Fold::Or => sum | word,
                        Fold::Xor => sum ^ word,
                    };
                });
                sum
            };
            each(mask, |lane| {
                let source = match op.op {
                    SubgroupOp::Ballot => lane,
                    SubgroupOp::Fold(fold, over) => {
                        let lanes = match over {
                            Over::All => mask,
                            Over::Before => mask & ((1 << lane) - 1),
                            Over::UpToThis => mask & (((1 << lane) - 1) << 1 | 1),
                        };
                        out[lane] = folded(fold, lanes);
                        return;
                    }
                    SubgroupOp::First => mask.trailing_zeros() as usize,
                    SubgroupOp::Broadcast(from) | SubgroupOp::Shuffle(from) => reg(from, lane),
                    SubgroupOp::ShuffleDown(by) => lane + reg(by, lane),
                    SubgroupOp::ShuffleUp(by) => lane.wrapping_sub(reg(by, lane)),
                    SubgroupOp::ShuffleXor(by) => lane ^ reg(by, lane),
                };
                // The value of a lane that does not take part is undefined: here it is no value that any lane holds by intention.
                out[lane] = if source < width && mask >> source & 1 == 1 { words[source] } else { 0xdead_beef };
            });
            each(mask, |lane| subgroup.registers[to as usize * width + lane] = out[lane]);
        }
    }

    fn non_uniform(&mut self, what: &str, line: u32, shared: &Shared, subgroup: &Subgroup) {
        let missing = subgroup.full & !subgroup.mask;
        let detail =
            format!("{what} that {} of {} lanes do not reach", missing.count_ones(), subgroup.full.count_ones());
        self.hit(Some((Fault::NonUniform, missing.trailing_zeros() as usize, 0, detail)), line, shared, subgroup);
    }

    /// True if another subgroup's turn has come.
    #[inline(always)]
    fn turn_over(&mut self, memory: Memory) -> bool {
        if memory == Memory::Local {
            return false;
        }
        if self.quantum == 0 {
            return true;
        }
        self.quantum -= 1;
        false
    }

    pub(super) fn run(&mut self, shared: &mut Shared, subgroup: &mut Subgroup) -> Stop {
        let program = self.program;
        let width = self.width;
        loop {
            let op = program.ops[subgroup.at];
            subgroup.at += 1;
            subgroup.executed += 1;
            if self.counting {
                subgroup.span.operation(op, program, subgroup.mask == subgroup.full);
            }
            match op {
                Op::Unary(op, to, from) => arithmetic::unary(op, &mut subgroup.registers, width, to, from),
                Op::Binary(op, to, a, b) => arithmetic::binary(op, &mut subgroup.registers, width, to, a, b),
                Op::Select { to, when, yes, no } => {
                    arithmetic::select(&mut subgroup.registers, width, to, when, yes, no);
                }
                Op::Fused(to, from) => arithmetic::fused(&mut subgroup.registers, width, to, from),
                Op::Copy { to, from } => arithmetic::copy(&mut subgroup.registers, width, to, from),
                Op::Move { to, from } => {
                    if subgroup.mask == subgroup.full {
                        arithmetic::copy(&mut subgroup.registers, width, to, from);
                    } else {
                        each(subgroup.mask, |lane| {
                            subgroup.registers[to as usize * width + lane] =
                                subgroup.registers[from as usize * width + lane];
                        });
                    }
                }
                Op::Builtin { to, what } => {
                    for lane in 0..width {
                        subgroup.registers[to as usize * width + lane] = builtin(
                            what,
                            program.workgroup_size,
                            self.groups,
                            shared.number,
                            subgroup.number,
                            width as u32,
                            lane as u32,
                        );
                    }
                }
                Op::Length { to, binding, first, stride } => {
                    let words = self.bound[binding as usize].words;
                    let length = words.saturating_sub(first as usize) as u32 / stride;
                    subgroup.registers[to as usize * width..][..width].fill(length);
                }
                Op::Pick(at) => self.pick(&program.picks[at as usize], shared, subgroup),
                Op::Load(at) => {
                    let access = &program.accesses[at as usize];
                    if self.turn_over(access.memory) {
                        subgroup.at -= 1;
                        return Stop::Turn;
                    }
                    self.load(access, shared, subgroup);
                }
                Op::Store(at) => {
                    let access = &program.accesses[at as usize];
                    if self.turn_over(access.memory) {
                        subgroup.at -= 1;
                        return Stop::Turn;
                    }
                    self.store(access, shared, subgroup);
                }
                Op::Atomic(at) => {
                    let atomic = &program.atomics[at as usize];
                    if self.turn_over(atomic.access.memory) {
                        subgroup.at -= 1;
                        return Stop::Turn;
                    }
                    self.atomic(atomic, shared, subgroup);
                }
                Op::Barrier(at) => {
                    if subgroup.mask != subgroup.full {
                        self.non_uniform("a barrier", program.barriers[at as usize].line, shared, subgroup);
                        return Stop::Abort;
                    }
                    subgroup.wait = Wait::Barrier(at);
                    return Stop::Turn;
                }
                Op::Subgroup(at) => {
                    let op = &program.subgroups[at as usize];
                    if subgroup.mask != subgroup.full {
                        self.non_uniform("an operation of the subgroup", op.line, shared, subgroup);
                    }
                    self.together(op, subgroup);
                }
                Op::If { when, slot, otherwise } => {
                    let when = lanes_of(subgroup, width, when);
                    subgroup.masks[slot as usize] = subgroup.mask & !when;
                    subgroup.mask &= when;
                    if subgroup.mask == 0 {
                        subgroup.at = otherwise as usize;
                    }
                }
                Op::Else { slot, end } => {
                    subgroup.masks[slot as usize + 1] = subgroup.mask;
                    subgroup.mask = subgroup.masks[slot as usize];
                    if subgroup.mask == 0 {
                        subgroup.at = end as usize;
                    }
                }
                Op::EndIf { slot, join } => {
                    subgroup.mask |= subgroup.masks[slot as usize + 1];
                    if subgroup.mask == 0 {
                        subgroup.at = join as usize;
                    }
                }
                Op::LoopBegin { slot } => subgroup.masks[slot as usize..slot as usize + 2].fill(0),
                Op::Continuing { slot, end } => {
                    subgroup.mask |= std::mem::take(&mut subgroup.masks[slot as usize + 1]);
                    if subgroup.mask == 0 {
                        subgroup.at = end as usize;
                    }
                }
                Op::BreakIf { slot, when } => {
                    let when = lanes_of(subgroup, width, when);
                    subgroup.masks[slot as usize] |= subgroup.mask & when;
                    subgroup.mask &= !when;
                }
                Op::LoopBack { head } => {
                    if subgroup.mask != 0 {
                        subgroup.at = head as usize;
                    }
                    if subgroup.executed > self.budget {
                        self.endless(shared, subgroup);
                        return Stop::Abort;
                    }
                }
                Op::LoopEnd { slot, join } | Op::SwitchEnd { slot, join } => {
                    subgroup.mask = subgroup.masks[slot as usize];
                    if subgroup.mask == 0 {
                        subgroup.at = join as usize;
                    }
                }
                Op::Break { slot, join } | Op::Return { slot, join } => {
                    subgroup.masks[slot as usize] |= subgroup.mask;
                    subgroup.mask = 0;
                    subgroup.at = join as usize;
                }
                Op::Continue { slot, join } => {
                    subgroup.masks[slot as usize + 1] |= subgroup.mask;
                    subgroup.mask = 0;
                    subgroup.at = join as usize;
                }
                Op::SwitchBegin { slot } => {
                    subgroup.masks[slot as usize] = 0;
                    subgroup.masks[slot as usize + 1] = subgroup.mask;
                }
                Op::Case { slot, case, next } => {
                    let case = &program.cases[case as usize];
                    let selectors = &subgroup.registers[case.selector as usize * width..][..width];
                    let taken = selectors.iter().enumerate().fold(0, |mask, (lane, word)| {
                        mask | u64::from(case.values.contains(word) != case.default) << lane
                    });
                    subgroup.mask = subgroup.masks[slot as usize + 1] & taken;
                    if subgroup.mask == 0 {
                        subgroup.at = next as usize;
                    }
                }
                Op::EndCase { slot } => {
                    subgroup.masks[slot as usize] |= subgroup.mask;
                    subgroup.mask = 0;
                }
                Op::CallBegin { slot } => subgroup.masks[slot as usize] = 0,
                Op::CallEnd { slot, join } => {
                    subgroup.mask |= subgroup.masks[slot as usize];
                    if subgroup.mask == 0 {
                        subgroup.at = join as usize;
                    }
                }
                Op::Exit => {
                    subgroup.wait = Wait::Ended;
                    return Stop::Turn;
                }
            }
        }
    }

    fn endless(&mut self, shared: &Shared, subgroup: &Subgroup) {
        // The loop's line is that of the access before its end, as good as the module tells.
        let line = self.program.ops[..subgroup.at].iter().rev().find_map(|op| match op {
            Op::Load(at) | Op::Store(at) => Some(self.program.accesses[*at as usize].line),
            Op::Atomic(at) => Some(self.program.atomics[*at as usize].access.line),
            _ => None,
        });
        let detail = format!("{} operations, and the loop goes on", subgroup.executed);
        let lane = subgroup.mask.trailing_zeros() as usize % self.width;
        self.hit(Some((Fault::Endless, lane, 0, detail)), line.unwrap_or(0), shared, subgroup);
    }
}
