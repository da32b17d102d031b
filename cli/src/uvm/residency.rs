//! The pages that the device holds, and the pages that move for a batch.

use std::collections::{HashMap, HashSet};

use super::model::{UvmModel, UvmTraffic};
use hotrow::Error;

/// The mark of an empty frame.
const EMPTY: u64 = u64::MAX;

/// A page, and the frame of device memory that it leaves or enters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Number of the page in the table.
    pub page: u64,
    /// Number of the frame.
    pub frame: u32,
}

/// Accesses of a batch whose pages fit the device together. First pages leave, then others come, then rows are touched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Round {
    /// Changed pages that go back.
    pub(super) leaving: Vec<Transfer>,
    /// Missing pages that come.
    pub(super) coming: Vec<Transfer>,
    /// Positions of the accesses in the batch.
    pub(super) accesses: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    page: u64,
    /// The last pass that used the page.
    pass: u64,
    /// Whether that pass found the page on the device.
    hit: bool,
    dirty: bool,
}

/// The pages of a table, and which of them the device holds: least recently used out first, and never more bytes than given.
///
/// A pass goes over a batch once, to read (forward) or to write (backward). All pages of a batch count as used at the same time. So a page
/// that the pass found on the device stays if another can leave, and each page comes at most once in a pass if no row lies across pages.
/// Real unified memory may fault a page in twice when a batch needs more pages than the device holds.
#[derive(Clone, Debug)]
pub struct UvmTable {
    model: UvmModel,
    row_bytes: u64,
    frames: Vec<Frame>,
    at: HashMap<u64, u32>,
    pass: u64,
    moved: UvmTraffic,
}

impl UvmTable {
    /// A table of rows of `row_bytes` each, of which the device holds `device_bytes` in whole pages.
    ///
    /// # Errors
    /// [`Error::Config`] for rows of no bytes, for a page size that is no power of two of at least 4 bytes, or if not all pages of a row fit.
    pub fn new(model: UvmModel, row_bytes: u64, device_bytes: u64) -> Result<Self, Error> {
        let page = model.page_bytes;
        if !page.is_power_of_two() || page < 16 {
            let wanted = "a power of two, 16 or more".into();
            return Err(Error::Config { field: "page_bytes", wanted, found: page.to_string() });
        }
        if row_bytes == 0 {
            return Err(Error::Config { field: "row_bytes", wanted: "at least one byte".into(), found: "0".into() });
        }
        let row = row_bytes;
        // A row may begin at the last byte of a page, unless page size and row size divide each other.
        let fit = page.is_multiple_of(row) || row.is_multiple_of(page);
        let least = if fit { row.div_ceil(page) } else { (row + page - 2) / page + 1 };
        let frames = (device_bytes / page).min(u64::from(u32::MAX));
        if frames < least {
            let wanted = format!("{least} pages of {page} bytes at least, for a row of {row_bytes} bytes");
            return Err(Error::Config { field: "device_bytes", wanted, found: device_bytes.to_string() });
        }
        let empty = Frame { page: EMPTY, pass: 0, hit: false, dirty: false };
        Ok(Self {
            model,
            row_bytes,
            frames: vec![empty; frames as usize],
            at: HashMap::new(),
            pass: 0,
            moved: UvmTraffic::default(),
        })
    }

    /// The model.
    #[must_use]
    pub const fn model(&self) -> &UvmModel {
        &self.model
    }

    /// Bytes of a row.
    #[must_use]
    pub const fn row_bytes(&self) -> u64 {
        self.row_bytes
    }

    /// The most pages that the device holds.
    #[must_use]
    pub const fn frames(&self) -> u32 {
        self.frames.len() as u32
    }

    /// All moves so far.
    #[must_use]
    pub const fn moved(&self) -> UvmTraffic {
        self.moved
    }

    /// The pages of a row.
    #[must_use]
    pub const fn pages(&self, row: u32) -> std::ops::RangeInclusive<u64> {
        let first = row as u64 * self.row_bytes;
        first / self.model.page_bytes..=(first + self.row_bytes - 1) / self.model.page_bytes
    }

    /// The frame of a page, if the device holds it.
    #[must_use]
    pub fn frame(&self, page: u64) -> Option<u32> {
        self.at.get(&page).copied()
    }

