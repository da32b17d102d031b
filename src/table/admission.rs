//! Decides from the metadata of a set alone which rows come into it and which leave (SPEC 3, step 4, and pins): for the CPU backend, the plans of pins
//! and simulated caches. `shaders/cached/admit.wgsl` decides the same on a device.

use multiversion::multiversion;

use crate::{
    config::PolicyFacts,
    host::trusted::equal,
    table::abi::{DIRTY, NONE, PINNED, RECENT},
};

/// What rows are admitted by.
///
/// ```
/// use hotrow::{Policy, internals::{admission::{Room, Rule, Set}, layout::NONE}};
///
/// // A set of two ways under LRU at step 9: row 5 was used in step 8, the other way is empty.
/// let mut words = [5, NONE, 8, 0, 0, 0, 0, 0];
/// let mut room = Room::default();
/// room.candidates = vec![(Rule::order(1, 6), 0), (Rule::order(3, 7), 1)]; // row 6 with one access, row 7 with three
/// let mut moves = Vec::new();
/// Rule { facts: Policy::Lru.facts(), t: 9 }.admit(&mut Set::of(&mut words), &mut room, |one| moves.push((one.row, one.way)));
/// assert_eq!((moves, words[..2].to_vec()), (vec![(7, 1), (6, 0)], vec![6, 7]));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// The facts of the policy.
    pub facts: PolicyFacts,
    /// The step number.
    pub t: u32,
}

/// The metadata of a set: lists with an entry for each way.
///
/// Example: [`Rule`].
#[derive(Debug)]
pub struct Set<'s> {
    /// The rows; NONE in an empty way.
    pub tags: &'s mut [u32],
    /// The steps that have used them last.
    pub stamps: &'s mut [u32],
    /// Copies of their counters.
    pub freqs: &'s mut [u32],
    /// [`DIRTY`], [`PINNED`] and [`RECENT`].
    pub flags: &'s mut [u32],
}

impl<'s> Set<'s> {
    /// The set of these words, four for each way: the lists one behind another.
    #[inline]
    #[must_use]
    pub fn of(words: &'s mut [u32]) -> Self {
        let ways = words.len() / 4;
        let (tags, rest) = words.split_at_mut(ways);
        let (stamps, rest) = rest.split_at_mut(ways);
        let (freqs, flags) = rest.split_at_mut(ways);
        Self { tags, stamps, freqs, flags }
    }

    fn put(&mut self, way: usize, row: u32, stamp: u32, freq: u32) {
        (self.tags[way], self.stamps[way], self.freqs[way]) = (row, stamp, freq);
    }
}

/// A row that comes into a way.
///
/// Example: [`Rule`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The number of the candidate.
    pub candidate: u32,
    /// The row that comes.
    pub row: u32,
    /// Its way.
    pub way: usize,
    /// The row that leaves the cache for it.
    pub left: Option<Left>,
}

/// A row that leaves.
///
/// Example: [`Rule`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// The row.
    pub row: u32,
    /// Its slot is newer than its record.
    pub dirty: bool,
    /// This step uses it.
    pub used: bool,
}

/// The way of a row, by the tags of its set.
#[inline(always)]
#[must_use]
pub fn find(tags: &[u32], row: u32) -> Option<usize> {
    if let Ok(tags) = <&[u32; 32]>::try_from(tags) {
        let found = equal(tags, row);
        return (found != 0).then(|| found.trailing_zeros() as usize);
    }
    tags.iter().position(|&tag| tag == row)
}

/// The ways of a set without ways for recent rows, in the order in which they are taken.
///
/// Example: [`Rule`].
pub trait Victims {
    /// The way that is taken next, behind its value: 0 of an empty way, else one more than [`Rule::value`]. `None` if no way is left.
    fn first(&mut self, rule: &Rule, set: &Set<'_>) -> Option<(u32, usize)>;

    /// Takes this way, which [`first`](Self::first) has named.
    fn take(&mut self, way: usize);
}

/// The value of each way, NONE for one that is not to be taken: all are looked at for each row that comes.
struct Values<'v>(&'v mut [u32]);

impl Victims for Values<'_> {
    #[inline]
    fn first(&mut self, _: &Rule, _: &Set<'_>) -> Option<(u32, usize)> {
        let least = self.0.iter().fold(NONE, |least, &value| least.min(value));
        (least != NONE).then(|| self.0.iter().position(|&value| value == least)).flatten().map(|way| (least, way))
    }

    #[inline]
    fn take(&mut self, way: usize) {
        self.0[way] = NONE;
    }
}

/// Lists for one set, to be used again.
///
/// Example: [`Rule`].
#[derive(Debug, Default)]
pub struct Room {
    /// The candidates: what [`Rule::order`] gives, and a number.
    pub candidates: Vec<(u64, u32)>,
    values: Vec<u32>,
    /// The orders in which main ways are taken, and ways for recent rows.
    orders: [Vec<u64>; 2],
}

/// A number behind another one by which it is ordered first.
const fn pair(high: u32, low: u32) -> u64 {
    (high as u64) << 32 | low as u64
}

