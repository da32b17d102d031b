//! The only unsafe code of the crate, behind safe functions that check what the unsafe code needs: words that several
//! threads write, columns of rows that are checked once, prefetches of
//! memory, instructions that the compiler does not find by itself, the crate's own shaders compiled without runtime
//! checks, and bytes copied out of a mapped file.

#![allow(unsafe_code, reason = "the only file of the library with unsafe code")]

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

/// Number of rows ahead of the current one whose memory is prefetched: about as many as a processor fetches while it waits for one.
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
    // caller's indices. Every loop ends. There are no ray queries. The GPU tests run in this mode too, and the lane
    // executor, which finds every word out of bounds, runs every stage.
    unsafe { device.create_shader_module_trusted(descriptor, wgpu::ShaderRuntimeChecks::unchecked()) }
}

/// Has NTFS keep no pages for the parts of `file` that nobody has written.
#[cfg(all(windows, feature = "file"))]
pub(crate) fn make_sparse(file: &std::fs::File) -> std::io::Result<()> {
    use std::{ffi::c_void, os::windows::io::AsRawHandle as _, ptr::null_mut};
    #[link(name = "kernel32")]
    unsafe extern "system" {
        fn DeviceIoControl(
            device: *mut c_void,
            code: u32,
            input: *mut c_void,
            input_bytes: u32,
            output: *mut c_void,
            output_bytes: u32,
            returned: *mut u32,
            overlapped: *mut c_void,
        ) -> i32;
    }
    const FSCTL_SET_SPARSE: u32 = 0x0009_00c4;
    let (device, mut returned) = (file.as_raw_handle(), 0);
    // SAFETY: the handle belongs to an open file. The code takes no input and gives no output, so both buffers may be null; the call waits, and
    // writes one number, to `returned`.
    let done = unsafe {
        DeviceIoControl(device, FSCTL_SET_SPARSE, null_mut(), 0, null_mut(), 0, &raw mut returned, null_mut())
    };
    if done == 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

/// A cache of pipelines on `device`, with what `earlier` knows.
#[cfg(feature = "internals")]
pub(crate) fn pipeline_cache(device: &wgpu::Device, earlier: Option<&wgpu::PipelineCache>) -> wgpu::PipelineCache {
    let data = earlier.and_then(wgpu::PipelineCache::get_data);
    let descriptor = wgpu::PipelineCacheDescriptor { label: Some("hotrow"), data: data.as_deref(), fallback: true };
    // SAFETY: the data comes from a cache of this process, and nothing has changed it.
    unsafe { device.create_pipeline_cache(&descriptor) }
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

    /// Whether the page of the byte at `at` is in memory; true where the system does not say.
    #[cfg(unix)]
    pub(crate) fn is_resident(&self, at: usize) -> bool {
        assert!(at < self.0.len(), "a byte beyond the end of the file");
        let mut found = 1u8;
        // SAFETY: the number of bytes of a page, a power of two; -1 would be none.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(1);
        let start = self.0.as_mut_ptr().wrapping_add(at & !(page - 1));
        // SAFETY: the page begins within the map, which begins at a page and lives as long as `self`. For one byte, thus one page, the system writes
        // one byte, to `found`.
        let known = unsafe { libc::mincore(start.cast(), 1, std::ptr::from_mut(&mut found).cast()) } == 0;
        !known || found & 1 == 1
    }

    /// Has the system read the `bytes` from each start on, all at once, so that the disk serves many reads together: a thread that copies them waits for
    /// one at a time. To ask for bytes that are in memory takes longer than to copy them, so it first looks whether four of them are, and then asks
    /// for none.
    #[cfg(unix)]
    pub(crate) fn request(&self, starts: &[usize], bytes: usize) {
        let quarter = starts.len().div_ceil(4).max(1);
        if starts.iter().step_by(quarter).any(|&at| !self.is_resident(at)) {
            for &at in starts {
                // A hint, as above.
                let _ = self.0.advise_range(memmap2::Advice::WillNeed, at, bytes);
            }
        }
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

/// A bit for each word that equals `wanted`, the first word's lowest.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn equal(words: &[u32; 32], wanted: u32) -> u32 {
    use std::arch::x86_64::{_mm_cmpeq_epi32, _mm_movemask_epi8, _mm_packs_epi16, _mm_packs_epi32, _mm_set1_epi32};
    // A loop over words becomes twice as many instructions.
    #[target_feature(enable = "sse2")]
    #[inline]
    fn bits(words: &[u32; 16], wanted: u32) -> u32 {
        let wanted = _mm_set1_epi32(wanted.cast_signed());
        let [a, b, c, d] = bytemuck::cast::<[u32; 16], [std::arch::x86_64::__m128i; 4]>(*words)
            .map(|words| _mm_cmpeq_epi32(words, wanted));
        // Equal words are ones only, so that each pack keeps them.
        _mm_movemask_epi8(_mm_packs_epi16(_mm_packs_epi32(a, b), _mm_packs_epi32(c, d))).cast_unsigned()
    }
    let [low, high] = bytemuck::cast_ref::<[u32; 32], [[u32; 16]; 2]>(words);
    // SAFETY: every x86-64 processor has SSE2.
    unsafe { bits(low, wanted) | bits(high, wanted) << 16 }
}

/// A bit for each word that equals `wanted`, the first word's lowest.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(crate) fn equal(words: &[u32; 32], wanted: u32) -> u32 {
    words.iter().rev().fold(0, |bits, &word| bits << 1 | u32::from(word == wanted))
}

/// `len` values from the same place on in each row of an array. They are checked once for all rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Columns<'a, T> {
    values: &'a [T],
    rows: usize,
    width: usize,
    at: usize,
    len: usize,
}

