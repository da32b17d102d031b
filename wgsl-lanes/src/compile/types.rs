//! Where the words of a type lie: in a buffer as WGSL lays it out, elsewhere one behind the other.

use naga::{ArraySize, Handle, Module, ScalarKind, Type, TypeInner};

/// The number of scalars of a type of fixed size.
pub(super) fn scalars(module: &Module, inner: &TypeInner) -> u32 {
    match inner {
        TypeInner::Scalar(scalar) | TypeInner::Atomic(scalar) => {
            assert!(matches!(scalar.width, 4) || scalar.kind == ScalarKind::Bool, "no code for {scalar:?}");
            1
        }
        TypeInner::Vector { size, .. } => *size as u32,
        TypeInner::Array { base, size, .. } => elements(*size) * scalars(module, &module.types[*base].inner),
        TypeInner::Struct { members, .. } => {
            members.iter().map(|member| scalars(module, &module.types[member.ty].inner)).sum()
        }
        other => panic!("no code for the type {other:?}"),
    }
}

/// The number of elements of an array of fixed size.
pub(super) fn elements(size: ArraySize) -> u32 {
    match size {
        ArraySize::Constant(size) => size.get(),
        other => panic!("wanted an array of fixed size, found {other:?}"),
    }
}

/// Appends the word of each scalar of a type in a buffer, counted from word `at`.
fn in_buffer(module: &Module, inner: &TypeInner, at: u32, words: &mut Vec<u32>) {
    match inner {
        TypeInner::Scalar(_) | TypeInner::Atomic(_) => words.push(at),
        TypeInner::Vector { size, .. } => words.extend((0..*size as u32).map(|i| at + i)),
        TypeInner::Array { base, size, stride } => {
            let inner = &module.types[*base].inner;
            (0..elements(*size)).for_each(|i| in_buffer(module, inner, at + i * stride / 4, words));
        }
        TypeInner::Struct { members, .. } => {
            for member in members {
                in_buffer(module, &module.types[member.ty].inner, at + member.offset / 4, words);
            }
        }
        other => panic!("no code for the type {other:?} in a buffer"),
    }
}

/// The words of a value that a pointer points to.
pub(super) fn words(module: &Module, inner: &TypeInner, buffer: bool) -> Vec<u32> {
    if !buffer {
        return (0..scalars(module, inner)).collect();
    }
    let mut words = Vec::new();
    in_buffer(module, inner, 0, &mut words);
    words
}

/// A part of a type: its first word, its distance to the next part, and the number of parts (`None` for an array that ends with the
/// buffer).
pub(super) struct Part {
    pub(super) at: u32,
    pub(super) stride: u32,
    pub(super) count: Option<u32>,
}

/// Part `index` of a type, where the words lie as in a buffer or densely.
pub(super) fn part(module: &Module, inner: &TypeInner, index: u32, buffer: bool) -> Part {
    let dense = |ty: Handle<Type>| scalars(module, &module.types[ty].inner);
    match inner {
        TypeInner::Vector { size, .. } => Part { at: index, stride: 1, count: Some(*size as u32) },
        TypeInner::Array { base, size, stride } => {
            let stride = if buffer { stride / 4 } else { dense(*base) };
            let count = (*size != ArraySize::Dynamic).then(|| elements(*size));
            Part { at: index * stride, stride, count }
        }
        TypeInner::Struct { members, .. } => {
            let at = match buffer {
                true => members[index as usize].offset / 4,
                false => members[..index as usize].iter().map(|member| dense(member.ty)).sum(),
            };
            Part { at, stride: 0, count: Some(members.len() as u32) }
        }
        other => panic!("no parts of the type {other:?}"),
    }
}
