//! The buffer (a *transfer*) that carries a staged table's records between host and device: host side of `shaders/shared/transfer.wgsl`.

use crate::{
    error::Error,
    gpu::{engine::context::Context, stages::cached::exchange::Records},
    table::{
        abi::{NONE, Piece},
        layout::Layout,
    },
};

/// The use of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Training steps. The leaving records of a step stay until the next step is over. At most `keeps` records come for victims that their
    /// batch uses itself (LFU).
    Steps { keeps: u32 },
    /// Every other call. The leaving records take the place of the arriving ones.
    Side,
}

/// A buffer that `exchange` and `update` bind in place of a piece's records.
#[derive(Debug)]
pub(crate) struct Transfer {
    pub(crate) buffer: wgpu::Buffer,
    /// Number of swaps that it has room for.
    pub(crate) capacity: u32,
    record_words: u32,
    purpose: Purpose,
}

impl Transfer {
    pub(crate) fn new(context: &Context, layout: &Layout, capacity: u32, purpose: Purpose) -> Result<Self, Error> {
        let bytes = Self::bytes(layout, capacity, purpose);
        let buffer = context.buffer("transfer", bytes, wgpu::BufferUsages::empty())?;
        Ok(Self { buffer, capacity, record_words: layout.row.record_words, purpose })
    }

    /// Bytes of a transfer for `capacity` swaps.
    pub(crate) fn bytes(layout: &Layout, capacity: u32, purpose: Purpose) -> u64 {
        let (n, words) = (u64::from(capacity), u64::from(layout.row.record_words));
        let half = (2 + words) * n;
        4 * match purpose {
            Purpose::Steps { keeps: 0 } => n + n * words + 2 * half,
            Purpose::Steps { keeps } => 2 * n + (n + u64::from(keeps)) * words + 2 * half,
            Purpose::Side => n + half,
        }
    }

    /// The word of `tables` that counts the leaving records.
    pub(crate) const fn counter(&self) -> u32 {
        match self.purpose {
            Purpose::Steps { .. } => 1,
            Purpose::Side => 2,
        }
    }

    const fn keeps(&self) -> u32 {
        match self.purpose {
            Purpose::Steps { keeps } => keeps,
            Purpose::Side => 0,
        }
    }

    /// First word of the notes about kept victims, one for each swap.
    const fn kept(&self) -> u32 {
        self.capacity
    }

    const fn arrivals(&self) -> u32 {
        match self.purpose {
            Purpose::Steps { keeps: 0 } => self.capacity,
            Purpose::Steps { .. } => 2 * self.capacity,
            // The leaving records lie there, too.
            Purpose::Side => 3 * self.capacity,
        }
    }

    /// First word of the leaving records of steps with this parity.
    const fn half(&self, parity: u32) -> u32 {
        match self.purpose {
            Purpose::Side => self.capacity,
            Purpose::Steps { keeps } => {
                let first = self.arrivals() + (self.capacity + keeps) * self.record_words;
                first + parity * (2 + self.record_words) * self.capacity
            }
        }
    }

    /// The uniform of a dispatch over `swaps` swaps from `first_swap` on, in a step with this parity.
    pub(crate) fn piece(&self, phases: u32, parity: u32, first_swap: u32, swaps: u32) -> Piece {
        Piece {
            first_row: 0,
            rows: NONE,
            rows_each: NONE,
            phases,
            swaps,
            first_swap,
            capacity: self.capacity,
            forwards: 0,
            kept: self.kept(),
            arrivals: self.arrivals(),
            leaving: self.half(parity),
            left: self.half(1 - parity),
            counter: self.counter(),
        }
    }

    /// The records that exchange and update bind, with this uniform.
    pub(crate) fn records(&self, context: &Context, piece: &Piece) -> Records {
        Records::Transfer { transfer: self.buffer.clone(), piece: context.uniform(piece) }
    }

    /// Clears the notes and the list of leaving records for a step of `swaps` swaps, before its missing records are copied in.
    pub(crate) fn clear(&self, encoder: &mut wgpu::CommandEncoder, tables: &wgpu::Buffer, parity: u32, swaps: u32) {
        self.forget(encoder, tables, parity, swaps);
        if swaps > 0 {
            let bytes = Some(u64::from(swaps) * 4);
            encoder.clear_buffer(&self.buffer, 0, bytes);
            if self.keeps() > 0 {
                encoder.clear_buffer(&self.buffer, u64::from(self.kept()) * 4, bytes);
            }
        }
    }

    /// Forgets the records that left with the first `swaps` swaps of a step.
    pub(crate) fn forget(&self, encoder: &mut wgpu::CommandEncoder, tables: &wgpu::Buffer, parity: u32, swaps: u32) {
        encoder.clear_buffer(tables, u64::from(self.counter()) * 4, Some(4));
        if swaps > 0 {
            encoder.clear_buffer(&self.buffer, u64::from(self.half(parity)) * 4, Some(u64::from(swaps) * 4));
        }
    }

    /// Byte offsets of the data that the host sends: forwards, notes about kept victims, records.
    pub(crate) fn inbound(&self) -> [u64; 3] {
        [0, u64::from(self.kept()) * 4, u64::from(self.arrivals()) * 4]
    }

    /// Byte offsets of the data that leaves in steps with this parity: the rows, and their records.
    pub(crate) fn outbound(&self, parity: u32) -> [u64; 2] {
        let rows = u64::from(self.half(parity)) + u64::from(self.capacity);
        [rows * 4, (rows + u64::from(self.capacity)) * 4]
    }

    /// Copies the leaving records of a step that is still under way from a smaller transfer.
    pub(crate) fn take_over(&self, encoder: &mut wgpu::CommandEncoder, smaller: &Self, parity: u32) {
        let part = u64::from(smaller.capacity) * 4;
        let words = [1, 1, u64::from(self.record_words)];
        let (mut from, mut to) = (u64::from(smaller.half(parity)) * 4, u64::from(self.half(parity)) * 4);
        for words in words {
            encoder.copy_buffer_to_buffer(&smaller.buffer, from, &self.buffer, to, part * words);
            from += part * words;
            to += u64::from(self.capacity) * 4 * words;
        }
    }
}
