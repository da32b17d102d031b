//! Records on their way from a flight to the store.

use super::{download::Download, flight::Flight, pool::Pool, traffic::Counting};
use crate::{Error, SharedStore, gpu::Context};

/// Bytes before the rows: the number of records, padded.
const HEAD: u64 = 16;

/// What left in one step, or in one piece of a flush.
#[derive(Debug)]
pub(super) struct Landing {
    download: Download,
    /// Most records there can be.
    most: u64,
    stride: u64,
}

impl Landing {
    /// Bytes of the download of `most` records.
    pub(super) const fn bytes(most: u64, stride: u64) -> u64 {
        HEAD + most * (4 + stride)
    }

    /// Records the download of what has left `flight` up to here. There are at most `most` records.
    pub(super) fn record(
        context: &Context,
        encoder: &mut wgpu::CommandEncoder,
        pool: &Pool,
        tables: &wgpu::Buffer,
        (flight, parity): (&Flight, u32),
        most: u32,
        stride: u64,
    ) -> Result<Self, Error> {
        let most = u64::from(most);
        let buffer = pool.take(context, Self::bytes(most, stride))?;
        let [rows, records] = flight.outbound(parity);
        encoder.copy_buffer_to_buffer(tables, u64::from(flight.counter()) * 4, &buffer, 0, 4);
        encoder.copy_buffer_to_buffer(&flight.buffer, rows, &buffer, HEAD, most * 4);
        encoder.copy_buffer_to_buffer(&flight.buffer, records, &buffer, HEAD + most * 4, most * stride);
        Ok(Self { download: Download::record(encoder, buffer), most, stride })
    }

    /// Writes the records to the store. May be called again after an error.
    pub(super) fn land(&self, store: &SharedStore, traffic: &Counting) -> Result<(), Error> {
        let bytes = Self::bytes(self.most, self.stride);
        let (rows, written) = self.download.read("the step after a backward", bytes, |bytes| {
            let (head, rest) = bytes.split_at(HEAD as usize);
            let (rows, records) = rest.split_at(self.most as usize * 4);
            let count = bytemuck::pod_read_unaligned::<u32>(&head[..4]).min(self.most as u32) as usize;
            let rows: Vec<u32> = bytemuck::pod_collect_to_vec(&rows[..count * 4]);
            let written = store.write().write(&rows, &records[..count * self.stride as usize]);
            (count, written)
        })?;
        written?;
        traffic.landed(rows as u64, bytes);
        Ok(())
    }

    pub(super) fn end(self, pool: &Pool) {
        self.download.end(pool);
    }
}
