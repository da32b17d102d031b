//! Reads and writes any range of a group's lasting state.

use crate::{
    cpu::cached::group::CpuGroup,
    error::Error,
    table::{
        metadata,
        parts::{Part, cut, whole_sets},
    },
};

impl CpuGroup {
    /// The arrays that hold a part, in order, and the number of the part's words in each.
    fn arrays(&mut self, part: Part) -> Vec<(u64, &mut [u32])> {
        let words = part.words(&self.config, &self.tables.layout);
        let tables = &mut self.tables;
        match part {
            Part::Clock => vec![(1, &mut tables.tables[..1])],
            Part::Counters | Part::Since => vec![(words, &mut tables.tables)],
            Part::Ways => vec![(words, &mut tables.ways)],
            Part::Cache => vec![(words, bytemuck::cast_slice_mut(&mut tables.cache))],
            Part::Records => vec![(words, &mut tables.records)],
            // Their words may be narrower.
            Part::Frequencies => Vec::new(),
        }
    }

    /// Calls `each` with neighbouring words of the part, and with their position in the range.
    fn visit(
        &mut self,
        part: Part,
        first_word: u64,
        words: usize,
        mut each: impl FnMut(&mut [u32], usize),
    ) -> Result<(), Error> {
        let range = part.range(&self.config, &self.tables.layout, first_word, words)?;
        self.count_distinct();
        let spacing = part.spacing(&self.tables.layout);
        let mut arrays = self.arrays(part);
        let lengths: Vec<u64> = arrays.iter().map(|&(words, _)| words).collect();
        let mut done = 0;
        for (which, words) in cut(lengths, range) {
            for (run, at) in spacing.runs(words) {
                let length = (run.end - run.start) as usize;
                each(&mut arrays[which].1[at as usize..][..length], done);
                done += length;
            }
        }
        Ok(())
    }

    pub(crate) fn read_words(&mut self, part: Part, first_word: u64, out: &mut [u32]) -> Result<(), Error> {
        if part == Part::Frequencies {
            let range = part.range(&self.config, &self.tables.layout, first_word, out.len())?;
            self.count_distinct();
            self.tables.freqs.read(range.start as usize, out);
            return Ok(());
        }
        self.visit(part, first_word, out.len(), |mine, at| out[at..][..mine.len()].copy_from_slice(mine))
    }

    pub(crate) fn write_words(&mut self, part: Part, first_word: u64, words: &[u32]) -> Result<(), Error> {
        let range = part.range(&self.config, &self.tables.layout, first_word, words.len())?;
        if part == Part::Ways {
            metadata::check(
                &self.config,
                &self.tables.layout,
                self.tables.tables[0],
                whole_sets(&self.tables.layout, &range)?.start,
                words,
            )?;
        }
        if part == Part::Since {
            metadata::check_since(first_word, words)?;
        }
        if part == Part::Frequencies {
            metadata::check_frequencies(&self.config, first_word, words)?;
            self.count_distinct();
            self.tables.freqs.write(range.start as usize, words);
            return Ok(());
        }
        let mut moved = false;
        self.visit(part, first_word, words.len(), |mine, at| {
            let new = &words[at..][..mine.len()];
            moved |= mine != new;
            mine.copy_from_slice(new);
        })?;
        if moved && matches!(part, Part::Clock | Part::Ways) {
            self.state.end_forward(); // its rows may have other slots now
        }
        Ok(())
    }
}
