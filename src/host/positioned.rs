//! Reads and writes at a position of a file, from several threads at once, without a shared cursor.

use std::{fs::File, io};

#[cfg(unix)]
use std::os::unix::fs::FileExt;

/// Fills `out` from byte `at` on.
#[cfg(unix)]
pub(crate) fn read_exact_at(file: &File, out: &mut [u8], at: u64) -> io::Result<()> {
    file.read_exact_at(out, at)
}

/// Writes all of `bytes` from byte `at` on.
#[cfg(all(unix, feature = "file"))]
pub(crate) fn write_all_at(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    file.write_all_at(bytes, at)
}

/// Fills `out` from byte `at` on.
#[cfg(windows)]
pub(crate) fn read_exact_at(file: &File, mut out: &mut [u8], mut at: u64) -> io::Result<()> {
    while !out.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, out, at) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => (out, at) = (&mut out[n..], at + n as u64),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Writes all of `bytes` from byte `at` on.
#[cfg(all(windows, feature = "file"))]
pub(crate) fn write_all_at(file: &File, mut bytes: &[u8], mut at: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match std::os::windows::fs::FileExt::seek_write(file, bytes, at) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => (bytes, at) = (&bytes[n..], at + n as u64),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
