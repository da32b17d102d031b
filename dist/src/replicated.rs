//! A shared array that every rank has whole (SPEC 11).

use std::ops::Range;

use hotrow::{
    Counters, Error, GradSlice, GroupConfig, Lookup, LookupKind, MemoryReport, Mode, OutputSlice, Pooling, ScalerState,
    SharedArray,
    ranks::{SECOND_FORWARD, check_batch, features, zeroed},
    robe::{Backward, Config, RobeSnapshot},
};

use crate::{
    comm::Comm,
    link::Link,
    requests::{self, Deal, Requests},
    traffic::{Phase, RankTraffic},
};

/// One rank's indices, offsets and weights.
type Batch<'a> = (&'a [u32], &'a [u32], Option<&'a [f32]>);

/// Cuts a rank's message by its head: whether it was refused, the number of indices and of bags, whether there are weights.
fn cut<'a>(words: &'a [u32], head: &[u32]) -> Batch<'a> {
    let (indices, rest) = words.split_at(head[1] as usize);
    let (offsets, weights) = rest.split_at(head[2] as usize + 1);
    (indices, offsets, (head[3] != 0).then(|| bytemuck::cast_slice(weights)))
}

/// The bags of a feature in one rank's part of a batch, and their accesses.
#[derive(Debug)]
struct Part {
    rank: usize,
    bags: Range<usize>,
    accesses: Range<usize>,
}

/// The batch of all ranks, in global order.
#[derive(Debug, Default)]
struct Whole {
    parts: Vec<Part>,
    indices: Vec<u32>,
    offsets: Vec<u32>,
    weights: Option<Vec<f32>>,
}

impl Whole {
    /// Joins the parts of all ranks. A part without weights has weights of 1, if another has some.
    fn new(parts: &[Batch<'_>], features: usize) -> Self {
        let mut whole = Self { offsets: vec![0], ..Self::default() };
        if parts.iter().any(|(_, _, weights)| weights.is_some()) {
            whole.weights = Some(Vec::new());
        }
        for feature in 0..features {
            for (rank, &(indices, offsets, weights)) in parts.iter().enumerate() {
                let each = (offsets.len() - 1) / features;
                let bags = feature * each..(feature + 1) * each;
                let accesses = offsets[bags.start] as usize..offsets[bags.end] as usize;
                let base = (whole.indices.len() as u32).wrapping_sub(accesses.start as u32);
                whole.offsets.extend(offsets[bags.start + 1..=bags.end].iter().map(|&end| base.wrapping_add(end)));
                whole.indices.extend(&indices[accesses.clone()]);
                if let Some(all) = &mut whole.weights {
                    match weights {
                        Some(weights) => all.extend(&weights[accesses.clone()]),
                        None => all.resize(whole.indices.len(), 1.0),
                    }
                }
                whole.parts.push(Part { rank, bags, accesses });
            }
        }
        whole
    }

    /// The length of a rank's things; `of` says which things, each `width` long.
    fn count(&self, rank: usize, of: fn(&Part) -> Range<usize>, width: usize) -> usize {
        self.places(rank, of, width).map(|(_, own)| own.len()).sum()
    }

    /// The places of a rank's things in those of all ranks, and in its own.
    fn places(
        &self,
        rank: usize,
        of: fn(&Part) -> Range<usize>,
        width: usize,
    ) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
        let mut start = 0;
        self.parts.iter().filter_map(move |part| {
            let own = of(part);
            let own = own.start * width..own.end * width;
            let all = start..start + own.len();
            start = all.end;
            (part.rank == rank).then_some((all, own))
        })
    }
}

