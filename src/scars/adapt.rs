//! Proposals between epochs: whether to pin other rows, more rows, or fewer.
//!
//! A [`Proposal`] changes nothing until it is [applied](Proposal::apply).

use crate::{
    config::setters,
    error::Error,
    lookup::Embedding,
    scars::{fit::sets_for, hot::HotRows, positive, ranked::Ranked, refused},
    table::{counters::Counters, hash::fmix32},
};

#[cfg(test)]
mod tests;

/// The counters of a run, and the cache it ran on.
///
/// ```
/// use hotrow::scars::{Advice, Counting, Profile, Rules, Run};
/// use hotrow::{Counters, CpuGroup, GroupConfig};
///
/// let mut group = CpuGroup::new(GroupConfig::new(&[10_000], 8).with_cache_rows(64))?;
/// let mut profile = Profile::new(&[10_000], Counting::Exact);
/// for k in 0..100 {
///     let batch = [1, 2, 3, 1000 + k]; // three hot rows, and one that is looked up once
///     profile.count(0, &batch)?;
///     group.forward(&batch, &[0, 4], None)?;
///     group.abandon_backward();
/// }
/// let ranked = profile.ranked();
/// let run = Run::of(&mut group, Counters::default(), 100, &ranked, 16, false)?;
/// let proposal = run.propose(&Rules::default())?;
/// assert_eq!(proposal.advice, Advice::Grow);
/// assert!(proposal.rows.starts_with(&[1, 2, 3]) && proposal.then.bytes < proposal.now.bytes);
/// proposal.apply(&mut group, 16)?;
/// assert!(group.pinned()?.len() >= 3);
/// # Ok::<(), hotrow::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Run<'a> {
    /// The counts of the run, over all tables: the counters after the run less those before it.
    pub counters: Counters,
    /// Number of batches in the run.
    pub batches: u64,
    /// The number of uses of each linear row in the run, over all tables of the group.
    pub ranked: &'a Ranked,
    /// Linear rows that were pinned during the run.
    pub pinned: Vec<u32>,
    /// Sets of the cache.
    pub sets: u32,
    /// Ways of a set.
    pub set_ways: u32,
    /// Ways of each set that may be pinned.
    pub ways: u32,
    /// Bytes of a record: [`Layout::stride`](crate::Layout::stride).
    pub record: u64,
    /// Whether each batch had a backward, so that rows were written too.
    pub training: bool,
}

/// When a change is worth proposing. Shares, 0 to 1, refer to the bytes that would cross the bus with nothing pinned.
///
/// Example: [`Run`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Rules {
    /// The least share that a change must save: 0.02. Less may be chance, since the hottest rows of a sample look
    /// hotter than they are.
    pub gain: f64,
    /// The share that may be given up to pin fewer rows: 0.005. It is measured from the best choice that the rules
    /// allow, not from what is pinned, so repeated proposals do not give it up twice.
    pub loss: f64,
    /// The least share of the pinned rows that [`Advice::Shrink`] must remove: 0.1.
    pub fewer: f64,
    /// Most rows that may be pinned. Unless the cache may be resized, the ways that may be pinned are a second limit.
    pub most_rows: u64,
    /// Whether the cache itself may be resized, to as many sets as give 99 % of the proposed rows a way. Off by
    /// default: under LRU and LFU the ways that are not pinned serve other rows.
    pub resize: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self { gain: 0.02, loss: 0.005, fewer: 0.1, most_rows: u64::MAX, resize: false }
    }
}

setters!(Rules {
    with_gain gain: f64,
    with_loss loss: f64,
    with_fewer fewer: f64,
    with_most_rows most_rows: u64,
    with_resize resize: bool,
});

/// The advice of a [`Proposal`].
///
/// Example: [`Run`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Advice {
    /// Change nothing.
    Keep,
    /// Pin more rows: rows that are not pinned are hot too.
    Grow,
    /// Pin fewer rows: the coldest pinned ones save hardly anything.
    Shrink,
    /// Pin other rows, as many as now: other rows have become hot.
    Repin,
}