    /// Runs a pass over these linear rows. `write`: their pages must be written back later. `visit` gets each round, and the table with the
    /// frames after the round's moves.
    pub(super) fn rounds<E>(
        &mut self,
        rows: &[u32],
        write: bool,
        mut visit: impl FnMut(&Self, &Round) -> Result<(), E>,
    ) -> Result<UvmTraffic, E> {
        self.pass += 1;
        let before = self.moved;
        let mut here = HashSet::new();
        let (ready, mut rest): (Vec<u32>, Vec<u32>) = (0..rows.len() as u32).partition(|&access| {
            let all = self.pages(rows[access as usize]).all(|page| self.at.contains_key(&page));
            here.extend(self.pages(rows[access as usize]).filter(|page| self.at.contains_key(page)));
            all
        });
        for page in &here {
            let frame = &mut self.frames[self.at[page] as usize];
            (frame.pass, frame.hit) = (self.pass, true);
        }
        // Sorted, since neighbours share pages; stable, so that accesses of a row keep their order.
        rest.sort_by_key(|&access| rows[access as usize]);
        let mut rest = rest.into_iter().peekable();
        let mut accesses = ready;
        let mut used = here;
        // If the batch's own pages fill the device, an eighth of the frames serves all missing pages in turn.
        let width = rows.iter().map(|&row| self.pages(row).count()).max().unwrap_or(1);
        let window = (self.frames.len() / 8).max(width);
        let mut room = self.frames.len();
        let free = (self.frames.len() - used.len()).max(window);
        loop {
            while let Some(&access) = rest.peek() {
                let pages = || self.pages(rows[access as usize]);
                if used.len() + pages().filter(|page| !used.contains(page)).count() > room {
                    break;
                }
                used.extend(pages());
                accesses.push(access);
                rest.next();
            }
            let round = self.bring(&used, std::mem::take(&mut accesses), write);
            visit(self, &round)?;
            if rest.peek().is_none() {
                break;
            }
            used.clear();
            room = free;
        }
        let moved = |of: fn(&UvmTraffic) -> u64| of(&self.moved) - of(&before);
        Ok(UvmTraffic::of(moved(|moved| moved.pages_in), moved(|moved| moved.pages_out), self.model.page_bytes))
    }

    /// Makes the pages in `used` resident.
    fn bring(&mut self, used: &HashSet<u64>, accesses: Vec<u32>, write: bool) -> Round {
        let mut missing: Vec<u64> = used.iter().copied().filter(|page| !self.at.contains_key(page)).collect();
        missing.sort_unstable();
        let mut victims: Vec<u32> =
            (0..self.frames.len() as u32).filter(|&frame| !used.contains(&self.frames[frame as usize].page)).collect();
        // Order of leaving: empty frames, then longest unused pages; among pages of this pass those that came in it first.
        victims.sort_by_key(|&frame| {
            let Frame { page, pass, hit, .. } = self.frames[frame as usize];
            (page != EMPTY, pass, hit, frame)
        });
        let mut round = Round { accesses, ..Round::default() };
        for (page, frame) in missing.into_iter().zip(victims) {
            let old = self.frames[frame as usize];
            if old.page != EMPTY {
                self.at.remove(&old.page);
                if old.dirty {
                    round.leaving.push(Transfer { page: old.page, frame });
                }
            }
            self.at.insert(page, frame);
            self.frames[frame as usize] = Frame { page, pass: self.pass, hit: false, dirty: false };
            round.coming.push(Transfer { page, frame });
        }
        for page in used {
            let frame = &mut self.frames[self.at[page] as usize];
            frame.pass = self.pass;
            frame.dirty |= write;
        }
        self.moved += UvmTraffic::of(round.coming.len() as u64, round.leaving.len() as u64, self.model.page_bytes);
        round
    }

    /// Counts a pass without a device. Forward reads, backward writes.
    pub fn pass(&mut self, rows: &[u32], write: bool) -> UvmTraffic {
        let counted: Result<_, std::convert::Infallible> = self.rounds(rows, write, |_, _| Ok(()));
        match counted {
            Ok(moved) => moved,
        }
    }

