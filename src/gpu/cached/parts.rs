//! Reads and writes any range of a group's lasting state through one buffer of bounded size.

use std::ops::Range;

use crate::{
    error::Error,
    gpu::cached::{group::Group, storage::Storage},
    table::{
        metadata,
        parts::{Part, cut, whole_sets},
    },
};

/// The largest number of words that one copy takes: 16 MiB, with the padding between rows of slots.
const CHUNK: u64 = 4 << 20;

/// Counters side by side in words.
struct Packed {
    bits: u32,
    /// The row of the first counter.
    first_row: u64,
}

impl Packed {
    /// The word of a row's counter, and its first bit.
    fn place(&self, row: u64) -> (usize, u32) {
        let each = u64::from(u32::BITS / self.bits);
        let at = row - self.first_row;
        ((at / each) as usize, (at % each) as u32 * self.bits)
    }

    fn of(&self, words: &[u32], row: u64) -> u32 {
        let (word, bit) = self.place(row);
        words[word] >> bit & ((1 << self.bits) - 1)
    }

    #[cfg(not(target_family = "wasm"))]
    fn set(&self, words: &mut [u32], row: u64, uses: u32) {
        let (word, bit) = self.place(row);
        words[word] = words[word] & !(((1 << self.bits) - 1) << bit) | uses << bit;
    }
}

impl Group {
    /// The buffers that hold a part, in order, and the number of the part's words in each.
    fn buffers(&self, part: Part) -> Vec<(u64, &wgpu::Buffer)> {
        let tables = &self.kind.tables;
        let layout = &tables.layout;
        let words = part.words(&self.kind.config, layout);
        match part {
            Part::Clock | Part::Counters | Part::Since => vec![(words, &tables.tables)],
            Part::Ways => vec![(words, &tables.ways)],
            Part::Cache => {
                let words = layout.windows_slots().map(|slots| u64::from(slots) * u64::from(layout.row.row_words));
                words.zip(tables.cache.buffers()).collect()
            }
            // A staged table has none: the store has its records.
            Part::Records => {
                let words = |piece| u64::from(layout.piece_rows(piece)) * u64::from(layout.row.record_words);
                (0..).zip(&tables.records).map(|(piece, buffer)| (words(piece), buffer)).collect()
            }
            Part::Frequencies => tables.freqs.iter().map(|freqs| (u64::from(freqs.rows), &freqs.counters)).collect(),
        }
    }

    /// Whether a word of the part lies in fewer than 32 bits on the device.
    fn packs(&self, part: Part) -> bool {
        part == Part::Frequencies && self.kind.tables.layout.freq_bits < u32::BITS
    }

    /// The bytes that hold the counters of neighbouring rows of a buffer.
    fn packed(&self, rows: &Range<u64>) -> (Range<u64>, Packed) {
        let bits = self.kind.tables.layout.freq_bits;
        let each = u64::from(u32::BITS / bits);
        let first = rows.start / each;
        (4 * first..4 * rows.end.div_ceil(each), Packed { bits, first_row: first * each })
    }

    /// Cuts a range into pieces. Each piece lies in one buffer and has at most [`CHUNK`] words.
    fn pieces(&self, part: Part, range: Range<u64>) -> impl Iterator<Item = (&wgpu::Buffer, Range<u64>)> {
        let (lengths, buffers): (Vec<_>, Vec<_>) = self.buffers(part).into_iter().unzip();
        cut(lengths, range).flat_map(move |(which, words)| {
            let buffer = buffers[which];
            let starts = (words.start..words.end).step_by(CHUNK as usize);
            starts.map(move |start| (buffer, start..words.end.min(start + CHUNK)))
        })
    }