/// Tables that share an array of weights ([`robe`](hotrow::robe)), of which every rank has the whole: `CpuSharedGroup` or
/// [`SharedGroup`](hotrow::SharedGroup). Each rank passes its own bags. The ranks send each other their batches and, in the backward, the gradients of their
/// outputs; then each takes the step of all bags. So outputs and weights are those of one rank that has the whole batch, bit for bit, on every number of
/// ranks. What a step computes does not shrink with more ranks; only the rest of the model is divided.
///
/// All ranks make the same forwards and backwards, in the same order, on arrays of one configuration and on devices of one kind: they compute the same bits
/// and have the same limits. An error in a batch is returned on every rank, as in a [`Group`](super::Group). Every other call exchanges nothing, and its
/// result is the same on all ranks. For a checkpoint one rank saves, and all load.
///
/// ```
/// use hotrow::{CpuSharedGroup, Error, Init, Lookup, robe};
/// use hotrow_dist::{Phase, Replicated, Threads};
///
/// // Two tables in 64 weights.
/// let config = robe::Config::new(&[1000, 1000], 8, 64, 4).with_init(Init::Constant(1.0));
/// let rows = |ranks| {
///     Threads::run(ranks, |comm: &mut Threads| {
///         let mut array = Replicated::new(comm, CpuSharedGroup::new(config.clone())?)?;
///         // Two bags of one row, a bag for each table: all on rank 0.
///         let (indices, offsets) = if array.rank() == 0 { (vec![7, 3], vec![0, 1, 2]) } else { (vec![], vec![0]) };
///         let outputs = array.forward(&indices, &offsets, None)?;
///         array.backward(&outputs)?;
///         Ok((array.read_rows(&[7])?, array.traffic().bytes(Phase::Gradients)))
///     })
/// };
/// let (alone, both) = (rows(1)?, rows(2)?);
/// assert!(both[1].0 == alone[0].0 && alone[0].0 != [1.0; 8]);
/// assert_eq!([both[0].1, both[1].1], [64, 0]); // two gradients of eight floats go to the other rank
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct Replicated<C, L> {
    link: Link<C>,
    array: L,
    /// The configuration of the rows that the array stands for.
    rows: GroupConfig,
    /// The batch of the forward that waits for its backward.
    waiting: Option<Whole>,
}

impl<C: Comm, L: SharedArray> Replicated<C, L> {
    /// Takes this rank's copy of the array.
    ///
    /// # Errors
    /// [`Error::Config`] for [`Backward::Atomic`], which on a GPU adds in no fixed order, so that the ranks' arrays would come to differ.
    pub fn new(comm: C, array: L) -> Result<Self, Error> {
        let config = array.config();
        if config.backward == Backward::Atomic {
            let wanted = "over ranks a backward that adds in a fixed order: auto, dense or sparse".into();
            return Err(Error::Config { field: "backward", wanted, found: "atomic".into() });
        }
        Ok(Self { link: Link::new(comm), rows: config.rows(), array, waiting: None })
    }

