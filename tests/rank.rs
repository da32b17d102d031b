//! The steps of `shaders/shared/rank_subgroup32.wgsl`, lane by lane on the CPU: 8 subgroups of 32 lanes, which run one
//! after another, in any order, between two barriers of the workgroup. (`tests/gpu/subgroup32.rs` runs the text
//! itself.)

use rand::{RngExt as _, SeedableRng as _, seq::SliceRandom as _};
use rand_pcg::Pcg64;

const SUBGROUPS: usize = 8;
const LANES: usize = 32;
const ROUNDS: usize = 12;
const BLOCK: usize = SUBGROUPS * LANES * ROUNDS;

/// One value for each of the 32 lanes.
type Each<T> = [T; LANES];

fn ballot(votes: Each<bool>) -> u32 {
    (0..LANES).filter(|&lane| votes[lane]).map(|lane| 1 << lane).sum()
}

fn shuffle(values: Each<u32>, from: Each<usize>) -> Each<u32> {
    from.map(|lane| values[lane])
}

/// A deliberate fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flaw {
    None,
    SevenBallots,
    RankCountsItself,
    LeaderKeepsTheSum,
    RoundsOutOfOrder,
}

/// The ranks of one subgroup's keys. Follows the shader's `rank` in every round.
fn ranks(digits: &[u8], counters: &mut [u32; 256], flaw: Flaw) -> Vec<u32> {
    let mut ranks = vec![0; LANES * ROUNDS];
    let mut rounds: Vec<usize> = (0..ROUNDS).collect();
    if flaw == Flaw::RoundsOutOfOrder {
        rounds.reverse();
    }
    for round in rounds {
        let digit: Each<u8> = std::array::from_fn(|lane| digits[round * LANES + lane]);
        let mut peers: Each<u32> = [u32::MAX; LANES];
        for bit in 0..if flaw == Flaw::SevenBallots { 7 } else { 8 } {
            let votes = ballot(digit.map(|digit| digit >> bit & 1 == 1));
            for lane in 0..LANES {
                peers[lane] &= if digit[lane] >> bit & 1 == 1 { votes } else { !votes };
            }
        }
        let leader: Each<usize> = peers.map(|peers| peers.trailing_zeros() as usize);
        let mut earlier: Each<u32> = [0; LANES];
        for lane in (0..LANES).filter(|&lane| leader[lane] == lane) {
            let counter = &mut counters[usize::from(digit[lane])];
            (earlier[lane], *counter) = (*counter, *counter + peers[lane].count_ones());
        }
        if flaw != Flaw::LeaderKeepsTheSum {
            earlier = shuffle(earlier, leader);
        }
        for lane in 0..LANES {
            let lower = if flaw == Flaw::RankCountsItself { (2u64 << lane) - 1 } else { (1u64 << lane) - 1 } as u32;
            ranks[round * LANES + lane] = earlier[lane] + (peers[lane] & lower).count_ones();
        }
    }
    ranks
}

/// The place of each key in its block, from the ranks, `rank_count`, the scan over the digits, and `rank_base`.
fn places(digits: &[u8; BLOCK], order: [usize; SUBGROUPS], flaw: Flaw) -> Vec<u32> {
    let mut counters = [[0u32; 256]; SUBGROUPS];
    let mut rank = vec![Vec::new(); SUBGROUPS];
    for subgroup in order {
        let share = &digits[subgroup * LANES * ROUNDS..][..LANES * ROUNDS];
        rank[subgroup] = ranks(share, &mut counters[subgroup], flaw);
    }
    let mut begin = [0u32; 256];
    let mut before = 0;
    for digit in 0..256 {
        let mut sum = 0;
        for row in &mut counters {
            (row[digit], sum) = (sum, sum + row[digit]);
        }
        (begin[digit], before) = (before, before + sum);
    }
    let place = |subgroup: usize, i: usize| {
        let digit = usize::from(digits[subgroup * LANES * ROUNDS + i]);
        begin[digit] + counters[subgroup][digit] + rank[subgroup][i]
    };
    (0..SUBGROUPS)
        .flat_map(|subgroup| (0..LANES * ROUNDS).map(move |i| (subgroup, i)))
        .map(|(s, i)| place(s, i))
        .collect()
}

/// The place of each key by the standard library's stable sort.
fn wanted(digits: &[u8; BLOCK]) -> Vec<u32> {
    let mut order: Vec<usize> = (0..BLOCK).collect();
    order.sort_by_key(|&i| digits[i]);
    let mut places = vec![0; BLOCK];
    (0..).zip(order).for_each(|(place, i)| places[i] = place);
    places
}

fn blocks() -> Vec<[u8; BLOCK]> {
    let mut source = Pcg64::seed_from_u64(1);
    let mut blocks: Vec<[u8; BLOCK]> = vec![[0; BLOCK], [255; BLOCK]];
    blocks.push(std::array::from_fn(|i| (i * 256 / BLOCK) as u8));
    blocks.push(std::array::from_fn(|i| 255 - (i * 256 / BLOCK) as u8));
    for reach in [2, 3, 32, 200, 256] {
        blocks.push(std::array::from_fn(|_| source.random_range(0..reach) as u8));
        // The block is cut off and filled up with the highest digit.
        let n = source.random_range(0..BLOCK);
        blocks.push(std::array::from_fn(|i| if i < n { source.random_range(0..reach) as u8 } else { 255 }));
    }
    blocks
}

#[test]
fn every_key_gets_its_place() {
    let mut source = Pcg64::seed_from_u64(2);
    for digits in blocks() {
        for _ in 0..4 {
            let mut order = std::array::from_fn(|subgroup| subgroup);
            order.shuffle(&mut source);
            assert_eq!(places(&digits, order, Flaw::None), wanted(&digits));
        }
    }
}

#[test]
fn flaws_are_noticed() {
    let order = std::array::from_fn(|subgroup| subgroup);
    for flaw in [Flaw::SevenBallots, Flaw::RankCountsItself, Flaw::LeaderKeepsTheSum, Flaw::RoundsOutOfOrder] {
        assert!(blocks().iter().any(|digits| places(digits, order, flaw) != wanted(digits)), "{flaw:?}");
    }
}

#[test]
fn the_shader_has_these_sizes() {
    let text = include_str!("../shaders/shared/sort.wgsl");
    assert!(text.contains(&format!("const SORT_ROUNDS: u32 = {ROUNDS}u;")));
    assert!(text.contains(&format!("const SORT_BLOCK: u32 = {BLOCK}u;")));
}