impl<'a, T> Columns<'a, T> {
    /// Values `at .. at + len` of each of `rows` rows of `width` values. Panics if a row lacks them, or the array a row.
    #[inline(always)]
    pub(crate) fn new(values: &'a [T], rows: usize, width: usize, at: usize, len: usize) -> Self {
        assert!(rows.checked_mul(width).is_some_and(|all| all <= values.len()), "rows beyond the end of their array");
        assert!(at <= width && len <= width - at, "columns beyond the end of a row");
        Self { values, rows, width, at, len }
    }

    /// The values of one row; `None` if there is no such row.
    #[inline(always)]
    pub(crate) fn of(&self, row: u32) -> Option<&'a [T]> {
        let row = row as usize;
        if row >= self.rows {
            return None;
        }
        let start = row * self.width + self.at;
        // SAFETY: `new` has checked that `rows * width` values exist and `at + len <= width`; `row < rows`, so that the values end at
        // `(row + 1) * width` or before.
        Some(unsafe { self.values.get_unchecked(start..start + self.len) })
    }
}

/// A processor's instruction that widens halves, eight at a time, or sixteen if `WIDE`. It exists only where a processor has it.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Widener<const WIDE: bool>(());

#[cfg(target_arch = "x86_64")]
impl<const WIDE: bool> Widener<WIDE> {
    /// The instruction, if this processor has it.
    #[inline(always)]
    pub(crate) fn here() -> Option<Self> {
        // In loops for processors with less than AVX2 the instruction would stand behind a call.
        let narrow = is_x86_feature_detected!("f16c") && is_x86_feature_detected!("avx2");
        (narrow && (!WIDE || is_x86_feature_detected!("avx512f"))).then_some(Self(()))
    }

    /// Converts halves to floats, exactly. N is a multiple of 8. With `WIDE` a vector of 16 is stored at once if N allows: a load as wide
    /// would wait for two stores to reach the cache.
    #[inline(always)]
    pub(crate) fn widen<const N: usize>(self, halves: &[u16; N]) -> [f32; N] {
        #[target_feature(enable = "f16c")]
        #[inline]
        fn eight(halves: [u16; 8]) -> [f32; 8] {
            bytemuck::cast(std::arch::x86_64::_mm256_cvtph_ps(bytemuck::cast(halves)))
        }
        #[target_feature(enable = "avx512f")]
        #[inline]
        fn sixteen(halves: [u16; 16]) -> [f32; 16] {
            let wide = std::arch::x86_64::_mm512_cvtph_ps(bytemuck::cast(halves));
            // SAFETY: both types are 16 floats.
            unsafe { std::mem::transmute(wide) }
        }
        debug_assert!(N.is_multiple_of(8));
        let mut floats = [0.0; N];
        if WIDE && N.is_multiple_of(16) {
            for (floats, halves) in floats.as_chunks_mut().0.iter_mut().zip(halves.as_chunks().0) {
                // SAFETY: a wide `Widener` exists only where `here` has found the instruction.
                *floats = unsafe { sixteen(*halves) };
            }
        } else {
            for (floats, halves) in floats.as_chunks_mut().0.iter_mut().zip(halves.as_chunks().0) {
                // SAFETY: a `Widener` exists only where `here` has found the instruction.
                *floats = unsafe { eight(*halves) };
            }
        }
        floats
    }
}

