//! A group whose rows lie on several ranks (SPEC 11).

use std::{borrow::Cow, fmt};

use hotrow::{
    Bags, Counters, Error, GradSlice, GroupConfig, Lookup, MemoryReport, Mode, OutOfRange, OutputSlice, Placement,
    Pooling, Precision, ScalerState,
    ranks::{
        Feature, Layout, SECOND_FORWARD, Shard, Wire, WireForm, check_batch, check_rows, features, output_len, room,
        shards as shards_of,
    },
    state::Part,
};

use crate::{
    comm::{Comm, Parcels, Ticket},
    error::{RankError, cut, whole},
    link::Link,
    options::WireOptions,
    requests::{self, Deal, Requests},
    step::{Ahead, Asked, Asking, Begun, Early, Stage, Waiting},
    sums::{Share, Sums},
    traffic::{Phase, RankTraffic},
};

/// The call that a rank takes part in. Ranks that make different calls all get an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Call {
    Forward = 1,
    Frozen,
    Read,
    Prefetch,
}

impl Call {
    /// Whether the call begins a step.
    const fn steps(self) -> bool {
        matches!(self, Self::Forward | Self::Prefetch)
    }
}

/// Bytes of outputs of all ranks up to which no device refuses any: a binding has at least as many.
const SMALL: u64 = 1 << 27;
/// Words before the counts of rows in the message of [`Phase::Counts`].
const HEADER: usize = 4;
/// Set in the status of a rank whose batch is refused.
const REFUSED: u32 = 1 << 10;
/// Marks the status of a rank with indices outside their tables.
const OUTSIDE: u32 = 1 << 8;
/// Marks the status of a rank whose batch has weights.
const WEIGHTED: u32 = 1 << 9;
/// The bit of a status at which the code of the wire begins.
const WIRE: u32 = 3;
/// The part of a status that is no mark: the call and the wire.
const CALL: u32 = OUTSIDE - 1;

/// The call and the wire of a status, for an error.
fn named(code: u32) -> String {
    let call = ["forward", "frozen forward", "read_rows", "prefetch"].get((code & 7).wrapping_sub(1) as usize);
    let form = |number: u32| WireForm::ALL[number as usize % 3];
    let wire = code >> WIRE;
    let summed = if wire / 9 > 0 { ", summed" } else { "" };
    format!("{}, rows in {}, gradients in {}{summed}", call.unwrap_or(&"another call"), form(wire), form(wire / 3))
}

/// Makes a group of a configuration.
type Make<S> = Box<dyn FnMut(GroupConfig) -> Result<S, Error>>;

/// A group whose rows are divided among the ranks of a job. Each rank makes one, with the same configuration, and calls its methods together with
/// the others, each with its own part of the batch. Results are the same bits for every number of ranks; they depend on the number of shards
/// (SPEC 11).
///
/// ```
/// use hotrow::{Bags, CpuGroup, GroupConfig, Init, Lookup, Mode};
/// use hotrow_dist::{Group, Threads};
///
/// let config = GroupConfig::new(&[1000], 4).with_init(Init::Constant(1.0)).with_cache_rows(64);
/// let rows = |ranks| {
///     Threads::run(ranks, |comm: &mut Threads| {
///         let mut group = Group::new(comm, config.clone(), 4, CpuGroup::new)?;
///         // Four bags of two rows in all: each rank has its part of them.
///         let (indices, offsets) = ([7, 3, 3, 9, 1, 2, 7, 7], [0, 2, 4, 6, 8]);
///         let (bags, first) = (4 / ranks as usize, group.rank() as usize * 4 / ranks as usize);
///         let outputs = group.forward(Bags::new(&indices[2 * first..2 * (first + bags)], &offsets[..=bags]), Mode::Train)?;
///         assert_eq!(outputs, vec![2.0; 4 * bags]);
///         group.backward(&outputs)?;
///         group.read_rows(&[7])
///     })
/// };
/// assert_eq!(rows(2)?[1], rows(1)?[0]); // three accesses of row 7, gradient 2, SGD at 0.01
/// # Ok::<(), hotrow::Error>(())
/// ```
///
/// An error in a batch (its shape, an index outside its table, no memory for its outputs) is returned on every rank, and the step does not take place. An
/// error in the middle of a step ends the job, since the ranks would no longer agree: the rank that has it calls [`Comm::abort`]. A job of one rank goes on,
/// and its group refuses steps, reads and saves until a checkpoint is loaded.
pub struct Group<C, S> {
    pub(crate) link: Link<C>,
    pub(crate) config: GroupConfig,
    pub(crate) deal: Deal,
    make: Make<S>,
    pub(crate) shards: Vec<Option<S>>,
    /// The rows of the last forward, in FP32.
    table: Option<S>,
    /// Those of the last frozen forward.
    frozen_table: Option<S>,
    pub(crate) wire: WireOptions,
    pub(crate) waiting: Option<Waiting>,
    /// The batch that waits for `forward_prefetched`.
    pub(crate) ahead: Option<Ahead>,
    /// Why the shards may be of different steps.
    broken: Option<String>,
}

