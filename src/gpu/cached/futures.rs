//! The calls of a group that await the device, as futures. The calls that wait run the same futures.

use std::task::Poll;

use crate::{
    error::Error,
    gpu::{
        cached::group::{Group, grown},
        engine::{bind::Batch, bind_cache::passing, wait::driven},
        stages::cached::space::Bound,
        upload::Uploaded,
    },
    table::{abi::Params, batch::Bags, params::Mode, parts::Part, rng::Purpose},
};

impl Group {
    pub(crate) fn encoder(&self) -> wgpu::CommandEncoder {
        self.context.new_encoder()
    }

    /// Uploads a batch.
    pub(crate) fn uploaded(&self, bags: Bags<'_>) -> Result<Uploaded, Error> {
        Uploaded::new(&self.context, &self.kind.config, bags)
    }

    /// Decides a staged step and fetches its missing records. If the host fails, the batch stays prefetched.
    pub(crate) async fn encode_staged(&mut self, batch: &Batch<'_>) -> Result<(), Error> {
        self.not_prefetched("forward")?;
        self.state.end_forward(); // its step scratch is overwritten
        // A failing store must be reported here: after `decide` the tags are a step ahead of the rows.
        self.kind.storage.settle(false).await?;
        let mut encoder = self.encoder();
        self.decide(&mut encoder, batch)?;
        self.context.submit(encoder);
        self.fetched().await
    }

    /// Encodes the lookup of linear rows with the frozen step scratch, one output row for each. Returns the call's parameters and an upper
    /// bound on its swaps.
    pub(crate) async fn encode_rows(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        rows: &[u32],
        outputs: Option<&wgpu::Buffer>,
    ) -> Result<(Params, u32), Error> {
        let n = rows.len() as u32;
        let params = Params::new(&self.kind.config, &self.kind.tables.layout, Mode::Frozen, Purpose::Write).rows(n);
        let (batch, dummy) = (Uploaded::rows(&self.context, rows)?, self.dummy.clone());
        let bound = Bound::of(&self.context, &dummy, &batch.batch(), &params)?;
        grown(&mut self.kind.frozen, &self.context, &self.kind.tables.layout, n, false)?;
        let binding = outputs.map(passing);
        let outputs = binding.as_ref().map(|binding| (binding, n));
        Ok((params, self.encode_look_up(encoder, &params, &bound, outputs).await?))
    }

    pub(crate) async fn flushed(&mut self) -> Result<(), Error> {
        if self.kind.storage.is_staged() {
            return self.flush_staged().await;
        }
        let mut encoder = self.encoder();
        self.encode_flush(&mut encoder)?;
        self.context.finish_async(encoder).await
    }

    /// As [`Embedding::flush`](crate::Embedding::flush), as a future.
    ///
    /// # Errors
    /// As [`Embedding::flush`](crate::Embedding::flush).
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub async fn flush_async(&mut self) -> Result<(), Error> {
        self.not_prefetched("flush")?;
        let context = self.context.clone();
        let flushed = async {
            self.quiet(self.refused_to_read("flush")).await?;
            self.flushed().await
        };
        context.guard(flushed).await
    }

    /// As [`Embedding::read_part`](crate::Embedding::read_part), as a future.
    ///
    /// # Errors
    /// As [`Embedding::read_part`](crate::Embedding::read_part).
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub async fn read_part_async(&mut self, part: Part, first_word: u64, out: &mut [u32]) -> Result<(), Error> {
        self.not_prefetched("read_part")?;
        let context = self.context.clone();
        let read = async {
            self.quiet(Some("read_part")).await?;
            self.read_words(part, first_word, out).await
        };
        context.guard(read).await
    }

    /// As [`fetch`](Self::fetch), as a future: pending until the encoder of the prefetch has been submitted and the device has listed the
    /// missing rows.
    ///
    /// # Errors
    /// As [`fetch`](Self::fetch).
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub async fn fetch_async(&mut self) -> Result<(), Error> {
        let context = self.context.clone();
        context.guard(self.fetched()).await
    }

    pub(crate) async fn fetched(&mut self) -> Result<(), Error> {
        let context = self.context.clone();
        let fetched = std::future::poll_fn(|cx| match self.try_fetch() {
            Ok(false) => {
                self.wake_when_fetched(cx.waker());
                Poll::Pending
            }
            done => Poll::Ready(done.map(drop)),
        });
        driven(context.device(), fetched).await?
    }
}
