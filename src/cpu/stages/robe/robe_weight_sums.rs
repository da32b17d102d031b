//! The sum of the gradients that each weight gets. Twin of `shaders/shared/robe_weight_sums.wgsl`.

use crate::{
    cpu::stages::{
        cached::gradients::CHUNK,
        robe::robe_merge::{Gradients, Sum},
    },
    scaler::GradSlice,
    table::abi::{Params, Robe, Target},
};

/// Number of weights below which one thread does all.
pub(crate) const SHARE: usize = 1 << 12;

/// The chunks of a batch, sorted by their first weight.
#[derive(Clone, Copy)]
pub(crate) struct GradientSums<'a> {
    gradients: Gradients<'a>,
    /// The distinct first weights (*starts*), ascending, each with its chunks.
    pub(crate) starts: &'a [Target],
    scratch: &'a [f32],
}

impl<'a> GradientSums<'a> {
    pub(crate) fn new(
        params: &'a Params,
        robe: &'a Robe,
        targets: &'a [Target],
        accesses: &'a [[u32; 2]],
        grad_outputs: GradSlice<'a>,
        scratch: &'a [f32],
    ) -> Self {
        let starts = &targets[1..=targets[0].row as usize];
        let inverse = f32::from_bits(targets[0].end);
        Self { gradients: Gradients { params, robe, accesses, grad_outputs, inverse }, starts, scratch }
    }

    /// Whether an update goes over all weights instead of the starts.
    pub(crate) fn goes_over_all(&self) -> bool {
        self.starts.len() >= self.gradients.robe.dense_from as usize
    }

    pub(crate) fn reach(&self) -> u32 {
        self.gradients.robe.reach
    }

    /// Sums the chunks that begin at one start, at their weight `e`.
    fn total(&self, one: &Target, e: u32) -> Sum {
        if !Gradients::heavy(one) {
            return self.gradients.sum(one.start..one.end, e);
        }
        let Robe { reach, tail, .. } = *self.gradients.robe;
        let row = 2 * (one.start as usize / CHUNK) + 1;
        let sums = &self.scratch[row * self.gradients.params.dim as usize..];
        Sum { value: sums[e as usize], chunks: u32::from(e < tail || sums[reach as usize] > 0.0) }
    }

    /// Sums all chunks that cover weight `w`. `first` is the first start that reaches `w`.
    pub(crate) fn sum_of(&self, w: u32, first: usize) -> Sum {
        let mut sum = Sum::default();
        if self.gradients.robe.given == 1 && self.gradients.is_uncovered(w) {
            return sum;
        }
        for one in self.starts[first..].iter().take_while(|one| one.row <= w) {
            let total = self.total(one, w - one.row);
            sum.value += total.value;
            sum.chunks += total.chunks;
        }
        sum
    }

    /// Whether no chunk at this start reaches weight `w`.
    pub(crate) fn passed(&self, one: &Target, w: u32) -> bool {
        one.row + self.reach() <= w
    }

    /// Calls `take(w, sum)` for each weight of a range, ascending. Starts from `beyond` on are ignored.
    pub(crate) fn each(&self, weights: std::ops::Range<u32>, beyond: usize, mut take: impl FnMut(u32, Sum)) {
        let mut first = self.starts[..beyond].partition_point(|one| self.passed(one, weights.start));
        for w in weights {
            while first < beyond && self.passed(&self.starts[first], w) {
                first += 1;
            }
            take(w, self.sum_of(w, first));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_counts_once_however_often_it_is_asked_for() {
        // Three starts with 10 chunks each.
        let target = |row, start| Target { row, place: 0, start, end: start + 10 };
        let targets = [Target { row: 3, ..Target::default() }, target(4, 0), target(9, 10), target(40, 20)];
        let (params, accesses) = (Params::default(), vec![[0; 2]; 30]);
        let over = |dense_from| {
            let robe = Robe { dense_from, ..Robe::default() };
            GradientSums::new(&params, &robe, &targets, &accesses, GradSlice::F32(&[]), &[]).goes_over_all()
        };
        assert_eq!([0, 3, 4, 30, u32::MAX].map(over), [true, true, false, false, false]);
    }
}
