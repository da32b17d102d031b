//! Sizes and numbers as people write them: 64MiB, 1.5GB, 1e9.

use bytesize::ByteSize;
use hotrow_report::spec::read;

/// The largest size, so that sums of a few stay far below 2^64.
const MOST: u64 = 1 << 60;

/// A size in bytes, with or without a unit.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let wanted = "a size of at most 1 EiB, such as 65536, 64MiB or 1.5GB";
    read(text, wanted, |size: &ByteSize| size.0 <= MOST).map(|size| size.0)
}

pub(super) fn some_bytes(text: &str) -> Result<u64, String> {
    match bytes(text)? {
        0 => Err("wanted at least one byte".to_owned()),
        bytes => Ok(bytes),
    }
}

/// A whole number from 1 to 2^53, in digits or as 1e9.
pub(super) fn count(text: &str) -> Result<u64, String> {
    let legal = |number: &f64| number.fract() == 0.0 && (1.0..=9_007_199_254_740_992.0).contains(number);
    Ok(read(text, "a whole number from 1 to 2^53, such as 4096 or 1e9", legal)? as u64)
}

pub(super) fn positive(text: &str) -> Result<f64, String> {
    read(text, "a number above 0", |number: &f64| *number > 0.0 && number.is_finite())
}

/// The largest number below `most` that fits, if any does; all smaller ones fit, too.
pub(super) fn largest(most: u32, fits: impl Fn(u32) -> bool) -> Option<u32> {
    let (mut low, mut high) = (0, most);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(middle) { low = middle } else { high = middle }
    }
    (low > 0).then_some(low)
}

/// The most bytes of one binding on a Vulkan device through wgpu.
pub(super) const BINDING: u64 = (1 << 31) - 256;

/// Most floats in a row.
pub(super) const MOST_DIM: u32 = 1 << 24;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_and_counts_are_whole() {
        for (text, wanted) in [("65536", 65_536), ("64MiB", 64 << 20), (" 1.5 GB", 1_500_000_000), ("0", 0)] {
            assert_eq!(bytes(text), Ok(wanted), "{text}");
        }
        for text in ["", "MiB", "-1", "1e3", "12 parsecs", "2EiB"] {
            assert!(bytes(text).is_err() && count(text) != Ok(0), "{text}");
        }
        assert!(some_bytes("0MiB").is_err() && some_bytes("1") == Ok(1));
        let counts = ["1e9", "0", "1.5", "nan", "1e17"].map(|text| count(text).ok());
        assert_eq!(counts, [Some(1_000_000_000), None, None, None, None]);
        assert!(positive("1.5") == Ok(1.5) && positive("0").is_err() && positive("nan").is_err());
        assert_eq!([100, 8, 7, 1, 0].map(|most| largest(most, |n| n <= 7)), [Some(7), Some(7), Some(6), None, None]);
    }
}