impl<C: Comm, S> fmt::Debug for Group<C, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { link, config, deal, .. } = self;
        f.debug_struct("Group").field("link", link).field("config", config).field("deal", deal).finish_non_exhaustive()
    }
}

impl<C: Comm, S: Shard> Group<C, S> {
    /// Makes this rank's part of a group of `config`, in `shards` virtual shards: a power of two that the number of ranks divides. `make` makes a group on
    /// the backend: `CpuGroup::new`, or `move |config| Group::new(&context, config)`. It also makes tables for the rows that come from other ranks, of at most
    /// as many rows as the group has; nobody reads the first values of those.
    ///
    /// # Errors
    /// [`Error::Config`] as [`shards`](crate::shards()), and for a number of shards that the ranks do not divide; the errors of `make`.
    pub fn new(
        comm: C,
        config: GroupConfig,
        shards: u32,
        make: impl FnMut(GroupConfig) -> Result<S, Error> + 'static,
    ) -> Result<Self, Error> {
        let mut configs = shards_of(&config, shards)?;
        if !shards.is_multiple_of(comm.size()) {
            let wanted = format!("a multiple of the {} ranks", comm.size());
            return Err(Error::Config { field: "shards", wanted, found: shards.to_string() });
        }
        let deal = Deal { shift: shards.trailing_zeros(), ranks: comm.size() };
        let mut make: Make<S> = Box::new(make);
        let mine = configs.drain(deal.of(comm.rank() as usize));
        let shards = mine.map(|config| config.map(&mut make).transpose()).collect::<Result<_, _>>()?;
        let link = Link::new(comm);
        let wire = WireOptions::default();
        let (table, frozen_table, waiting, ahead, broken) = (None, None, None, None, None);
        Ok(Self { link, config, deal, make, shards, table, frozen_table, wire, waiting, ahead, broken })
    }

    /// With another form of rows and gradients between ranks: the same on all of them.
    ///
    /// # Errors
    /// [`Error::Config`] for a form that is not shorter than FP32; [`Error::Order`] between a forward and its backward.
    pub fn with_wire(mut self, wire: WireOptions) -> Result<Self, Error> {
        wire.check(self.config.dim)?;
        self.not_prefetched("with_wire")?;
        self.not_waiting("with_wire")?;
        self.wire = wire;
        Ok(self)
    }