    pub(crate) async fn read_words(&mut self, part: Part, first_word: u64, out: &mut [u32]) -> Result<(), Error> {
        let range = part.range(&self.kind.config, &self.kind.tables.layout, first_word, out.len())?;
        if let (Part::Records, Storage::Staged(staged)) = (part, &mut self.kind.storage) {
            let more = self.state.pending().is_some();
            return staged.read_newest(more, first_word, out).await;
        }
        if self.packs(part) {
            let mut rest = out;
            for (buffer, rows) in self.pieces(part, range) {
                let (mine, others) = rest.split_at_mut((rows.end - rows.start) as usize);
                rest = others;
                let (words, at) = self.packed(&rows);
                let found = self.context.download_part_async(buffer, words).await?;
                mine.iter_mut().zip(rows).for_each(|(uses, row)| *uses = at.of(&found, row));
            }
            return Ok(());
        }
        let spacing = part.spacing(&self.kind.tables.layout);
        let mut kept: Option<wgpu::Buffer> = None;
        let mut rest = out;
        for (buffer, words) in self.pieces(part, range) {
            let (mine, others) = rest.split_at_mut((words.end - words.start) as usize);
            rest = others;
            let range = spacing.range(&words);
            let bytes = (range.end - range.start) * 4;
            let target = match kept.take() {
                Some(enough) if enough.size() >= bytes => enough,
                _ => self.context.download_buffer(bytes),
            };
            let mut encoder = self.encoder();
            encoder.copy_buffer_to_buffer(buffer, range.start * 4, &target, 0, bytes);
            let targets = [(target, bytes)];
            let each = |found: &[u8]| {
                for (run, at) in spacing.runs(words.clone()) {
                    let mine = &mut mine[index(&words, &run)];
                    let found = &found[(at - range.start) as usize * 4..];
                    for (word, bytes) in mine.iter_mut().zip(found.chunks_exact(4)) {
                        *word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                    }
                }
            };
            self.context.read_async(encoder, &targets, each).await?;
            let [(target, _)] = targets;
            kept = Some(target);
        }
        Ok(())
    }

    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn write_words(&mut self, part: Part, first_word: u64, words: &[u32]) -> Result<(), Error> {
        let range = part.range(&self.kind.config, &self.kind.tables.layout, first_word, words.len())?;
        self.kind.storage.unflushed()?; // after this write the cache may be newer than the store
        if part == Part::Ways {
            let mut t = [0];
            self.block_on(async |this| this.read_words(Part::Clock, 0, &mut t).await)?;
            let first_set = whole_sets(&self.kind.tables.layout, &range)?.start;
            metadata::check(&self.kind.config, &self.kind.tables.layout, t[0], first_set, words)?;
        }
        if part == Part::Since {
            metadata::check_since(first_word, words)?;
        }
        if part == Part::Frequencies {
            metadata::check_frequencies(&self.kind.config, first_word, words)?;
        }
        if self.state.pending().is_some() && matches!(part, Part::Clock | Part::Ways) {
            let mut now = vec![0; words.len()];
            self.block_on(async |this| this.read_words(part, first_word, &mut now).await)?;
            if now != words {
                self.state.end_forward(); // its rows may have other slots now
            }
        }
        self.renew_readers();
        if let (Part::Records, Storage::Staged(staged)) = (part, &mut self.kind.storage) {
            let more = self.state.pending().is_some();
            return self.context.block_on(staged.write_words(more, first_word, words));
        }
        self.put_words(part, first_word, words)
    }

    /// Replaces words of a part that is in device memory, without checking them.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn put_words(&self, part: Part, first_word: u64, words: &[u32]) -> Result<(), Error> {
        let range = part.range(&self.kind.config, &self.kind.tables.layout, first_word, words.len())?;
        if self.packs(part) {
            let mut rest = words;
            for (buffer, rows) in self.pieces(part, range) {
                let (mine, others) = rest.split_at((rows.end - rows.start) as usize);
                rest = others;
                // The first and the last word may have counters of other rows.
                let (words, at) = self.packed(&rows);
                let mut found = self.context.block_on(self.context.download_part_async(buffer, words.clone()))?;
                mine.iter().zip(rows).for_each(|(&uses, row)| at.set(&mut found, row, uses));
                self.context.queue().write_buffer(buffer, words.start, bytemuck::cast_slice(&found));
                self.context.finish(self.encoder())?;
            }
            return Ok(());
        }
        let spacing = part.spacing(&self.kind.tables.layout);
        let mut rest = words;
        for (buffer, words) in self.pieces(part, range) {
            let (mine, others) = rest.split_at((words.end - words.start) as usize);
            rest = others;
            let range = spacing.range(&words);
            let mut spaced = Vec::new();
            if range.end - range.start > mine.len() as u64 {
                spaced = match part {
                    // The other words of the tables.
                    Part::Counters | Part::Since => {
                        let bytes = 4 * range.start..4 * range.end;
                        self.context.block_on(self.context.download_part_async(buffer, bytes))?
                    }
                    _ => vec![0; (range.end - range.start) as usize],
                };
                for (run, at) in spacing.runs(words.clone()) {
                    let mine = &mine[index(&words, &run)];
                    spaced[(at - range.start) as usize..][..mine.len()].copy_from_slice(mine);
                }
            }
            let upload = if spaced.is_empty() { mine } else { &spaced };
            self.context.queue().write_buffer(buffer, range.start * 4, bytemuck::cast_slice(upload));
            // Waits, so that the queue never holds more than one piece.
            self.context.finish(self.encoder())?;
        }
        Ok(())
    }
}

/// The position of `run` within `words`.
fn index(words: &Range<u64>, run: &Range<u64>) -> Range<usize> {
    (run.start - words.start) as usize..(run.end - words.start) as usize
}