/// On other processors the compiler's code for the conversion by integers is taken.
#[cfg(not(target_arch = "x86_64"))]
#[derive(Clone, Copy, Debug)]
pub(crate) enum Widener<const WIDE: bool> {}

#[cfg(not(target_arch = "x86_64"))]
impl<const WIDE: bool> Widener<WIDE> {
    pub(crate) fn here() -> Option<Self> {
        None
    }

    pub(crate) fn widen<const N: usize>(self, _: &[u16; N]) -> [f32; N] {
        match self {}
    }
}

/// Prefetches the memory of `data`, where the processor has such an instruction. It waits for nothing and changes nothing. Rows go into the
/// first-level cache. Into the second level, Zen 4 fetched rows of 256 bytes 1.7 times as fast, but Zen 5 lost some of them again: FP16 rows
/// with AdaGrad then took 2.5 times as long.
#[inline(always)]
pub(crate) fn prefetch<T>(data: &[T]) {
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
    // A few bytes more are nearly always in the last line.
    if bytes > LINES * LINE + 8 {
        for at in (LINES * LINE..bytes).step_by(LINE) {
            prefetch_line(start.wrapping_add(at));
        }
    }
    // Bytes that begin in the middle of a line end in one more.
    prefetch_line(start.wrapping_add(bytes.saturating_sub(1)));
}

#[inline(always)]
fn prefetch_line(_at: *const i8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, valid for any address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(_at);
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a hint, valid for any address.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) _at, options(nostack, readonly, preserves_flags));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_end_with_the_rows() {
        let values: Vec<u32> = (0..23).collect();
        let columns = Columns::new(&values, 4, 5, 2, 3);
        assert_eq!(columns.of(0), Some(&values[2..5]));
        assert_eq!(columns.of(3), Some(&values[17..20]));
        // A fifth row would lie within the array in part.
        assert_eq!([4, u32::MAX].map(|row| columns.of(row)), [None; 2]);
        assert_eq!(Columns::new(&values, 4, 5, 5, 0).of(3), Some(&values[0..0]));
        assert_eq!(Columns::<u32>::new(&[], 0, 5, 0, 5).of(0), None);
        for (rows, width, at, len) in
            [(5, 5, 0, 1), (usize::MAX, 2, 0, 1), (4, 5, 3, 3), (4, 5, 6, 0), (4, 5, 1, usize::MAX)]
        {
            let made = std::panic::catch_unwind(|| Columns::new(&values, rows, width, at, len).of(0));
            assert!(made.is_err(), "{rows} {width} {at} {len}");
        }
    }

    fn all_halves_widen_exactly<const WIDE: bool, const N: usize>() -> usize {
        let Some(widener) = Widener::<WIDE>::here() else { return 0 };
        let halves: Vec<u16> = (0..=u16::MAX).collect();
        let mut wrong = 0;
        for halves in halves.as_chunks::<N>().0 {
            for (&half, float) in halves.iter().zip(widener.widen(halves)) {
                let wanted = crate::record::codec::f32_from_half(half.into());
                // The processor takes the largest exponent for infinity and NaN.
                if half & 0x7c00 == 0x7c00 {
                    assert!(!float.is_finite(), "{half:#x}");
                    wrong += 1;
                } else {
                    assert_eq!(float.to_bits(), wanted.to_bits(), "{half:#x}");
                }
            }
        }
        wrong
    }

    #[test]
    fn the_processor_widens_halves_exactly() {
        let wrong = [
            all_halves_widen_exactly::<false, 8>(),
            all_halves_widen_exactly::<false, 64>(),
            all_halves_widen_exactly::<true, 8>(),
            all_halves_widen_exactly::<true, 16>(),
            all_halves_widen_exactly::<true, 64>(),
        ];
        let expected = [Widener::<false>::here().is_some(), Widener::<true>::here().is_some()]
            .map(|here| if here { 2048 } else { 0 });
        assert_eq!(wrong, [expected[0], expected[0], expected[1], expected[1], expected[1]]);
    }

    #[test]
    fn each_equal_word_has_its_bit() {
        let words: [u32; 32] = std::array::from_fn(|k| 0x8000_0000 + k as u32);
        for (k, &word) in words.iter().enumerate() {
            assert_eq!(equal(&words, word), 1 << k);
        }
        assert_eq!(equal(&words, 5), 0);
        assert_eq!(equal(&[u32::MAX; 32], u32::MAX), u32::MAX);
        let mut twice = words;
        twice[31] = words[3];
        assert_eq!(equal(&twice, words[3]), 1 << 3 | 1 << 31);
    }
}
