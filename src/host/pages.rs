//! Large arrays: they begin at a cache line, and in huge pages where the system gives them.

use std::{
    marker::PhantomData,
    ops::{Deref, DerefMut},
};

use bytemuck::{AnyBitPattern, NoUninit, Pod, Zeroable};

use crate::{error::Error, host::alloc::zeroed};

/// Bytes of a huge page on most machines. A smaller array is an ordinary allocation.
const HUGE: usize = 2 << 20;

/// A cache line.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u64; 8]);

/// An array of words that begins at a multiple of 64 bytes.
#[derive(Debug)]
pub(crate) struct Pages<T> {
    memory: Memory,
    len: usize,
    kind: PhantomData<T>,
}

#[derive(Debug)]
enum Memory {
    Lines(Vec<Line>),
    #[cfg(target_os = "linux")]
    Mapped(memmap2::MmapMut),
}

impl<T> Pages<T> {
    /// Allocates `len` zeros. The error names `what`.
    pub(crate) fn zeroed(what: &'static str, len: usize) -> Result<Self, Error> {
        let bytes = len.saturating_mul(size_of::<T>());
        let memory =
            if cfg!(target_os = "linux") && bytes >= HUGE { mapped(what, bytes)? } else { lines(what, bytes)? };
        Ok(Self { memory, len, kind: PhantomData })
    }

    /// The most bytes that may lie in huge pages, by Linux's report of the program's memory ([`smaps`]). Linux reports neighbouring arrays
    /// as one.
    pub(crate) fn huge_bytes(&self, smaps: &str) -> u64 {
        match &self.memory {
            Memory::Lines(_) => 0,
            #[cfg(target_os = "linux")]
            Memory::Mapped(map) => huge_in(smaps, map.as_ptr().addr()).min(map.len() as u64),
        }
    }
}

/// A buffer that begins at a multiple of 64 bytes and grows as asked. A wide load of an unaligned buffer would wait until the stores before it
/// have reached the cache.
#[derive(Debug, Default)]
pub(crate) struct Buffer(Vec<Line>);

impl Buffer {
    /// The first `len` values, whose contents do not matter.
    pub(crate) fn of<T: Pod>(&mut self, len: usize) -> &mut [T] {
        let lines = (len * size_of::<T>()).div_ceil(size_of::<Line>());
        if self.0.len() < lines {
            self.0.resize(lines, Line::default());
        }
        &mut bytemuck::cast_slice_mut(&mut self.0)[..len]
    }
}

/// Linux's report of the program's memory; empty on other systems.
pub(crate) fn smaps() -> String {
    if cfg!(target_os = "linux") {
        std::fs::read_to_string("/proc/self/smaps").unwrap_or_default()
    } else {
        String::new()
    }
}

fn lines(what: &'static str, bytes: usize) -> Result<Memory, Error> {
    Ok(Memory::Lines(zeroed(what, bytes.div_ceil(size_of::<Line>()))?))
}

#[cfg(target_os = "linux")]
fn mapped(what: &'static str, bytes: usize) -> Result<Memory, Error> {
    let map = memmap2::MmapMut::map_anon(bytes).map_err(|_| Error::OutOfMemory { what, bytes: bytes as u64 })?;
    // A refusal does no harm: the array then lies in ordinary pages.
    let _ = map.advise(memmap2::Advice::HugePage);
    Ok(Memory::Mapped(map))
}

#[cfg(not(target_os = "linux"))]
fn mapped(what: &'static str, bytes: usize) -> Result<Memory, Error> {
    lines(what, bytes)
}

/// The bytes in huge pages of the mapping that holds `address`, in the words of Linux's `smaps`.
#[cfg(target_os = "linux")]
fn huge_in(smaps: &str, address: usize) -> u64 {
    let mut inside = false;
    for line in smaps.lines() {
        let range = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
        if let Some((start, end)) = range
            && let (Ok(start), Ok(end)) = (usize::from_str_radix(start, 16), usize::from_str_radix(end, 16))
        {
            inside = (start..end).contains(&address);
        } else if inside && let Some(rest) = line.strip_prefix("AnonHugePages:") {
            let kilobytes = rest.trim().trim_end_matches("kB").trim();
            return kilobytes.parse::<u64>().unwrap_or(0) * 1024;
        }
    }
    0
}

impl<T: AnyBitPattern + NoUninit> Deref for Pages<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        let bytes: &[u8] = match &self.memory {
            Memory::Lines(lines) => bytemuck::cast_slice(lines),
            #[cfg(target_os = "linux")]
            Memory::Mapped(map) => map,
        };
        bytemuck::cast_slice(&bytes[..self.len * size_of::<T>()])
    }
}

impl<T: AnyBitPattern + NoUninit> DerefMut for Pages<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        let bytes: &mut [u8] = match &mut self.memory {
            Memory::Lines(lines) => bytemuck::cast_slice_mut(lines),
            #[cfg(target_os = "linux")]
            Memory::Mapped(map) => map,
        };
        bytemuck::cast_slice_mut(&mut bytes[..self.len * size_of::<T>()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_begin_at_a_cache_line_and_hold_zeros() {
        for len in [0, 1, 15, 17, HUGE / 4 - 1, HUGE / 4, 3 * HUGE / 4 + 5] {
            let mut pages = Pages::<u32>::zeroed("records", len).unwrap();
            assert_eq!(pages.len(), len);
            assert_eq!(pages.as_ptr().addr() % 64, 0, "{len} words");
            assert!(pages.iter().all(|&word| word == 0));
            pages.fill(7);
            assert!(pages.iter().all(|&word| word == 7));
        }
    }

    #[test]
    fn memory_that_nobody_has_is_refused() {
        let error = Pages::<u32>::zeroed("records", usize::MAX / 8).unwrap_err();
        assert!(matches!(error, Error::OutOfMemory { what: "records", .. }), "{error}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_system_says_what_lies_in_huge_pages() {
        let smaps = "7f0000000000-7f0000400000 rw-p 00000000 00:00 0 \nSize: 4096 kB\nAnonHugePages:      4096 kB\nVmFlags: rd\n\
                     7f0000400000-7f0000500000 rw-p 00000000 00:00 0 \nAnonHugePages:         0 kB\n";
        assert_eq!(huge_in(smaps, 0x7f00_0000_1000), 4 << 20);
        assert_eq!(huge_in(smaps, 0x7f00_0040_0000), 0);
        assert_eq!(huge_in(smaps, 0x10), 0);

        // Linux reports this array and a neighbour as one mapping. No more is said than the array has.
        let pages = Pages::<u32>::zeroed("records", HUGE).unwrap();
        let at = pages.as_ptr().addr();
        let smaps = |kilobytes: u32| {
            format!("{:x}-{:x} rw-p 00000000 00:00 0 \nAnonHugePages: {kilobytes} kB\n", at - HUGE, at + 9 * HUGE)
        };
        assert_eq!(pages.huge_bytes(&smaps(2048)), 2048 << 10);
        assert_eq!(pages.huge_bytes(&smaps(100_000)), 4 * HUGE as u64);
        assert_eq!(pages.huge_bytes(""), 0);
        assert!(super::smaps().contains("AnonHugePages"));
    }
}