    /// The number of this rank.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.link.comm.rank()
    }

    /// The connection to the other ranks, for what a program exchanges beside the group. All ranks make the same calls on it.
    pub fn comm(&mut self) -> &mut C {
        &mut self.link.comm
    }

    /// The configuration of the whole group.
    #[must_use]
    pub fn config(&self) -> &GroupConfig {
        &self.config
    }

    /// The number of virtual shards.
    #[must_use]
    pub fn shard_count(&self) -> u32 {
        self.deal.shards() as u32
    }

    /// This rank's shards, each with its number; `None` for a shard without a row. No call of a shard may come between a forward and its
    /// backward, nor between a prefetch and its forward. Their counters are those of this rank alone.
    pub fn shards(&mut self) -> impl Iterator<Item = (u32, Option<&mut S>)> {
        let first = self.deal.of(self.link.own()).start as u32;
        (first..).zip(self.shards.iter_mut().map(Option::as_mut))
    }

    /// What this rank has sent to others since it was made.
    #[must_use]
    pub fn traffic(&self) -> &RankTraffic {
        &self.link.traffic
    }

    /// Writes every dirty row of this rank's shards to their tables. It exchanges nothing.
    ///
    /// # Errors
    /// As [`Embedding::flush`](hotrow::Embedding::flush).
    pub fn flush(&mut self) -> Result<(), Error> {
        self.not_prefetched("flush")?;
        self.shards.iter_mut().flatten().try_for_each(|shard| shard.flush())
    }

    /// As [`or_abort`](Link::or_abort), where some shards may have taken a step that others have not. A job of one rank goes on after that: it loads a
    /// checkpoint, for which no forward may wait.
    pub(crate) fn or_break<T>(&mut self, result: Result<T, Error>) -> Result<T, Error> {
        if let Err(error) = &result {
            self.broken = Some(format!("an error in the middle of one: {error}"));
            self.discard_pending();
        }
        let result = self.link.or_abort(result);
        if let Some(ahead) = self.ahead.take_if(|_| result.is_err()) {
            // The job is over, or this rank is alone in it.
            drop(self.link.comm.finish(ahead.begun.ticket));
        }
        result
    }

    /// Refuses a call between a forward and its backward.
    pub(crate) fn not_waiting(&self, call: &'static str) -> Result<(), Error> {
        let refused = Error::Order { call, wanted: "a backward", found: "a forward that waits for it" };
        if self.waiting.is_none() { Ok(()) } else { Err(refused) }
    }

    /// Refuses a training forward while the last one waits for its backward.
    pub(crate) fn may(&self, call: Call) -> Result<(), Error> {
        if call == Call::Forward && self.waiting.is_some() { Err(SECOND_FORWARD) } else { Ok(()) }
    }

    /// Refuses a call while a prefetched batch waits for its forward.
    pub(crate) fn not_prefetched(&self, call: &'static str) -> Result<(), Error> {
        let (wanted, found) = ("forward_prefetched first", "a prefetched batch that waits for it");
        if self.ahead.is_none() { Ok(()) } else { Err(Error::Order { call, wanted, found }) }
    }

    /// Refuses a group whose shards may be of different steps.
    pub(crate) fn whole(&self) -> Result<(), Error> {
        self.broken.as_ref().map_or(Ok(()), |found| {
            Err(RankError::Exchange {
                what: "group",
                wanted: "steps that all shards have taken".into(),
                found: found.clone(),
                remedy: "load a checkpoint",
            }
            .into())
        })
    }

    /// Notes whether a checkpoint was loaded, so that all shards are of one step.
    #[cfg(feature = "checkpoint")]
    pub(crate) fn loaded(&mut self, result: Result<(), Error>) -> Result<(), Error> {
        self.broken = result.as_ref().err().map(|error| format!("a checkpoint that was not loaded: {error}"));
        result
    }

    /// Runs a forward, or reads rows.
    fn look_up(
        &mut self,
        call: Call,
        bags: Bags<'_>,
        outputs: &mut [f32],
        shape: Result<(), Error>,
    ) -> Result<(), Error> {
        let name = if call == Call::Read { "read_rows" } else { "forward" };
        let shape = self.not_prefetched(name).and_then(|()| self.may(call)).and(shape);
        let begun = self.begin(call, bags, shape)?;
        self.complete(call, begun, (bags.indices.len(), bags.offsets, bags.weights.map(Cow::from)), outputs)
    }

    /// Exchanges counts and starts to exchange requests. An error that all ranks know of ends nothing.
    pub(crate) fn begin(&mut self, call: Call, bags: Bags<'_>, shape: Result<(), Error>) -> Result<Begun, Error> {
        let batch: (&[u32], &[u32]) = if shape.is_ok() { (bags.indices, bags.offsets) } else { (&[], &[0]) };
        let shape = shape.and_then(|()| self.whole());
        let features = match call {
            Call::Read => vec![Feature { rows: self.config.total_rows() as u32, ..Feature::default() }],
            _ => features(&self.config),
        };
        let (requests, outside) = Requests::new(&self.config, &features, self.deal, batch);
        let (ticket, asking) = self.ask(call, &requests, shape.err().or(outside), batch.1, bags.weights.is_some())?;
        let step = if call == Call::Read { 0 } else { self.step_of_wire()? };
        Ok(Begun { requests, step, ticket, stage: Stage::Asking(asking) })
    }

    /// Ends a call whose requests, or whose early rows, are under way: answers, pools what has come, and notes a forward that waits for its backward.
    pub(crate) fn complete(
        &mut self,
        call: Call,
        Begun { requests, step, ticket, stage }: Begun,
        (indices, offsets, weights): (usize, &[u32], Option<Cow<'_, [f32]>>),
        outputs: &mut [f32],
    ) -> Result<(), Error> {
        let found = match stage {
            Stage::Asking(asking) => self.asked((ticket, asking)).map(|asked| (asked, None)),
            Stage::Sending { asked, early } => self.came(early, ticket).map(|early| (asked, Some(early))),
        };
        let pooled = found.and_then(|(asked, early)| {
            let rows = self.answer((call, step), &requests, &asked, early.as_ref())?;
            self.pool(call, &requests, &rows, (offsets, weights.as_deref()), outputs)?;
            Ok(asked)
        });
        let asked = self.or_break(pooled)?;
        if call == Call::Forward && !self.config.forward_only {
            let (offsets, weights) = (offsets.to_vec(), weights.map(Cow::into_owned));
            self.waiting = Some(Waiting { requests, asked, indices, offsets, weights, step });
        }
        Ok(())
    }

    /// Exchanges counts and starts to exchange requests, or returns the error that made all ranks refuse the call.
    fn ask(
        &mut self,
        call: Call,
        requests: &Requests,
        refused: Option<Error>,
        offsets: &[u32],
        weighted: bool,
    ) -> Result<(Ticket, Asking), Error> {
        let (deal, ranks) = (self.deal, self.link.ranks());
        let outside = if requests.left_out.is_some() { OUTSIDE } else { 0 };
        let code = call as u32 | self.wire.code() << WIRE;
        let status = outside | if weighted { WEIGHTED } else { 0 } | if refused.is_some() { REFUSED } else { 0 } | code;
        let alone = self.config.pooling == Pooling::None;
        let row_bytes = 4 * u64::from(self.config.dim);
        let own_outputs = if alone { requests.positions.len() as u64 } else { offsets.len() as u64 - 1 };
        let counts = (0..ranks).map(|rank| {
            let header =
                [status, requests.valid() as u32, offsets.len() as u32 - 1, requests.outputs[rank].len() as u32];
            header.into_iter().chain(deal.of(rank).map(|shard| requests.of(shard).len() as u32)).collect()
        });
        let counts = counts.collect();
        let received = self.link.exchange(Phase::Counts, counts, &vec![HEADER + deal.each(); ranks])?;
        let heads: Vec<&[u32]> = received.iter().collect();
        if let Some(rank) = heads.iter().position(|head| head[0] & CALL != code) {
            let other = heads[rank][0] & CALL;
            return Err(RankError::Exchange {
                what: "call",
                wanted: format!("the same call and wire on all ranks, here {}", named(code)),
                found: format!("{} on rank {rank}", named(other)),
                remedy: "make the calls of a group on all ranks, in the same order, with the same wire",
            }
            .into());
        }
        if call.steps() && heads.iter().any(|head| head[0] & OUTSIDE != 0) {
            let counted = self.count_left_out(requests);
            self.link.or_abort(counted)?;
        }
        if let Some(rank) = heads.iter().position(|head| head[0] & REFUSED != 0) {
            return Err(self.link.refusal(rank as u32, refused)?);
        }
        let all_outputs: u64 = heads.iter().map(|head| u64::from(head[if alone { 1 } else { 2 }])).sum();
        if call != Call::Read && all_outputs * row_bytes > SMALL {
            // A device may have no buffer for this rank's outputs, or for the gradients that come to it.
            let gradients = heads.iter().map(|head| u64::from(head[3])).sum::<u64>();
            let wanted = own_outputs.max(if call.steps() { gradients } else { 0 }) * row_bytes;
            let fits = self.fits(wanted);
            self.link.agree(fits)?;
        }
        let features = u64::from(self.config.feature_count());
        let bags: Vec<u64> = heads.iter().map(|head| u64::from(head[2]) / features).collect();
        let share = Share::new(&bags, self.link.own());
        let sums = if call.steps() && self.wire.summed {
            Share::check(&bags)?;
            let slices = deal.of(self.link.own());
            Some(Sums::new(requests, offsets, &share, slices, deal.shards()))
        } else {
            None
        };
        let valid = heads.iter().any(|head| head[1] > 0);
        let outputs = heads.iter().map(|head| head[3] as usize).collect();
        let weighted = heads.iter().map(|head| head[0] & WEIGHTED != 0).collect();
        let rows: Vec<Vec<usize>> =
            heads.iter().map(|head| head[HEADER..].iter().map(|&rows| rows as usize).collect()).collect();
        // A rank with one slice has one sum of each row.
        let counts_sums = sums.is_some() && deal.each() > 1;
        let message = |rank| {
            let of = |shard| {
                let rows = requests.of(shard);
                requests.rows[rows.clone()].iter().chain(&requests.counts[rows]).copied()
            };
            let rows = requests.of_rank(deal, rank);
            let sums = sums.as_ref().filter(|_| counts_sums && !rows.is_empty()).map(|sums| sums.of(rows).len() as u32);
            sums.into_iter().chain(deal.of(rank).flat_map(of)).collect()
        };
        let messages = (0..ranks).map(message).collect();
        let words = |rows: usize| 2 * rows + usize::from(counts_sums && rows > 0);
        let receive: Vec<usize> = rows.iter().map(|shards| words(shards.iter().sum())).collect();
        let ticket = self.link.start(Phase::Requests, messages, &receive)?;
        let asked = Asked { outputs, weighted, sums, share, valid, ..Asked::default() };
        Ok((ticket, Asking { rows, counts_sums, asked }))
    }

    /// Waits for the requests of all ranks.
    pub(crate) fn asked(&mut self, (ticket, asking): (Ticket, Asking)) -> Result<Asked, Error> {
        let Asking { rows, counts_sums, mut asked } = asking;
        let received = self.link.finish(ticket)?;
        for (mut message, shards) in received.iter().zip(&rows) {
            let wanted: usize = shards.iter().sum();
            let counted = usize::from(counts_sums && wanted > 0);
            asked.sent_sums.push(cut(&mut message, counted)?.first().map_or(wanted, |&sums| sums as usize));
            let mut of = |&rows: &usize| Ok((cut(&mut message, rows)?.to_vec(), cut(&mut message, rows)?.to_vec()));
            asked.rows.push(shards.iter().map(&mut of).collect::<Result<_, Error>>()?);
        }
        Ok(asked)
    }

    /// Adds padding and the indices outside their tables, of all ranks, to the counters of the first shard. All ranks call this.
    fn count_left_out(&mut self, requests: &Requests) -> Result<(), Error> {
        let tables = self.config.tables.len();
        let own = requests.left_out.clone().unwrap_or_else(|| vec![0; 2 * tables]);
        let all = self.link.all_gather(&own)?;
        let first = self.link.comm.rank() == 0;
        let Some(shard) = self.shards[0].as_mut().filter(|_| first) else { return Ok(()) };
        let mut words = vec![0; Part::Counters.words(shard.config(), shard.layout()) as usize];
        shard.read_part(Part::Counters, 0, &mut words)?;
        let mut counters = Counters::from_part(&words, 0);
        for (table, counters) in counters.iter_mut().enumerate() {
            let of =
                |first: usize| all.iter().skip(first).step_by(2 * tables).map(|&count| u64::from(count)).sum::<u64>();
            counters.out_of_range += of(table);
            counters.padding += of(tables + table);
        }
        shard.write_part(Part::Counters, 0, &Counters::to_part(&counters))
    }

    /// Refuses a call whose outputs, or whose gradients at this rank, exceed a buffer.
    fn fits(&self, wanted: u64) -> Result<(), Error> {
        let limit = self.shards.iter().chain([&self.table]).flatten().map(Shard::most_bytes).min().unwrap_or(u64::MAX);
        let (what, remedy) = ("outputs, or gradients of all ranks for the rows of one", "make the batch smaller");
        if wanted > limit { Err(Error::TooLarge { what, wanted, limit, remedy }) } else { Ok(()) }
    }

    /// The number of steps before this call, the same on every rank, whether it has rows or not; 0 if nothing is rounded by it. All ranks call this.
    pub(crate) fn step_of_wire(&mut self) -> Result<u32, Error> {
        if !self.wire.is_lossy() {
            return Ok(0);
        }
        let mut clock = [0];
        let shard = self.shards.iter_mut().flatten().next();
        let read = shard.map_or(Ok(()), |shard| shard.read_part(Part::Clock, 0, &mut clock));
        self.link.or_abort(read)?;
        self.link.max(clock[0])
    }

    /// Answers the requests of all ranks and returns the rows that this rank asked for. Some may have come early.
    pub(crate) fn answer(
        &mut self,
        (call, step): (Call, u32),
        requests: &Requests,
        asked: &Asked,
        early: Option<&Early>,
    ) -> Result<Vec<u32>, Error> {
        let (deal, ranks) = (self.deal, self.link.ranks());
        if call.steps() && asked.valid {
            for (k, shard) in self.shards.iter_mut().enumerate() {
                let Some(shard) = shard else { continue };
                let (rows, counts) = merged(asked.rows.iter().map(|shards| &shards[k]));
                shard.fetch(&rows, &counts)?;
            }
        }
        let form = if call == Call::Read { WireForm::Exact } else { self.wire.rows };
        let mut answers = vec![Vec::new(); ranks];
        for (rank, (answer, shards)) in answers.iter_mut().zip(&asked.rows).enumerate() {
            for (k, (shard, (rows, _))) in self.shards.iter_mut().zip(shards).enumerate() {
                let left = |i: usize| early.is_none_or(|early| !early.sent[rank][k][i]);
                let rows: Vec<u32> = (0..rows.len()).filter(|&i| left(i)).map(|i| rows[i]).collect();
                if let Some(shard) = shard.as_mut().filter(|_| !rows.is_empty()) {
                    shard.send_rows(&rows, form, step, answer)?;
                }
            }
        }
        let wire = Wire::received(self.config.dim, self.config.precision, form);
        let left = |row: usize| early.is_none_or(|early| !early.mine[row]);
        let lists: Vec<usize> =
            (0..deal.shards()).map(|shard| requests.of(shard).filter(|&row| left(row)).count()).collect();
        let sizes: Vec<usize> = if wire.packs() {
            let own = answers.iter().map(|answer| Ok(vec![size_word(answer)?])).collect::<Result<_, Error>>()?;
            let sizes = self.link.exchange(Phase::Sizes, own, &vec![1; ranks])?.words;
            sizes.into_iter().map(|size| size as usize).collect()
        } else {
            (0..ranks).map(|rank| lists[deal.of(rank)].iter().sum::<usize>() * wire.plain_words()).collect()
        };
        let received = self.link.exchange(Phase::Rows, answers, &sizes)?;
        let rows = self.taken(&wire, &received, &lists)?;
        let Some(early) = early else { return Ok(rows) };
        let dim = self.config.dim as usize;
        let (mut late, mut early_rows) = (rows.chunks_exact(dim), early.rows.chunks_exact(dim));
        let next = |&came: &bool| if came { early_rows.next() } else { late.next() };
        Ok(early.mine.iter().filter_map(next).flatten().copied().collect())
    }

    /// The rows of messages that have `lists[shard]` of each shard.
    pub(crate) fn taken(&self, wire: &Wire, received: &Parcels, lists: &[usize]) -> Result<Vec<u32>, Error> {
        let mut rows = Vec::with_capacity(lists.iter().sum::<usize>() * self.config.dim as usize);
        for (rank, mut message) in received.iter().enumerate() {
            for &list in &lists[self.deal.of(rank)] {
                whole(wire.take(list, &mut message, &mut rows))?;
            }
        }
        Ok(rows)
    }

    /// Pools the rows that have come.
    pub(crate) fn pool(
        &mut self,
        call: Call,
        requests: &Requests,
        rows: &[u32],
        (offsets, weights): (&[u32], Option<&[f32]>),
        outputs: &mut [f32],
    ) -> Result<(), Error> {
        if call == Call::Read {
            let dim = self.config.dim as usize;
            for (to, &row) in outputs.chunks_exact_mut(dim).zip(&requests.positions) {
                to.copy_from_slice(bytemuck::cast_slice(&rows[row as usize * dim..][..dim]));
            }
            return Ok(());
        }
        if call == Call::Frozen {
            // The rows of a forward that waits are kept for its gradient of the weights.
            std::mem::swap(&mut self.table, &mut self.frozen_table);
            let result = self.pool(Call::Forward, requests, rows, (offsets, weights), outputs);
            std::mem::swap(&mut self.table, &mut self.frozen_table);
            return result;
        }
        let wanted = (requests.rows.len() as u32).max(1);
        if self.table.as_ref().is_none_or(|table| table.layout().total_rows < wanted) {
            self.table = None;
            let rows = wanted.saturating_add(wanted / 8).min(self.config.total_rows() as u32).max(wanted);
            self.table = Some((self.make)(rows_table(&self.config, rows))?);
        }
        let Some(table) = &mut self.table else { return Ok(()) };
        table.write_part(Part::Records, 0, rows)?;
        table.forward_into(
            Bags::new(&requests.positions, offsets).with_weights(weights),
            Mode::Frozen,
            OutputSlice::F32(outputs),
        )
    }
}

