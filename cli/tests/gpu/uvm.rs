//! The unified-memory baseline moves real pages: where each of them lies, and what it holds, is what its moves say.

use hotrow_harness::device::with_gpu;
use hotrow_report::clock::{Clock, Rounds};
use hotrow_report::uvm::{UvmBus, UvmMove, UvmTable, UvmTraffic};
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64;

const PAGE: u64 = 4096;
const ROWS: u32 = 400;

/// What the pages hold in host memory, and what the frames hold on the device.
#[derive(Clone, PartialEq)]
struct Places([Vec<u32>; 2]);

impl Places {
    fn found(bus: &UvmBus<'_>) -> Self {
        Self(bus.first_words().unwrap())
    }

    fn carry(&mut self, moves: &[UvmMove]) {
        let Self([pages, frames]) = self;
        for &UvmMove { page, frame, back } in moves {
            let (page, frame) = (&mut pages[page as usize], &mut frames[frame as usize]);
            if back { *page = *frame } else { *frame = *page }
        }
    }

    /// The number of places that hold something else: pages in host memory, and frames.
    fn changed(&self, other: &Self) -> [u64; 2] {
        [0, 1].map(|at: usize| self.0[at].iter().zip(&other.0[at]).filter(|(a, b)| a != b).count() as u64)
    }
}

#[test]
fn the_pages_that_are_counted_move() {
    with_gpu(|context| {
        let clock = Clock::new(context, Rounds::ONE);
        if !context.caps().mappable {
            let refused = UvmBus::new(&clock, &UvmTable::new(PAGE, 512, PAGE).unwrap(), ROWS).unwrap_err();
            return assert!(refused.to_string().contains("wanted a device that maps host memory"), "{refused}");
        }
        let mut random = Pcg64::seed_from_u64(10);
        // Rows within a page, and rows of two pages; a batch fits beside what is there, or passes through.
        for (row_bytes, held, most) in [(512, 10, 4), (512, 10, 40), (5000, 16, 4), (5000, 16, 20)] {
            let mut table = UvmTable::new(PAGE, row_bytes, held * PAGE).unwrap();
            let bus = UvmBus::new(&clock, &table, ROWS).unwrap();
            let mut wanted = Places::found(&bus);
            let mut all = UvmTraffic::default();
            for pass in 0..40u32 {
                let write = pass % 2 == 1;
                let rows: Vec<u32> = (0..most).map(|_| random.random_range(0..ROWS)).collect();
                let (moves, before) = (table.pass(&rows, write), wanted.clone());
                assert!(bus.carry(&moves).unwrap() >= 0.0);
                wanted.carry(&moves);
                let found = Places::found(&bus);
                assert!(found == wanted, "rows of {row_bytes} bytes, pass {pass}");
                // The companion: a page that did not move, or moved to another frame, is noticed.
                if let [first, .., last] = moves[..] {
                    let mut others = before.clone();
                    others.carry(&moves[..moves.len() - 1]);
                    assert!(others != found || last.back, "a page is missing");
                    let mut others = before.clone();
                    others.carry(&[&[UvmMove { frame: last.frame, ..first }], &moves[1..moves.len() - 1]].concat());
                    assert!(others != found || first.frame == last.frame, "a page is elsewhere");
                }
                // Where no page passes through, each page that was counted is found in its place, and no other has changed.
                let counted = UvmTraffic::of(&moves);
                let spare = (held / row_bytes.div_ceil(PAGE)) * row_bytes.div_ceil(PAGE);
                if moves.iter().all(|one| one.frame < spare) {
                    assert_eq!(before.changed(&found), [counted.pages_out, counted.pages_in], "pass {pass}");
                }
                // As the kernels of a backward would: each frame gets a word that nothing else has.
                for frame in (0..spare).filter(|_| write) {
                    let word = 1 << 31 | pass << 16 | frame as u32;
                    bus.change(frame, word);
                    wanted.0[1][frame as usize] = word;
                }
                all.pages_in += counted.pages_in;
                all.pages_out += counted.pages_out;
            }
            assert!(all.pages_in > 40 && all.pages_out > 20, "{all:?}");
        }
    });
}