/// The order of a way that is not to be taken.
const TAKEN: u64 = u64::MAX;

/// The order of a way that is not empty: by its counter, then by its stamp. An empty way has 0.
const fn taken_order(freq: u32, stamp: u32) -> u64 {
    pair(freq, stamp) + 1
}

impl Rule {
    /// The key of a missing row by its counter, if there is one, and its accesses in the batch. Under ageing counters that count decides among equal
    /// counters; it is greater than the counter only where that is 15.
    #[inline]
    #[must_use]
    pub const fn key(self, uses: u32, count: u32) -> u32 {
        match self.facts {
            PolicyFacts { ages: true, .. } => 16 * uses + count,
            PolicyFacts { counts: true, .. } => uses,
            _ => count,
        }
    }

    /// The counter in a key; 0 without counters.
    fn uses_of_key(self, key: u32) -> u32 {
        match self.facts {
            PolicyFacts { ages: true, .. } => (key / 16).min(15),
            PolicyFacts { counts: true, .. } => key,
            _ => 0,
        }
    }

    /// A number by which missing rows are ordered, the first to come first: greater keys first, then lower rows.
    #[inline]
    #[must_use]
    pub const fn order(key: u32, row: u32) -> u64 {
        pair(!key, row)
    }

    /// The number by which the ways of a set without ways for recent rows are taken, the lowest first: counter or stamp.
    #[inline]
    #[must_use]
    pub fn value(&self, set: &Set<'_>, way: usize) -> u32 {
        if self.facts.counts { set.freqs[way] } else { set.stamps[way] }
    }

    /// Whether a row with this key may take a way of this value from another row.
    fn may_take(&self, value: u32, key: u32) -> bool {
        if self.facts.counts { value < self.uses_of_key(key) } else { value != self.t }
    }

    /// Admits the candidates of `room` to their set, the best first, until one finds no way. Calls `seated` for each of them.
    #[inline]
    pub fn admit(&self, set: &mut Set<'_>, room: &mut Room, seated: impl FnMut(Move)) {
        let Room { candidates, values, orders } = room;
        if candidates.len() > set.tags.len() {
            // The others find no way.
            candidates.select_nth_unstable(set.tags.len());
            candidates.truncate(set.tags.len());
        }
        candidates.sort_unstable();
        if self.facts.recent {
            return self.admit_recent(set, candidates, orders, seated);
        }
        values.clear();
        let by = set.tags.iter().zip(&*set.flags).zip(if self.facts.counts { &*set.freqs } else { &*set.stamps });
        values.extend(by.map(|((&tag, &flags), &by)| match (tag, flags & PINNED) {
            (NONE, _) => 0,
            (_, 0) => by.wrapping_add(1),
            _ => NONE,
        }));
        self.admit_in_order(set, candidates, Values(values), seated);
    }

    /// The l-th candidate takes the l-th way, until one may not.
    #[inline]
    pub fn admit_in_order(
        &self,
        set: &mut Set<'_>,
        candidates: &[(u64, u32)],
        mut victims: impl Victims,
        mut seated: impl FnMut(Move),
    ) {
        for &(order, candidate) in candidates {
            let (key, row) = (!((order >> 32) as u32), order as u32);
            // Values rise and keys fall: if this candidate finds no way, then no later one does.
            let Some((value, way)) = victims.first(self, set) else { break };
            if value != 0 && !self.may_take(value - 1, key) {
                break;
            }
            victims.take(way);
            let left = (value != 0).then(|| self.leave(set, way));
            set.put(way, row, self.t, self.uses_of_key(key));
            seated(Move { candidate, row, way, left });
        }
    }

    /// Admits by recent use and by counters (SPEC 3, Window).
    fn admit_recent(
        &self,
        set: &mut Set<'_>,
        candidates: &[(u64, u32)],
        [main, recent]: &mut [Vec<u64>; 2],
        mut seated: impl FnMut(Move),
    ) {
        orders(self.t, set, [main, recent]);
        // Of each kind, the way that is next to be taken.
        let (mut counted, mut oldest) = (None, None);
        for &(order, candidate) in candidates {
            for (next, orders) in [(&mut counted, &*main), (&mut oldest, &*recent)] {
                if next.is_none_or(|way: usize| orders[way] == TAKEN) {
                    *next = first(orders, set.tags);
                }
            }
            let (uses, row) = (self.uses_of_key(!((order >> 32) as u32)), order as u32);
            let Set { tags, stamps, freqs, flags } = set;
            let way = match (counted, oldest) {
                (Some(way), _) if tags[way] == NONE || uses > freqs[way] => way,
                (Some(least), Some(way)) if tags[way] != NONE && freqs[way] > freqs[least] => {
                    // The row of recent use stays, among those by counters.
                    (flags[way], flags[least]) = (flags[way] & !RECENT, flags[least] | RECENT);
                    (main[way], recent[way]) = (taken_order(freqs[way], stamps[way]), TAKEN);
                    least
                }
                (_, Some(way)) => way,
                (_, None) => continue,
            };
            (main[way], recent[way]) = (TAKEN, TAKEN);
            let left = (tags[way] != NONE).then(|| self.leave(set, way));
            set.put(way, row, self.t, uses);
            seated(Move { candidate, row, way, left });
        }
    }

