//! The only unsafe code of the crate, behind safe functions that check what the unsafe code needs: rows of one slice
//! handed to several threads, words that several threads write, prefetches of memory, the crate's own shaders compiled
//! without runtime checks, and bytes copied out of a mapped file.

#![allow(unsafe_code, reason = "the only file of the library with unsafe code")]

use std::{
    marker::PhantomData,
    sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed},
};

use rayon::prelude::*;

/// Number of rows ahead of the current one whose memory is prefetched: about as many lines as a second-level cache can wait for at once.
pub(crate) const AHEAD: usize = 32;

/// The text of a stage, from the crate's own files. Only `wgsl::composed` makes one, so [`shader_module`] can trust it.
pub(crate) struct Composed {
    pub(crate) name: &'static str,
    pub(crate) wgsl: String,
}

/// Compiles a stage without the bounds checks and loop counters that wgpu adds to untrusted shaders.
pub(crate) fn shader_module(device: &wgpu::Device, text: Composed) -> wgpu::ShaderModule {
    let Composed { name, wgsl } = text;
    let descriptor = wgpu::ShaderModuleDescriptor { label: Some(name), source: wgpu::ShaderSource::Wgsl(wgsl.into()) };
    // SAFETY: the text is the crate's own: only `wgsl::composed` makes a `Composed`, from the files under shaders/.
    // Every index in it is bounded by counts and sizes of buffers that the host binds, after linearize has checked the
    // caller's indices. Every loop ends. There are no ray queries. The stage tests run in this mode too, with guard
    // words behind every array.
    unsafe { device.create_shader_module_trusted(descriptor, wgpu::ShaderRuntimeChecks::unchecked()) }
}

/// A file mapped for reading.
#[cfg(feature = "file")]
#[derive(Debug)]
pub(crate) struct Mapping(memmap2::MmapRaw);

#[cfg(feature = "file")]
impl Mapping {
    /// Maps all of `file`, at its present length.
    pub(crate) fn new(file: &std::fs::File) -> std::io::Result<Self> {
        let map = memmap2::MmapOptions::new().map_raw_read_only(file)?;
        // Rows are scattered, so reading ahead would fetch bytes that nobody needs. This is a hint: a refusal does no
        // harm.
        #[cfg(unix)]
        let _ = map.advise(memmap2::Advice::Random);
        Ok(Self(map))
    }

    /// Copies the bytes from `at` on into `out`. They lie within the file.
    pub(crate) fn copy(&self, at: usize, out: &mut [u8]) {
        assert!(at <= self.0.len() && out.len() <= self.0.len() - at, "bytes beyond the end of the file");
        // SAFETY: the bytes lie within the map, which lives as long as `self`; `out` is borrowed mutably, so nothing
        // else points there. No reference into the map is ever made, so the compiler assumes nothing about bytes that
        // another program may change meanwhile, and any byte is a valid one. If the file becomes shorter than its map,
        // SIGBUS ends the program and corrupts nothing.
        unsafe { std::ptr::copy_nonoverlapping(self.0.as_ptr().add(at), out.as_mut_ptr(), out.len()) }
    }

    /// Prefetches the bytes from `at` on.
    pub(crate) fn prefetch(&self, at: usize, bytes: usize) {
        prefetch_bytes::<0>(self.0.as_ptr().wrapping_add(at).cast(), bytes);
    }
}

/// A word that several threads may write at once.
///
/// # Safety
/// `Shared` is the atomic type of the same size, of which every bit pattern is valid.
pub(crate) unsafe trait Word: Sized {
    /// The same word, shared.
    type Shared: Sync;

    fn load(shared: &Self::Shared) -> Self;

    fn store(shared: &Self::Shared, word: Self);
}

macro_rules! words {
    ($($word:ident: $shared:ident),+) => {
        $(
        // SAFETY: each type has the size of its atomic type, which allows every bit pattern.
        unsafe impl Word for $word {
            type Shared = $shared;

            #[inline(always)]
            fn load(shared: &$shared) -> Self {
                shared.load(Relaxed)
            }

            #[inline(always)]
            fn store(shared: &$shared, word: Self) {
                shared.store(word, Relaxed);
            }
        })+
    };
}

words!(u8: AtomicU8, u16: AtomicU16, u32: AtomicU32, u64: AtomicU64);

/// The same words, which several threads may write at once.
pub(crate) fn shared<W: Word>(words: &mut [W]) -> &[W::Shared] {
    // Fails on 32-bit x86, whose u64 lies at multiples of 4 bytes and AtomicU64 at multiples of 8.
    const { assert!(size_of::<W::Shared>() == size_of::<W>() && align_of::<W::Shared>() == align_of::<W>()) };
    // SAFETY: by the contract of `Word` every bit pattern of the atomic type is valid; size and alignment are checked above. The slice is
    // borrowed mutably, so that nobody reads or writes its words otherwise while the result lives.
    unsafe { &*(std::ptr::from_mut(words) as *const [W::Shared]) }
}