    /// Writes every changed page back; the pages stay on the device.
    pub fn flush(&mut self) -> Vec<Transfer> {
        let dirty = (0..).zip(&mut self.frames).filter(|(_, frame)| frame.dirty);
        let leaving: Vec<_> = dirty
            .map(|(at, frame)| {
                frame.dirty = false;
                Transfer { page: frame.page, frame: at }
            })
            .collect();
        self.moved += UvmTraffic::of(0, leaving.len() as u64, self.model.page_bytes);
        leaving
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(row_bytes: u64, frames: u64) -> UvmTable {
        let model = UvmModel { page_bytes: 4096, ..UvmModel::default() };
        UvmTable::new(model, row_bytes, frames * 4096).unwrap()
    }

    /// Pages in and out.
    fn pages(moved: UvmTraffic) -> (u64, u64) {
        assert_eq!((moved.bytes_in, moved.bytes_out), (moved.pages_in * 4096, moved.pages_out * 4096));
        (moved.pages_in, moved.pages_out)
    }

    #[test]
    fn whole_pages_move() {
        let mut table = table(512, 2);
        // Rows 0 to 7 share page 0; row 8 begins page 1.
        assert_eq!(pages(table.pass(&[0, 7, 8], false)), (2, 0));
        assert_eq!(pages(table.pass(&[1, 9], true)), (0, 0));
        // Both pages are equally old, so the first one goes back.
        assert_eq!(pages(table.pass(&[16], false)), (1, 1));
        assert_eq!((table.frame(0), table.frame(1), table.frame(2)), (None, Some(1), Some(0)));
        // A page that was only read is dropped; a changed page goes back once.
        assert_eq!(pages(table.pass(&[8], false)), (0, 0));
        assert_eq!(pages(table.pass(&[24], false)), (1, 0));
        assert_eq!(table.flush(), [Transfer { page: 1, frame: 1 }]);
        assert_eq!(table.flush(), []);
        assert_eq!(pages(table.moved()), (4, 2));
    }

    #[test]
    fn least_recently_used_leaves() {
        let mut table = table(4096, 3);
        for row in [0, 1, 2, 0] {
            table.pass(&[row], false);
        }
        table.pass(&[3], false);
        assert_eq!([0, 1, 2, 3].map(|page| table.frame(page).is_some()), [true, false, true, true]);
    }

    #[test]
    fn a_row_across_a_border_takes_two_pages() {
        assert_eq!(pages(table(4097, 8).pass(&[0], false)), (2, 0));
        assert_eq!(table(4097, 8).pages(1), 1..=2);
    }

    #[test]
    fn a_batch_larger_than_the_device_passes_through() {
        let mut table = table(4096, 8);
        table.pass(&[0, 1, 2, 3], true);
        let rows: Vec<u32> = (0..20).chain([5, 19]).collect();
        let mut seen: Vec<u32> = Vec::new();
        let mut came = 0;
        let moved = table
            .rounds(&rows, true, |table, round| {
                came += round.coming.len();
                for &access in &round.accesses {
                    assert!(table.frame(u64::from(rows[access as usize])).is_some());
                }
                seen.extend(&round.accesses);
                Ok::<_, ()>(())
            })
            .unwrap();
        seen.sort_unstable();
        assert_eq!(seen, (0..22).collect::<Vec<_>>(), "each access once");
        assert_eq!((pages(moved), came), ((16, 12), 16), "each page once; twelve had to leave");
        // The pages that were there stayed.
        assert!((0..4).all(|page| table.frame(page).is_some()));
    }

    #[test]
    fn a_full_house_opens_a_window() {
        let mut table = table(4096, 8);
        table.pass(&[0, 1, 2, 3, 4, 5, 6, 7], false);
        assert_eq!(pages(table.pass(&(0..16).collect::<Vec<_>>(), false)), (8, 0));
        assert_eq!((0..8).filter(|&page| table.frame(page).is_some()).count(), 7);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let model = UvmModel::default();
        let field = |made: Result<UvmTable, Error>| match made {
            Err(Error::Config { field, .. }) => field,
            _ => "made",
        };
        assert_eq!(field(UvmTable::new(model, 512, 1000)), "device_bytes");
        assert_eq!(field(UvmTable::new(model, 500, 65_536)), "device_bytes", "a row may lie across two");
        assert_eq!(field(UvmTable::new(model, 512, 65_536)), "made");
        assert_eq!(field(UvmTable::new(model, 0, 65_536)), "row_bytes");
        assert_eq!(field(UvmTable::new(UvmModel { page_bytes: 3000, ..model }, 512, 65_536)), "page_bytes");
    }
}
