//! The verdicts of wgpu's error scopes. Outside a browser a verdict is there at once. In a browser it comes after the call has returned; it
//! is kept, and a later call reports it.

use std::{
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Wake, Waker},
};

use crate::{error::Error, host::locked};

/// A verdict under way.
type Verdict = Pin<Box<dyn Future<Output = Option<Error>> + Send>>;

/// Verdicts that have not come yet, and faults that no call has reported.
#[derive(Default)]
pub(crate) struct Faults {
    kept: Mutex<Kept>,
    waiting: Arc<Waiting>,
}

/// The futures that wait for verdicts. A verdict remembers one waker only, so it is given one that wakes them all.
#[derive(Default)]
struct Waiting(Mutex<Vec<Waker>>);

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        let wakers = std::mem::take(&mut *locked(&self.0));
        wakers.into_iter().for_each(Waker::wake);
    }
}

#[derive(Default)]
struct Kept {
    coming: Vec<Verdict>,
    found: Vec<Error>,
}

impl Faults {
    /// Ends an error scope. Returns its error, as `named`, or keeps the verdict if it has not come.
    pub(crate) fn judge(
        &self,
        scope: wgpu::ErrorScopeGuard,
        named: impl FnOnce(wgpu::Error) -> Error + Send + 'static,
    ) -> Result<(), Error> {
        let popped = scope.pop();
        self.keep(Box::pin(async move { popped.await.map(named) }))
    }

    fn keep(&self, mut verdict: Verdict) -> Result<(), Error> {
        match verdict.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(error) => error.map_or(Ok(()), Err),
            Poll::Pending => {
                locked(&self.kept).coming.push(verdict);
                Ok(())
            }
        }
    }

    /// Returns the first fault that has come and was not reported, once.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.look() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Waits until every verdict has come, or one is a fault. Reports the first fault.
    pub(crate) async fn settled(&self) -> Result<(), Error> {
        std::future::poll_fn(|cx| {
            locked(&self.waiting.0).push(cx.waker().clone());
            match self.look() {
                Some(error) => Poll::Ready(Err(error)),
                None if locked(&self.kept).coming.is_empty() => Poll::Ready(Ok(())),
                None => Poll::Pending,
            }
        })
        .await
    }

    /// Polls the verdicts and takes the first fault.
    fn look(&self) -> Option<Error> {
        let waker = Waker::from(self.waiting.clone());
        let cx = &mut Context::from_waker(&waker);
        let kept = &mut *locked(&self.kept);
        let found = &mut kept.found;
        kept.coming.retain_mut(|verdict| match verdict.as_mut().poll(cx) {
            Poll::Ready(error) => {
                found.extend(error);
                false
            }
            Poll::Pending => true,
        });
        (!found.is_empty()).then(|| found.remove(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts how often it is woken.
    #[derive(Default)]
    struct Woken(std::sync::atomic::AtomicU32);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }

    /// A verdict remembers the last waker that it was polled with.
    #[test]
    fn every_future_that_waits_is_woken() {
        let faults = Faults::default();
        let (sender, receiver) = futures_intrusive::channel::shared::oneshot_channel();
        faults.keep(Box::pin(async move { receiver.receive().await })).unwrap();
        let woken = [(); 2].map(|()| Arc::new(Woken::default()));
        let mut futures = [(); 2].map(|()| Box::pin(faults.settled()));
        for (woken, future) in woken.iter().zip(&mut futures) {
            let waker = Waker::from(woken.clone());
            assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        assert_eq!(faults.check(), Ok(()), "a call between them");
        let count = || woken.each_ref().map(|woken| woken.0.load(std::sync::atomic::Ordering::Relaxed) > 0);
        assert_eq!(count(), [false; 2]);
        sender.send(Error::Device { reason: "late".into() }).unwrap();
        assert_eq!(count(), [true; 2]);
    }

    #[test]
    fn a_verdict_that_comes_late_is_kept_and_reported_once() {
        let faults = Faults::default();
        let fault = |reason: &str| Error::Device { reason: reason.into() };
        assert_eq!(faults.keep(Box::pin(std::future::ready(None))), Ok(()));
        let at_once = fault("at once");
        assert_eq!(faults.keep(Box::pin(std::future::ready(Some(at_once.clone())))), Err(at_once));
        // A verdict as a browser gives it: it comes when the browser says so.
        let (sender, receiver) = futures_intrusive::channel::shared::oneshot_channel();
        let (other, silent) = futures_intrusive::channel::shared::oneshot_channel::<Error>();
        assert_eq!(faults.keep(Box::pin(async move { receiver.receive().await })), Ok(()));
        assert_eq!(faults.keep(Box::pin(async move { silent.receive().await })), Ok(()));
        assert_eq!(faults.check(), Ok(()), "neither has come");
        let mut settled = Box::pin(faults.settled());
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(settled.as_mut().poll(cx).is_pending());
        sender.send(fault("late")).unwrap();
        assert_eq!(settled.as_mut().poll(cx), Poll::Ready(Err(fault("late"))));
        assert_eq!(faults.check(), Ok(()), "it was reported");
        let mut settled = Box::pin(faults.settled());
        assert!(settled.as_mut().poll(cx).is_pending(), "one verdict is still to come");
        drop(other);
        assert_eq!(settled.as_mut().poll(cx), Poll::Ready(Ok(())), "a scope without an error");
    }
}