impl<C: Comm, S: Shard> Lookup for Group<C, S> {
    fn pending(&self) -> bool {
        self.waiting.is_some()
    }

    fn discard_pending(&mut self) {
        self.waiting = None;
        self.shards.iter_mut().flatten().for_each(Lookup::discard_pending);
    }

    fn output_len(&self, indices: usize, bags: usize) -> usize {
        output_len(&self.config, indices, bags)
    }

    fn forward_into(&mut self, bags: Bags<'_>, mode: Mode, outputs: OutputSlice<'_>) -> Result<(), Error> {
        let call = if mode == Mode::Train { Call::Forward } else { Call::Frozen };
        outputs.with_floats(|outputs| {
            let shape = check_batch(&self.config, bags, outputs.len());
            self.look_up(call, bags, outputs, shape)
        })
    }

    fn backward(&mut self, grad_outputs: &[f32]) -> Result<(), Error> {
        self.backward_scaled(GradSlice::F32(grad_outputs), &ScalerState::unscaled_decision())
    }

    /// The scaler's decision is one on the gradients of all ranks: the greatest of their magnitudes is [`Comm::max`] of their bits.
    fn backward_scaled(&mut self, grad_outputs: GradSlice<'_>, scaler: &ScalerState) -> Result<(), Error> {
        let wanted = self.waiting.as_ref().map(|waiting| self.output_len(waiting.indices, waiting.offsets.len() - 1));
        let checked = self.whole().and_then(|()| requests::check_backward(wanted, grad_outputs.len(), scaler));
        self.link.agree_scaled(checked, scaler)?;
        self.advance()?;
        let Some(waiting) = self.waiting.take() else { return Ok(()) };
        if scaler.overflow != 0 || !waiting.asked.valid {
            self.discard_pending();
            return Ok(());
        }
        let result = self.update(&waiting, &requests::floats(grad_outputs), scaler);
        self.or_break(result)
    }

