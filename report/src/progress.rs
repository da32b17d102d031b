//! A progress bar for long jobs.

use indicatif::{ProgressBar, ProgressStyle};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Time without a bar, since most jobs end sooner.
const PATIENCE: Duration = Duration::from_secs(1);

/// The progress of one job, advanced from any thread. It is drawn on standard error if that is a terminal.
#[derive(Debug)]
pub struct Progress {
    what: String,
    total: u64,
    done: AtomicU64,
    start: Instant,
    bar: OnceLock<ProgressBar>,
}

impl Progress {
    /// A job of `total` steps; `what` stands before the bar.
    pub fn new(what: &str, total: u64) -> Self {
        Self { what: what.to_owned(), total, done: AtomicU64::new(0), start: Instant::now(), bar: OnceLock::new() }
    }

    pub fn advance(&self, steps: u64) {
        let done = self.done.fetch_add(steps, Relaxed) + steps;
        if self.bar.get().is_some() || self.start.elapsed() > PATIENCE {
            self.bar.get_or_init(|| self.draw()).set_position(done);
        }
    }

    fn draw(&self) -> ProgressBar {
        let bar = ProgressBar::new(self.total).with_message(self.what.clone());
        // If the template were wrong, the default style would be used.
        if let Ok(style) = ProgressStyle::with_template("{msg} {bar:40} {percent:>3} % {eta}") {
            bar.set_style(style);
        }
        bar
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.get() {
            bar.finish_and_clear();
        }
    }
}
