//! Several runs at a time.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

/// Does every job, `at_once` of them at a time, and returns what they came to in their order.
///
/// Plain threads, not rayon's: a run waits for a pool of its own, and a rayon thread that waits would begin another run meanwhile, and
/// within that the next.
pub(crate) fn side_by_side<J: Sync, R: Send>(jobs: &[J], at_once: usize, work: impl Fn(&J) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<R>>> = jobs.iter().map(|_| Mutex::new(None)).collect();
    thread::scope(|scope| {
        for _ in 0..at_once.clamp(1, jobs.len().max(1)) {
            scope.spawn(|| {
                while let Some(at) = Some(next.fetch_add(1, Relaxed)).filter(|&at| at < jobs.len()) {
                    let result = work(&jobs[at]);
                    if let Ok(mut place) = results[at].lock() {
                        *place = Some(result);
                    }
                }
            });
        }
    });
    // A job that panicked has brought the scope down with it: every place is filled.
    results.into_iter().filter_map(|place| place.into_inner().ok().flatten()).collect()
}

/// Does `work` in a thread pool of one thread, so that a run stays on its own core.
pub(crate) fn alone<T: Send>(work: impl FnOnce() -> anyhow::Result<T> + Send) -> anyhow::Result<T> {
    rayon::ThreadPoolBuilder::new().num_threads(1).build()?.install(work)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_job_is_done_in_its_place_and_never_too_many_at_once() {
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let jobs: Vec<u64> = (0..40).collect();
        let done = side_by_side(&jobs, 3, |&job| {
            most.fetch_max(now.fetch_add(1, Relaxed) + 1, Relaxed);
            // A rayon pool of its own, as runs have.
            let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
            let result = pool.install(|| {
                thread::sleep(std::time::Duration::from_millis(1));
                job * job
            });
            now.fetch_sub(1, Relaxed);
            result
        });
        assert_eq!(done, jobs.iter().map(|job| job * job).collect::<Vec<_>>());
        assert!(most.into_inner() <= 3);
        assert_eq!(side_by_side(&[] as &[u64], 2, |&job| job), [] as [u64; 0]);
    }
}