    fn weight_gradient(
        &mut self,
        Bags { indices, offsets, .. }: Bags<'_>,
        grad_outputs: &[f32],
    ) -> Result<Vec<f32>, Error> {
        let (waiting, table) = self.waiting.as_ref().zip(self.table.as_mut()).ok_or(requests::NO_FORWARD)?;
        let found = [indices.len(), offsets.len(), grad_outputs.len()];
        requests::check_weight_gradient(&self.config, waiting.indices, waiting.offsets.len() - 1, found)?;
        table.forward(Bags::new(&waiting.requests.positions, offsets), Mode::Train)?;
        let found = table.weight_gradient(Bags::new(&waiting.requests.positions, offsets), grad_outputs);
        table.discard_pending();
        found
    }

    /// Each rank reads rows of its own choice.
    fn read_rows(&mut self, rows: &[u32]) -> Result<Vec<f32>, Error> {
        let (mut outputs, found) = room("outputs", rows.len().saturating_mul(self.config.dim as usize));
        let checked = check_rows(&Layout::new(&self.config, u64::MAX)?, rows, "read_rows").and(found);
        self.look_up(Call::Read, Bags::new(rows, &[0, rows.len() as u32]), &mut outputs, checked)?;
        Ok(outputs)
    }

    fn set_learning_rate(&mut self, lr: f32) -> Result<(), Error> {
        self.config.set_learning_rate(lr)?;
        self.shards.iter_mut().flatten().try_for_each(|shard| shard.set_learning_rate(lr))
    }