    /// The number of this rank.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.link.comm.rank()
    }

    /// The connection to the other ranks, for what a program exchanges beside the array. All ranks make the same calls on it.
    pub fn comm(&mut self) -> &mut C {
        &mut self.link.comm
    }

    /// What this rank has sent to others since it was made: batches as [`Phase::Requests`], and gradients.
    #[must_use]
    pub fn traffic(&self) -> &RankTraffic {
        &self.link.traffic
    }

    /// Runs a forward of a batch, if it was legal on every rank.
    fn step(&mut self, own: Batch<'_>, outputs: &mut [f32], checked: Result<(), Error>) -> Result<(), Error> {
        let (indices, offsets, weights) = if checked.is_ok() { own } else { (&[][..], &[0][..], None) };
        let counts = [indices.len(), offsets.len() - 1].map(|count| count as u32);
        let head = [u32::from(checked.is_err()), counts[0], counts[1], u32::from(weights.is_some())];
        let heads = self.link.all_gather(&head)?;
        let heads: Vec<&[u32]> = heads.chunks_exact(head.len()).collect();
        if heads.iter().any(|head| head[0] != 0) {
            return self.link.all_fail(checked);
        }
        let words = [indices, offsets, bytemuck::cast_slice(weights.unwrap_or_default())].concat();
        let receive: Vec<usize> =
            heads.iter().map(|head| head[1] as usize * (1 + head[3] as usize) + head[2] as usize + 1).collect();
        let received = self.link.exchange(Phase::Requests, vec![words; self.link.ranks()], &receive)?;
        let parts: Vec<Batch<'_>> = received.iter().zip(&heads).map(|(words, head)| cut(words, head)).collect();
        let whole = Whole::new(&parts, self.rows.feature_count() as usize);
        let all = self.array.forward(&whole.indices, &whole.offsets, whole.weights.as_deref());
        // All ranks have the whole batch, and so these errors.
        match all {
            Err(error @ Error::IndexOutOfRange { .. }) => return Err(self.outside(&parts).unwrap_or(error)),
            Err(error @ Error::TooLarge { .. }) => return Err(error),
            _ => {}
        }
        let all = self.link.or_abort(all)?;
        for (from, to) in whole.places(self.link.own(), self.output_rows(), self.rows.dim as usize) {
            outputs[to].copy_from_slice(&all[from]);
        }
        self.waiting = Some(whole);
        Ok(())
    }

    /// The error of a batch with an index outside its table: this rank's own, or that of the first rank with one. Each rank has the parts of all.
    fn outside(&self, parts: &[Batch<'_>]) -> Option<Error> {
        let of = |&(indices, offsets, _): &Batch<'_>| {
            Requests::new(&self.rows, &features(&self.rows), Deal { shift: 0, ranks: 1 }, (indices, offsets)).1
        };
        let rank = self.link.own();
        let first = || (0..).zip(parts).find_map(|(rank, part)| Some((rank, of(part)?)));
        of(&parts[rank]).or_else(|| first().map(|(rank, error)| Error::Rank { rank, reason: error.to_string() }))
    }

    /// The output rows of a part.
    fn output_rows(&self) -> fn(&Part) -> Range<usize> {
        if self.rows.pooling == Pooling::None { |part| part.accesses.clone() } else { |part| part.bags.clone() }
    }

    /// The gradients of all ranks' outputs, in global order; `own` are this rank's.
    fn gather(&mut self, whole: &Whole, own: &[f32]) -> Result<Vec<f32>, Error> {
        let (dim, of) = (self.rows.dim as usize, self.output_rows());
        let receive: Vec<usize> = (0..self.link.ranks()).map(|rank| whole.count(rank, of, dim)).collect();
        let words = bytemuck::cast_slice(own).to_vec();
        let received = self.link.exchange(Phase::Gradients, vec![words; self.link.ranks()], &receive)?;
        let mut all = zeroed("gradients", received.words.len())?;
        for (rank, words) in received.iter().enumerate() {
            for (to, from) in whole.places(rank, of, dim) {
                all[to].copy_from_slice(bytemuck::cast_slice(&words[from]));
            }
        }
        Ok(all)
    }
}

impl<C: Comm, L: SharedArray> Lookup for Replicated<C, L> {
    fn pending(&self) -> bool {
        self.waiting.is_some()
    }

    fn discard_pending(&mut self) {
        self.waiting = None;
        self.array.discard_pending();
    }

    fn output_len(&self, indices: usize, bags: usize) -> usize {
        self.array.output_len(indices, bags)
    }

    /// With [`Mode::Frozen`] each rank reads its own copy; all learn of an error.
    fn run(
        &mut self,
        indices: &[u32],
        offsets: &[u32],
        weights: Option<&[f32]>,
        mode: Mode,
        outputs: OutputSlice<'_>,
    ) -> Result<(), Error> {
        if mode == Mode::Frozen {
            let found = self.array.run(indices, offsets, weights, mode, outputs);
            return self.link.agree(found);
        }
        outputs.with_floats(|outputs| {
            let free = if self.pending() { Err(SECOND_FORWARD) } else { Ok(()) };
            let checked = free.and_then(|()| check_batch(&self.rows, (indices, offsets, weights), outputs.len()));
            self.step((indices, offsets, weights), outputs, checked)
        })
    }