/// Hit rate and traffic of a batch.
///
/// Example: [`Run`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Share of the accesses that are hits, 0 to 1.
    pub hit_rate: f64,
    /// Bytes that cross the bus for a batch, both ways.
    pub bytes: f64,
}

/// A proposal, with the rates expected from it.
///
/// Example: [`Run`].
#[derive(Clone, Debug, PartialEq)]
pub struct Proposal {
    /// The advice.
    pub advice: Advice,
    /// The reason for the advice, in a sentence.
    pub reason: String,
    /// Linear rows to pin, hottest first; all of them find a way. For [`Advice::Keep`], the rows pinned now.
    pub rows: Vec<u32>,
    /// Rows that the cache should hold; as now, unless [`Rules::resize`].
    pub cache_rows: u32,
    /// The rates that the run's counters give. Bytes of pinning and flushing are among them.
    pub measured: Rates,
    /// The rates that the model gives for the rows pinned now. Measured rates are better by what the model leaves out:
    /// rows used again within few batches, and rows that an LRU or LFU cache keeps beside the pinned ones.
    pub now: Rates,
    /// The rates that the model gives for [`Proposal::rows`], if the next run is like this one.
    pub then: Rates,
    /// Bytes that cross once when the proposal is applied: records of the rows to load (all of them if the cache is
    /// resized) and, in training, of the rows that leave.
    pub moved: u64,
}

impl<'a> Run<'a> {
    /// Describes a run of `batches` batches that `group` has just finished. `since` are its counters, summed over its
    /// tables, before the run. At most `ways` ways of each set may be pinned.
    ///
    /// # Errors
    /// [`Error::Device`] if the device is lost.
    pub fn of(
        group: &mut dyn Embedding,
        since: Counters,
        batches: u64,
        ranked: &'a Ranked,
        ways: u32,
        training: bool,
    ) -> Result<Self, Error> {
        let counters = group.counters()?.into_iter().sum::<Counters>() - since;
        let (pinned, layout) = (group.pinned()?, group.layout());
        let (sets, set_ways, record) = (layout.sets, layout.ways, layout.stride());
        Ok(Self { counters, batches, ranked, pinned, sets, set_ways, ways: ways.min(set_ways), record, training })
    }

