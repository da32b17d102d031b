//! Texts: options, distributions, and the JSON of measurements.

use std::ffi::OsString;

use hotrow_cli::internals;

pub(crate) fn bench_json(data: &[u8]) -> bool {
    internals::bench_compare(data).is_ok_and(|figures| {
        assert!((1..=1000).contains(&figures));
        true
    })
}

pub(crate) fn distribution(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    let Ok((rows, drawn)) = internals::distribution(text, 16) else { return false };
    assert!(drawn.len() == 16 && drawn.iter().all(|&row| u64::from(row) < rows));
    true
}

/// A command line, one argument a line.
pub(crate) fn options(data: &[u8]) -> bool {
    let text = String::from_utf8_lossy(data);
    internals::options(["hotrow"].into_iter().chain(text.lines()).map(OsString::from)).is_ok()
}
