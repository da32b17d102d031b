//! The host's side of a staged table: the store, and the records on their way to it.

use crate::{
    error::Error,
    gpu::{
        cached::staged::{host::Host, write_back::WriteBack},
        engine::context::Context,
    },
    store::{Hold, SharedStore},
};

/// The store of a staged table, and the queue of records that have left the device.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) host: Host,
    /// Keeps other groups from working on the store.
    _hold: Hold,
    /// Leaving records of steps that have ended, oldest first.
    pub(crate) write_backs: Vec<WriteBack>,
    /// Whether the store knows, since the last flush, that the cache may be newer.
    unflushed: bool,
    stride: u64,
}

impl Stored {
    pub(crate) fn new(context: &Context, store: SharedStore, hold: Hold, stride: u64) -> Self {
        Self { host: Host::new(context, store), _hold: hold, write_backs: Vec::new(), unflushed: false, stride }
    }

    /// Tells the store that the cache will be newer, unless it knows since the last flush.
    pub(crate) fn unflushed(&mut self) -> Result<(), Error> {
        if !self.unflushed {
            self.host.store.write().unflushed()?;
            self.unflushed = true;
        }
        Ok(())
    }

    /// Tells the store that it has the newest value of every row, as of step `t`.
    pub(crate) fn flushed(&mut self, t: u32) -> Result<(), Error> {
        self.host.store.write().flushed(t)?;
        self.unflushed = false;
        Ok(())
    }

    /// A write-back whose encoder was dropped is encoded again, before the next step overwrites its records in the transfer.
    pub(crate) fn encode_dropped(&mut self, encoder: &mut wgpu::CommandEncoder) -> Result<(), Error> {
        for write_back in self.write_backs.iter_mut().filter(|write_back| write_back.dropped()) {
            write_back.encode_again(encoder, &self.host)?;
        }
        Ok(())
    }

    /// Writes the downloaded records to the store. Records that the store refuses go on waiting.
    pub(crate) async fn write_all(&mut self) -> Result<(), Error> {
        while let Some(write_back) = self.write_backs.first_mut() {
            write_back.renewed(&self.host).await?;
            write_back.write(&self.host)?;
            self.write_backs.remove(0).end(&self.host);
        }
        Ok(())
    }

    /// Reads words of the records from `first_word` on: from the store, and over them the records that the store has refused.
    pub(crate) async fn read_newest(&mut self, first_word: u64, out: &mut [u32]) -> Result<(), Error> {
        self.read_words(first_word, out)?;
        let words = self.stride / 4;
        let (first, end) = (first_word, first_word + out.len() as u64);
        for write_back in &mut self.write_backs {
            write_back.renewed(&self.host).await?;
            write_back.read(|rows, records| {
                for (&row, record) in rows.iter().zip(records.chunks_exact(self.stride as usize)) {
                    let start = u64::from(row) * words;
                    let (from, to) = (start.max(first), (start + words).min(end));
                    if from < to {
                        let bytes = &record[(from - start) as usize * 4..(to - start) as usize * 4];
                        let place = &mut out[(from - first) as usize..(to - first) as usize];
                        bytemuck::cast_slice_mut(place).copy_from_slice(bytes);
                    }
                }
            })?;
        }
        Ok(())
    }

    /// Reads words of the store's records from `first_word` on.
    fn read_words(&self, first_word: u64, out: &mut [u32]) -> Result<(), Error> {
        let (words, store) = (self.stride / 4, self.host.store.read());
        each_run(words, first_word, out.len(), |row, run, whole| {
            let part: &mut [u32] = &mut out[run];
            if let Some(inner) = whole {
                let mut record = vec![0u32; words as usize];
                store.read_range(row, bytemuck::cast_slice_mut(&mut record))?;
                part.copy_from_slice(&record[inner]);
                return Ok(());
            }
            store.read_range(row, bytemuck::cast_slice_mut(part))
        })
    }

    /// Replaces words of the store's records from `first_word` on. No transfer may be under way.
    pub(crate) fn write_words(&mut self, first_word: u64, from: &[u32]) -> Result<(), Error> {
        self.unflushed()?;
        let (words, mut store) = (self.stride / 4, self.host.store.write());
        each_run(words, first_word, from.len(), |row, run, whole| {
            let part = &from[run];
            if let Some(inner) = whole {
                let mut record = vec![0u32; words as usize];
                store.read_range(row, bytemuck::cast_slice_mut(&mut record))?;
                record[inner].copy_from_slice(part);
                return store.write_range(row, bytemuck::cast_slice(&record));
            }
            store.write_range(row, bytemuck::cast_slice(part))
        })
    }
}

/// Cuts `count` words from `first` on into runs of whole records and parts of single records. `work` gets the first row, the run's position
/// among the words, and, for a part, its position in its record.
fn each_run(
    words: u64,
    first: u64,
    count: usize,
    mut work: impl FnMut(u32, std::ops::Range<usize>, Option<std::ops::Range<usize>>) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut done = 0;
    while done < count {
        let at = first + done as u64;
        let (row, inner) = ((at / words) as u32, (at % words) as usize);
        let rest = count - done;
        let (length, part) = if inner == 0 && rest >= words as usize {
            (rest - rest % words as usize, None)
        } else {
            let length = rest.min(words as usize - inner);
            (length, Some(inner..inner + length))
        };
        work(row, done..done + length, part)?;
        done += length;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn runs_cover_a_range_of_words() {
        for words in [1, 3, 4] {
            for first in 0..9 {
                for count in 0..14usize {
                    let mut seen = Vec::new();
                    let runs = super::each_run(words, first, count, |row, run, part| {
                        let begin = u64::from(row) * words + part.as_ref().map_or(0, |part| part.start as u64);
                        assert!(part.is_none_or(|part| part.len() == run.len() && part.end as u64 <= words));
                        seen.extend(run.clone().map(|_| 0).zip(begin..).map(|(_, word)| word));
                        assert_eq!(run.start + run.len(), seen.len());
                        Ok(())
                    });
                    assert_eq!(runs, Ok(()));
                    assert_eq!(seen, (first..first + count as u64).collect::<Vec<_>>(), "{words} {first} {count}");
                }
            }
        }
    }
}