    /// Proposes the rows to pin before the next run.
    ///
    /// If the counts stay the same, an applied proposal is followed by [`Advice::Keep`], whatever the rules. Counts of
    /// new accesses differ by chance, the more the fewer they are; `gain` and `fewer` absorb that. A
    /// [`Profile`](crate::scars::profile::Profile) may also count over several runs.
    ///
    /// The model is SCARS, eq. 6: lookups are independent draws, as in a shuffled epoch. Its bytes are within 1 % of
    /// the counted ones while a batch is at most 1 % of the accesses counted. With exact counts its hit rate is exact
    /// for the same accesses. On new accesses the same rows get fewer hits, because a row is among the hottest partly
    /// by chance; the effect grows as fewer accesses are counted.
    ///
    /// # Errors
    /// [`Error::Scars`] for a run without batches or accesses, and for rules that are not shares.
    pub fn propose(&self, rules: &Rules) -> Result<Proposal, Error> {
        for (what, share) in [("gain", rules.gain), ("loss", rules.loss), ("fewer", rules.fewer)] {
            if !(0.0..=1.0).contains(&share) {
                return Err(refused(what, "a share, 0 to 1", &share, "correct the rules"));
            }
        }
        let remedy = "let the run have batches, and count their accesses";
        let lookups = positive("lookups of a batch", self.counters.accesses as f64 / self.batches as f64, remedy)?;
        let skew = self.ranked.skew()?;

        let saving = Saving { accesses: self.ranked.accesses() as f64, lookups };
        let all = skew.distinct(lookups, 0);
        let present = HotRows::new(&self.pinned);
        let (pinned, listed) = (present.len(), rules.most_rows.min(self.ranked.used().len() as u64) as usize);
        let mine = self.ranked.used().iter().filter(|&&(row, _)| present.has(row));
        let (hits_now, saved_now) = saving.of_all(mine);

        // The target does not depend on what is pinned now: the fewest rows that are as good as the most, up to the
        // loss. So after Grow or Shrink the next proposal does not grow or shrink further, and nothing is given up
        // twice.
        let most = if rules.resize { self.ranked.used()[..listed].to_vec() } else { self.best(self.sets, listed) };
        let target = saving.enough(&most, rules.loss * all);
        let target_sets = if rules.resize { self.sets_of(target as u64)? } else { self.sets };
        let grown = Choice::of(self, saving, target_sets.max(self.sets), if target > pinned { target } else { 0 });
        let same = Choice::of(self, saving, self.sets, pinned.min(listed));

        let each = self.record as f64 * if self.training { 2.0 } else { 1.0 };
        let rates = |hits: u64, saved: f64| Rates {
            hit_rate: hits as f64 / saving.accesses,
            bytes: each * (all - saved).max(0.0),
        };
        let now = rates(hits_now, saved_now);
        let cost = |choice: &Choice| self.record * self.moves(choice, &present);
        // The change saves its share of the bytes, and a run like the last one saves more than the change itself costs.
        let pays = |choice: &Choice, over: f64| {
            let earned = (now.bytes - rates(choice.hits, choice.saved).bytes) * self.batches as f64;
            choice.saved - over >= rules.gain * all && choice.saved > over && earned > cost(choice) as f64
        };

        // Where growing costs more than it saves, other rows in the same number may still pay.
        let fewer = target < pinned && target as f64 <= (1.0 - rules.fewer) * pinned as f64;
        let change = if grown.rows.len() > pinned && pays(&grown, same.saved) {
            Some((Advice::Grow, grown))
        } else if fewer && target_sets <= self.sets {
            Some((Advice::Shrink, Choice::of(self, saving, target_sets, target)))
        } else if pays(&same, saved_now) {
            Some((Advice::Repin, same))
        } else {
            None
        };
        let (advice, rows, sets, then, moved) = match change {
            None => (Advice::Keep, self.pinned.clone(), self.sets, now, 0),
            Some((advice, choice)) => {
                let (then, moved) = (rates(choice.hits, choice.saved), cost(&choice));
                (advice, choice.rows, choice.sets, then, moved)
            }
        };
        let cache_rows = sets * self.set_ways;
        let measured =
            Rates { hit_rate: self.counters.hit_rate(), bytes: self.counters.bus_bytes() as f64 / self.batches as f64 };
        let reason = reason(advice, pinned, rows.len(), now, then);
        Ok(Proposal { advice, reason, rows, cache_rows, measured, now, then, moved })
    }

    /// Number of records that a choice moves: rows to load (all of them into a resized cache) and, in training, rows
    /// that leave.
    fn moves(&self, choice: &Choice, present: &HotRows) -> u64 {
        let wanted = HotRows::new(&choice.rows);
        let comes = choice.rows.iter().filter(|&&row| choice.sets != self.sets || !present.has(row)).count();
        let leaves = self.pinned.iter().filter(|&&row| self.training && !wanted.has(row)).count();
        (comes + leaves) as u64
    }

    /// The hottest rows that find a way in a cache of `sets` sets, at most `most`, each with its count.
    fn best(&self, sets: u32, most: usize) -> Vec<(u32, u64)> {
        let mut taken = vec![0; sets as usize];
        let finds_way = |&&(row, _): &&(u32, u64)| {
            let set = &mut taken[(fmix32(row) % sets) as usize];
            *set += 1;
            *set <= self.ways
        };
        let most = most.min(sets as usize * self.ways as usize);
        self.ranked.used().iter().take_while(|_| most > 0).filter(finds_way).take(most).copied().collect()
    }