/// Calls `work(item, row)` on all cores, in the order of `targets` (pairs of item and row). Rows are `width` values of
/// `data`. Returns `None` and does nothing if a row comes twice or does not exist.
pub(crate) fn map_rows<T: Send, R: Send>(
    data: &mut [T],
    width: usize,
    targets: &[(usize, usize)],
    work: impl Fn(usize, &mut [T]) -> R + Sync,
) -> Option<Vec<R>> {
    let rows = Rows::new(data, width);
    if !distinct(targets, rows.rows) {
        return None;
    }
    let one = |(k, &(item, row)): (usize, &(usize, usize))| {
        if let Some(&(_, next)) = targets.get(k + AHEAD) {
            rows.prefetch(next);
        }
        // SAFETY: `distinct` has checked that every target is below `rows.rows` and occurs once.
        work(item, unsafe { rows.row(row) })
    };
    Some(targets.par_iter().enumerate().map(one).collect())
}

/// Rows of `width` values, each of which can be borrowed mutably by itself.
struct Rows<'a, T> {
    data: *mut T,
    width: usize,
    rows: usize,
    whole: PhantomData<&'a mut [T]>,
}

// SAFETY: `Rows` is a mutable borrow of a slice and hands out disjoint parts of it (the contract of `Rows::row`).
// Sharing it is as safe as sending the parts, which `T: Send` allows.
unsafe impl<T: Send> Sync for Rows<'_, T> {}

impl<'a, T> Rows<'a, T> {
    fn new(data: &'a mut [T], width: usize) -> Self {
        Self { width, rows: data.len() / width, data: data.as_mut_ptr(), whole: PhantomData }
    }

    /// Prefetches a row.
    fn prefetch(&self, row: usize) {
        prefetch_bytes::<0>(self.data.wrapping_add(row * self.width).cast_const().cast(), self.width * size_of::<T>());
    }

    /// Borrows row `row`.
    ///
    /// # Safety
    /// `row` is below `self.rows`, and no row is requested twice from one `Rows`.
    #[allow(clippy::mut_from_ref, reason = "the safety contract keeps the borrowed rows disjoint")]
    unsafe fn row(&self, row: usize) -> &mut [T] {
        // SAFETY: rows * width values lie behind `data`, borrowed mutably for as long as `self` lives; by the contract this
        // row lies within them and nobody else holds it.
        unsafe { std::slice::from_raw_parts_mut(self.data.add(row * self.width), self.width) }
    }
}

/// Whether every row is below `rows` and none comes twice.
fn distinct(targets: &[(usize, usize)], rows: usize) -> bool {
    // The system zeroes large allocations lazily: pages that are not touched cost nothing.
    let mut seen = vec![0u64; rows.div_ceil(64)];
    targets.iter().all(|&(_, row)| {
        let new = row < rows && seen[row / 64] >> (row % 64) & 1 == 0;
        if new {
            seen[row / 64] |= 1 << (row % 64);
        }
        new
    })
}

/// Prefetches the memory of `data` into the second-level cache, where the processor has such an instruction. It waits for nothing and
/// changes nothing. The first-level cache waits for fewer lines at once: on Zen 4, rows of 256 bytes from memory come 1.5 times as fast to
/// the second level.
#[inline(always)]
pub fn prefetch<T>(data: &[T]) {
    prefetch_bytes::<0>(data.as_ptr().cast(), size_of_val(data));
}

/// Prefetches `len` values from `at` on, if they exist. They are known to touch at least `LINES` cache lines.
#[inline(always)]
pub(crate) fn prefetch_lines<const LINES: usize, T>(data: &[T], at: usize, len: usize) {
    prefetch_bytes::<LINES>(data.as_ptr().wrapping_add(at).cast(), len * size_of::<T>());
}

#[inline(always)]
fn prefetch_bytes<const LINES: usize>(start: *const i8, bytes: usize) {
    const LINE: usize = 64;
    for line in 0..LINES {
        prefetch_line(start.wrapping_add(line * LINE));
    }
    for at in (LINES * LINE..bytes).step_by(LINE) {
        prefetch_line(start.wrapping_add(at));
    }
    // Bytes that begin in the middle of a line end in one more.
    prefetch_line(start.wrapping_add(bytes.saturating_sub(1)));
}

#[inline(always)]
fn prefetch_line(_at: *const i8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, valid for any address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(_at);
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a hint, valid for any address.
    unsafe {
        std::arch::asm!("prfm pldl2keep, [{}]", in(reg) _at, options(nostack, readonly, preserves_flags));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_row_is_seen() {
        assert!(distinct(&[(0, 3), (1, 64), (2, 0)], 65));
        assert!(!distinct(&[(0, 3), (1, 64), (2, 3)], 65));
        assert!(!distinct(&[(0, 65)], 65));
    }

    #[test]
    fn nothing_is_done_where_rows_are_not_distinct() {
        let mut data = [0u32; 8];
        let work = |item: usize, row: &mut [u32]| {
            row.fill(item as u32 + 1);
            item
        };
        assert_eq!(map_rows(&mut data, 2, &[(0, 3), (1, 3)], work), None);
        assert_eq!(map_rows(&mut data, 2, &[(0, 4)], work), None);
        assert_eq!(data, [0; 8]);
        assert_eq!(map_rows(&mut data, 2, &[(5, 3), (1, 0)], work), Some(vec![5, 1]));
        assert_eq!(data, [2, 2, 0, 0, 0, 0, 6, 6]);
    }
}