    fn leave(&self, set: &mut Set<'_>, way: usize) -> Left {
        let left = Left { row: set.tags[way], dirty: set.flags[way] & DIRTY != 0, used: set.stamps[way] == self.t };
        set.flags[way] &= !DIRTY;
        left
    }

    /// Pins exactly these rows of a set, none of which is dirty, and gives the set `recent` ways for recent rows where pins leave so many. Returns
    /// the rows that come with their ways, and adds those that leave to `left`. A row that comes has no counter yet.
    pub fn pin(&self, set: &mut Set<'_>, wanted: &[u32], recent: u32, left: &mut Vec<u32>) -> Vec<(usize, u32)> {
        for way in 0..set.tags.len() {
            let was = set.flags[way] & PINNED != 0;
            set.flags[way] &= !PINNED;
            if set.tags[way] == NONE {
                continue;
            }
            if wanted.contains(&set.tags[way]) {
                set.flags[way] = set.flags[way] & !RECENT | PINNED;
            } else if was && !self.facts.admits {
                left.push(set.tags[way]);
                empty(set, way);
            }
        }
        let missing = wanted.iter().filter(|row| !set.tags.contains(row)).copied().collect::<Vec<_>>();
        let mut victims: Vec<usize> = (0..set.tags.len()).filter(|&way| set.flags[way] & PINNED == 0).collect();
        // The order of admission, ways for recent rows last.
        victims.sort_by_key(|&way| {
            let recent = set.flags[way] & RECENT;
            let value = if recent == 0 { self.value(set, way) } else { 0 };
            let by = match (set.tags[way], self.facts.recent) {
                (NONE, _) => [0; 3],
                (_, false) => [value, 0, 0],
                (row, true) => [value, set.stamps[way], row],
            };
            (recent, set.tags[way] != NONE, by, way)
        });
        let come: Vec<(usize, u32)> = victims.into_iter().zip(missing).collect();
        for &(way, row) in &come {
            left.extend((set.tags[way] != NONE).then_some(set.tags[way]));
            set.put(way, row, self.t, 0);
            set.flags[way] = PINNED;
        }
        keep_recent(set, recent);
        come
    }
}

/// Gives a set as many ways for recent rows as it can have beside its pinned ones, up to `wanted`: the empty ways first, then the ways of the oldest rows.
pub(crate) fn keep_recent(set: &mut Set<'_>, wanted: u32) {
    let all = &*set.flags;
    let with = |flags: u32| (0..all.len()).filter(move |&way| all[way] & (PINNED | RECENT) == flags);
    let mut free: Vec<usize> = with(0).collect();
    let more = (wanted as usize).saturating_sub(with(RECENT).count());
    free.sort_by_key(|&way| match set.tags[way] {
        NONE => (false, [way as u32, 0]),
        tag => (true, [set.stamps[way], tag]),
    });
    free.into_iter().take(more).for_each(|way| set.flags[way] |= RECENT);
}

/// Empties a way.
pub(crate) fn empty(set: &mut Set<'_>, way: usize) {
    set.put(way, NONE, 0, 0);
    set.flags[way] = 0;
}

/// Writes the orders in which the ways of a set are taken: main ways, and ways for recent rows.
#[multiversion(targets = "simd")]
fn orders(t: u32, set: &Set<'_>, [main, recent]: [&mut Vec<u64>; 2]) {
    let ways = || set.tags.iter().zip(&*set.stamps).zip(&*set.freqs).zip(&*set.flags);
    // An empty way first, and none that this batch uses.
    let order = |tag, stamp, freq| match tag {
        NONE => 0,
        _ if stamp == t => TAKEN,
        _ => taken_order(freq, stamp),
    };
    let of_kind = |flags, kind, order| if flags & (PINNED | RECENT) == kind { order } else { TAKEN };
    main.clear();
    main.extend(ways().map(|(((&tag, &stamp), &freq), &flags)| of_kind(flags, 0, order(tag, stamp, freq))));
    recent.clear();
    recent.extend(ways().map(|(((&tag, &stamp), _), &flags)| of_kind(flags, RECENT, order(tag, stamp, 0))));
}

/// The way to take next, of the least order; ties go to the lower row. Without branches, because it runs over the whole set for every row that comes.
#[multiversion(targets = "simd")]
fn first(orders: &[u64], rows: &[u32]) -> Option<usize> {
    let least = orders.iter().fold(TAKEN, |least, &order| least.min(order));
    let tie = |((&order, &row), way)| if order == least { pair(row, way) } else { TAKEN };
    let tie = orders.iter().zip(rows).zip(0..).map(tie).fold(TAKEN, u64::min);
    (least != TAKEN).then_some(tie as u32 as usize)
}