    /// Number of sets in which 99 % of `rows` rows are expected to find a way; at most as many as hold all rows.
    fn sets_of(&self, rows: u64) -> Result<u32, Error> {
        if rows == 0 {
            return Ok(0);
        }
        let all = self.ranked.rows().div_ceil(u64::from(self.set_ways)) as u32;
        Ok(sets_for(rows, self.ways, 0.99)?.min(all))
    }
}

/// Computes the saving of a pinned row.
#[derive(Clone, Copy, Debug)]
struct Saving {
    accesses: f64,
    lookups: f64,
}

impl Saving {
    /// The probability that a batch has a row that was used `count` times: `1 - (1 - P)^b` (SCARS, eq. 1).
    fn of(self, count: u64) -> f64 {
        -(self.lookups * (-(count as f64) / self.accesses).ln_1p()).exp_m1()
    }

    /// The accesses to some rows, and the saving of pinning these rows.
    fn of_all<'r>(self, rows: impl IntoIterator<Item = &'r (u32, u64)>) -> (u64, f64) {
        rows.into_iter().fold((0, 0.0), |(hits, sum), &(_, count)| (hits + count, sum + self.of(count)))
    }

    /// The number of rows, hottest first, that save as much as all of them less `loss`.
    fn enough(self, rows: &[(u32, u64)], loss: f64) -> usize {
        let wanted = self.of_all(rows).1 - loss;
        let mut sum = 0.0;
        let short = |&&(_, count): &&(u32, u64)| {
            let short = sum < wanted;
            sum += self.of(count);
            short
        };
        rows.iter().take_while(short).count()
    }
}

/// Rows to pin, and the cache to pin them in.
#[derive(Clone, Debug)]
struct Choice {
    sets: u32,
    rows: Vec<u32>,
    hits: u64,
    saved: f64,
}

impl Choice {
    /// Chooses the hottest rows that find a way in `sets` sets, at most `most`.
    fn of(run: &Run<'_>, saving: Saving, sets: u32, most: usize) -> Self {
        let best = run.best(sets, most);
        let (hits, saved) = saving.of_all(&best);
        Self { sets, rows: best.into_iter().map(|(row, _)| row).collect(), hits, saved }
    }
}

fn reason(advice: Advice, pinned: usize, rows: usize, now: Rates, then: Rates) -> String {
    let (now, then) = (100.0 * now.hit_rate, 100.0 * then.hit_rate);
    match advice {
        Advice::Keep => {
            format!("the {pinned} rows pinned take {now:.1} % of the accesses, and no other choice is worth its change")
        }
        Advice::Grow => {
            format!("the {pinned} rows pinned take {now:.1} % of the accesses, {rows} would take {then:.1} %")
        }
        Advice::Shrink => {
            format!("{rows} rows would take {then:.1} % of the accesses, the {pinned} rows pinned take {now:.1} %")
        }
        Advice::Repin => {
            format!(
                "the {pinned} rows pinned take {now:.1} % of the accesses, the {rows} hottest would take {then:.1} %"
            )
        }
    }
}

impl Proposal {
    /// Resizes the cache, if the proposal does, and pins the proposed rows, at most `ways` in a set. Returns the rows
    /// that found no way: none, if `ways` is that of the run. [`Advice::Keep`] changes nothing.
    ///
    /// # Errors
    /// The errors of [`Embedding::pin`] and [`Embedding::resize_cache`]. The call may be repeated.
    pub fn apply(&self, group: &mut dyn Embedding, ways: u32) -> Result<Vec<u32>, Error> {
        if self.advice == Advice::Keep {
            return Ok(Vec::new());
        }
        if self.cache_rows != group.layout().slots() {
            // Unpins first, so that the resize does not load rows that leave anyway.
            group.pin(&[], ways)?;
            group.resize_cache(self.cache_rows.min(group.layout().total_rows))?;
        }
        if self.rows.is_empty() { Ok(Vec::new()) } else { group.pin(&self.rows, ways) }
    }
}