    fn backward(&mut self, grad_outputs: &[f32]) -> Result<(), Error> {
        self.backward_scaled(GradSlice::F32(grad_outputs), &ScalerState::unscaled_decision())
    }

    /// The scaler's decision is one on the gradients of all ranks, as in a [`Group`](super::Group).
    fn backward_scaled(&mut self, grad_outputs: GradSlice<'_>, scaler: &ScalerState) -> Result<(), Error> {
        let rank = self.link.own();
        let wanted = self.waiting.as_ref().map(|whole| whole.count(rank, self.output_rows(), self.rows.dim as usize));
        let checked = requests::check_backward(wanted, grad_outputs.len(), scaler);
        self.link.agree_scaled(checked, scaler)?;
        let Some(whole) = self.waiting.take() else { return Ok(()) };
        let all = if scaler.overflow != 0 {
            // Nothing changes, so nothing is sent.
            zeroed("gradients", self.output_len(whole.indices.len(), whole.offsets.len() - 1))
        } else {
            self.gather(&whole, &requests::floats(grad_outputs))
        };
        let done = all.and_then(|all| self.array.backward_scaled(GradSlice::F32(&all), scaler));
        self.link.or_abort(done)
    }

    /// Each rank computes that of its own weights.
    fn weight_gradient(&mut self, indices: &[u32], offsets: &[u32], grad_outputs: &[f32]) -> Result<Vec<f32>, Error> {
        let (rank, dim, of) = (self.link.own(), self.rows.dim as usize, self.output_rows());
        let whole = self.waiting.as_ref().ok_or(requests::NO_FORWARD)?;
        let accesses = whole.count(rank, |part| part.accesses.clone(), 1);
        let bags = whole.count(rank, |part| part.bags.clone(), 1);
        let found = [indices.len(), offsets.len(), grad_outputs.len()];
        requests::check_weight_gradient(&self.rows, accesses, bags, found)?;
        // Other ranks' outputs have gradients of 0.
        let mut all = zeroed("gradients", self.array.output_len(whole.indices.len(), whole.offsets.len() - 1))?;
        for (to, from) in whole.places(rank, of, dim) {
            all[to].copy_from_slice(&grad_outputs[from]);
        }
        let all = self.array.weight_gradient(&whole.indices, &whole.offsets, &all)?;
        let mut own = zeroed("gradients", accesses)?;
        for (from, to) in whole.places(rank, |part| part.accesses.clone(), 1) {
            own[to].copy_from_slice(&all[from]);
        }
        Ok(own)
    }

    fn read_rows(&mut self, rows: &[u32]) -> Result<Vec<f32>, Error> {
        self.array.read_rows(rows)
    }

    fn set_learning_rate(&mut self, lr: f32) -> Result<(), Error> {
        self.array.set_learning_rate(lr)
    }

    /// Those of all ranks' batches.
    fn counters(&mut self) -> Result<Vec<Counters>, Error> {
        self.array.counters()
    }

    /// The bytes of this rank's copy.
    fn memory(&self) -> MemoryReport {
        self.array.memory()
    }

    fn kind(&mut self) -> LookupKind<'_> {
        LookupKind::Shared(self)
    }
}

impl<C: Comm, L: SharedArray> SharedArray for Replicated<C, L> {
    fn config(&self) -> &Config {
        self.array.config()
    }

    fn snapshot(&mut self) -> Result<RobeSnapshot, Error> {
        self.array.snapshot()
    }

    /// Restores this rank's copy. All ranks make this call, with one snapshot.
    fn restore(&mut self, snapshot: &RobeSnapshot) -> Result<(), Error> {
        self.array.restore(snapshot)?;
        self.waiting = None;
        Ok(())
    }
}
