//! A store that fails once, at its n-th call, or refuses all writes, like a disk that is full for a while.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicI64, Ordering::Relaxed},
};

use hotrow::{Error, GroupConfig, Store};

#[derive(Debug)]
pub struct Failing<S> {
    pub inner: S,
    /// Number of calls before the one that fails.
    pub patience: Arc<AtomicI64>,
    /// Whether the store refuses all writes.
    pub full: Arc<AtomicBool>,
}

impl<S: Store> Failing<S> {
    /// Fails at no call until told so.
    pub fn new(inner: S) -> Self {
        Self { inner, patience: Arc::new(AtomicI64::new(i64::MAX)), full: Arc::default() }
    }

    fn attempt(&self) -> Result<(), Error> {
        if self.patience.fetch_sub(1, Relaxed) == 0 { Self::no_room() } else { Ok(()) }
    }

    fn no_room() -> Result<(), Error> {
        let (wanted, found) = ("room".into(), "none".into());
        Err(Error::Store { store: "test".into(), what: "disk", wanted, found, remedy: "wait", source: None })
    }
}

impl<S: Store> Store for Failing<S> {
    goes_on! { inner;
        fn rows(self: &Self) -> u32;
        fn stride(self: &Self) -> u64;
        fn step(self: &Self) -> u32;
        fn filled(self: &Self) -> bool;
        fn check(self: &Self, config: &GroupConfig) -> Result<(), Error>;
    }

    fn read(&self, rows: &[u32], out: &mut [u8]) -> Result<(), Error> {
        self.attempt()?;
        self.inner.read(rows, out)
    }
    fn write(&mut self, rows: &[u32], records: &[u8]) -> Result<(), Error> {
        if self.full.load(Relaxed) {
            return Self::no_room();
        }
        // Half of the records are written before the failure; the caller repeats the call.
        let half = rows.len() / 2;
        self.inner.write(&rows[..half], &records[..half * self.inner.stride() as usize])?;
        self.attempt()?;
        self.inner.write(rows, records)
    }
    fn read_range(&self, first_row: u32, out: &mut [u8]) -> Result<(), Error> {
        self.attempt()?;
        self.inner.read_range(first_row, out)
    }
    fn write_range(&mut self, first_row: u32, records: &[u8]) -> Result<(), Error> {
        self.attempt()?;
        self.inner.write_range(first_row, records)
    }
    fn unflushed(&mut self) -> Result<(), Error> {
        self.attempt()?;
        self.inner.unflushed()
    }
    fn flushed(&mut self, step: u32) -> Result<(), Error> {
        self.attempt()?;
        self.inner.flushed(step)
    }
}

/// Repeats a call until it succeeds, and counts the failures.
pub fn insist<T>(failures: &mut u32, mut call: impl FnMut() -> Result<T, Error>) -> T {
    for _ in 0..3 {
        match call() {
            Ok(done) => return done,
            Err(Error::Store { what: "disk", .. }) => *failures += 1,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("it failed again and again");
}
