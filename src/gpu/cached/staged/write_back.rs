//! Records on their way from a transfer to the store.

use std::{mem::offset_of, task::Waker};

use crate::{
    error::Error,
    gpu::cached::staged::{download::Download, host::Host, transfer::Transfer},
    table::abi::Step,
};

/// Bytes before the rows: the number of records; from byte 8 on two words that are the same if that number is of this step.
const HEAD: u64 = 16;

/// The places on the device of the records that left in one step, or in one piece of a flush.
#[derive(Clone, Debug)]
struct From {
    transfer: wgpu::Buffer,
    tables: wgpu::Buffer,
    /// The words of the step that a backward ends.
    step: Option<wgpu::Buffer>,
    /// Byte offsets of the number of records in `tables`, and of their rows and the records themselves in the transfer.
    places: [u64; 3],
}

/// The records that left in one step, or in one piece of a flush, on their way to the store.
#[derive(Debug)]
pub(crate) struct WriteBack {
    download: Download,
    from: From,
    /// Most records that can have left.
    most: u64,
    stride: u64,
    /// Number of training steps that had begun when the download was encoded.
    step: u32,
}

impl WriteBack {
    /// Bytes of the download of `most` records.
    pub(crate) const fn bytes(most: u64, stride: u64) -> u64 {
        HEAD + most * (4 + stride)
    }

    /// Encodes the download into `buffer` of the records that have left so far, at most `most`.
    pub(crate) fn encode(
        encoder: &mut wgpu::CommandEncoder,
        host: &Host,
        buffer: wgpu::Buffer,
        (tables, step): (&wgpu::Buffer, Option<&wgpu::Buffer>),
        (transfer, parity): (&Transfer, u32),
        most: u32,
        stride: u64,
    ) -> Self {
        let [rows, records] = transfer.outbound(parity);
        let places = [u64::from(transfer.counter()) * 4, rows, records];
        let from = From { transfer: transfer.buffer.clone(), tables: tables.clone(), step: step.cloned(), places };
        let most = u64::from(most);
        Self { download: copy(encoder, &from, buffer, most, stride), from, most, stride, step: host.begun() }
    }

    /// Whether the encoder of the download was dropped. The records are still in the transfer until the next step begins.
    pub(crate) fn dropped(&self) -> bool {
        self.download.dropped()
    }

    /// Whether the download has come, or never will.
    pub(crate) fn known(&self) -> bool {
        self.download.known()
    }

    /// Encodes the download again, if the records are still in the transfer. Returns whether they are.
    pub(crate) fn encode_again(&mut self, encoder: &mut wgpu::CommandEncoder, host: &Host) -> Result<bool, Error> {
        if host.begun() != self.step {
            return Ok(false);
        }
        let buffer = host.download(Self::bytes(self.most, self.stride))?;
        let again = copy(encoder, &self.from, buffer, self.most, self.stride);
        std::mem::replace(&mut self.download, again).give_up(&host.downloads);
        Ok(true)
    }

    /// Downloads the records again if their encoder was dropped, and waits for them.
    pub(crate) async fn renewed(&mut self, host: &Host) -> Result<(), Error> {
        if self.asked_again(host)? {
            host.context.idle().await?;
        }
        self.download.arrived().await;
        Ok(())
    }

    /// Submits the download of the records again if their encoder was dropped. Returns whether it did.
    pub(crate) fn asked_again(&mut self, host: &Host) -> Result<bool, Error> {
        let mut encoder = host.context.new_encoder();
        let again = self.dropped() && self.encode_again(&mut encoder, host)?;
        if again {
            host.context.submit(encoder);
        }
        Ok(again)
    }

    /// Has `waker` woken when the download has come, or never will.
    pub(crate) fn wake(&self, waker: &Waker) {
        self.download.wake(waker);
    }

    /// Calls `work` with the rows and their records.
    pub(crate) fn read<T>(&self, work: impl FnOnce(&[u32], &[u8]) -> T) -> Result<T, Error> {
        let bytes = Self::bytes(self.most, self.stride);
        let (count, done) = self.download.read("the step after a backward", bytes, |bytes| {
            let (head, rest) = bytes.split_at(HEAD as usize);
            let (rows, records) = rest.split_at(self.most as usize * 4);
            let count = bytemuck::pod_read_unaligned::<u32>(&head[..4]);
            // A backward that was submitted before its forward: nothing has left.
            let count = if head[8..12] == head[12..] { count } else { 0 };
            let here = count.min(self.most as u32) as usize;
            let rows: Vec<u32> = bytemuck::pod_collect_to_vec(&rows[..here * 4]);
            (count, work(&rows, &records[..here * self.stride as usize]))
        })?;
        if u64::from(count) > self.most {
            let reason =
                format!("{count} records have left where {} can: the device has spoiled its memory", self.most);
            return Err(Error::Device { reason });
        }
        Ok(done)
    }

    /// Writes the records to the store. May be called again after an error.
    pub(crate) fn write(&self, host: &Host) -> Result<(), Error> {
        let written = self.read(|rows, records| {
            // A write of nothing would mark a file as not flushed.
            let written = if rows.is_empty() { Ok(()) } else { host.store.write().write(rows, records) };
            written.map(|()| rows.len() as u64)
        })?;
        host.traffic.written(written?, Self::bytes(self.most, self.stride));
        Ok(())
    }

    /// Releases a write-back that has nothing to write.
    pub(crate) fn give_up(self, host: &Host) {
        self.download.give_up(&host.downloads);
    }

    pub(crate) fn end(self, host: &Host) {
        self.download.end(&host.downloads);
    }
}

fn copy(encoder: &mut wgpu::CommandEncoder, from: &From, to: wgpu::Buffer, most: u64, stride: u64) -> Download {
    let [count, rows, records] = from.places;
    encoder.copy_buffer_to_buffer(&from.tables, count, &to, 0, 4);
    match &from.step {
        Some(step) => encoder.copy_buffer_to_buffer(step, offset_of!(Step, carried) as u64, &to, 8, 8),
        None => encoder.clear_buffer(&to, 8, Some(8)),
    }
    encoder.copy_buffer_to_buffer(&from.transfer, rows, &to, HEAD, most * 4);
    encoder.copy_buffer_to_buffer(&from.transfer, records, &to, HEAD + most * 4, most * stride);
    Download::encode(encoder, to)
}