    /// The sums over all ranks.
    fn counters(&mut self) -> Result<Vec<Counters>, Error> {
        let zeros = || vec![Counters::default(); self.config.tables.len()];
        let mut shards = self.shards.iter_mut().flatten();
        let own = shards.try_fold(zeros(), |sums, shard| shard.counters().map(|counters| added(sums, counters)));
        let words = Counters::to_part(&self.link.or_abort(own)?);
        let stride = Layout::new(&self.config, u64::MAX)?.stride();
        let all = self.link.all_gather(&words)?;
        Ok(all.chunks_exact(words.len()).map(|rank| Counters::from_part(rank, stride)).fold(zeros(), added))
    }

    /// The bytes of this rank: its shards, and the tables of the rows that it asked for, which count as scratch.
    fn memory(&self) -> MemoryReport {
        let mut report = self.shards.iter().flatten().map(Lookup::memory).reduce(MemoryReport::and).unwrap_or_default();
        let received = self.table.iter().chain(&self.frozen_table);
        report.scratch += received.map(|table| table.memory().total()).sum::<u64>();
        report
    }
}

/// The word of an answer's size.
pub(crate) fn size_word(answer: &[u32]) -> Result<u32, Error> {
    let (wanted, limit) = (4 * answer.len() as u64, 4 * u64::from(u32::MAX));
    let (what, remedy) = ("rows for one rank", "make the batch smaller, or take more ranks");
    u32::try_from(answer.len()).map_err(|_| Error::TooLarge { what, wanted, limit, remedy })
}

/// The table in which a rank keeps the rows of a batch that it asked for: `rows` rows in FP32, looked up as the group's rows would be.
fn rows_table(config: &GroupConfig, rows: u32) -> GroupConfig {
    let mut table = GroupConfig::new(&[rows], config.dim)
        .with_features(vec![0; config.feature_count() as usize])
        .with_precision(Precision::Fp32)
        .with_out_of_range(OutOfRange::Skip)
        .with_placement(Placement::Device);
    table.pooling = config.pooling;
    table
}

/// The sums of the counters of each table.
pub(crate) fn added(counters: Vec<Counters>, more: Vec<Counters>) -> Vec<Counters> {
    counters.into_iter().zip(more).map(|both| [both.0, both.1].into_iter().sum()).collect()
}

/// The rows of one shard that the ranks ask for, together: ascending and distinct, with their counts.
pub(crate) fn merged<'a>(lists: impl Iterator<Item = &'a (Vec<u32>, Vec<u32>)>) -> (Vec<u32>, Vec<u32>) {
    let mut all: Vec<(u32, u32)> =
        lists.flat_map(|(rows, counts)| rows.iter().copied().zip(counts.iter().copied())).collect();
    all.sort_by_key(|&(row, _)| row);
    all.chunk_by(|a, b| a.0 == b.0)
        .map(|run| (run[0].0, run.iter().fold(0, |sum: u32, &(_, count)| sum.saturating_add(count))))
        .unzip()
}
