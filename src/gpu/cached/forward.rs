//! The stages of forward in their order (SPEC 3); no other file knows it.

use crate::{
    gpu::{
        cached::backward::sorts_by_place,
        engine::{
            call::{Call, Groups, Named},
            context::Context,
        },
        stages::{
            ADMIT, AGE, DUE, GATHER, LINEARIZE, LOCATE, PROBE, TOUCH, WANTED,
            cached::{
                exchange::{self, Records},
                space::{Bound, Space},
                tables::Tables,
            },
            sort::{
                dedup,
                radix::counted_mask,
                space::{DedupTo, SortJob, digit_bytes},
            },
        },
    },
    table::{
        abi::{POOL_NONE, Params, count},
        params::Mode,
    },
};

/// A step forward.
pub(crate) struct Forward<'a> {
    pub(crate) tables: &'a Tables,
    pub(crate) space: &'a Space,
    pub(crate) params: &'a Params,
    pub(crate) batch: &'a Bound<'a>,
}

/// The outputs and their number of rows; `None` if the call wants no outputs.
pub(crate) type Outputs<'a> = Option<(&'a wgpu::BindingResource<'a>, u32)>;

impl Forward<'_> {
    /// Encodes the whole step in one pass.
    pub(crate) fn encode(&self, context: &Context, encoder: &mut wgpu::CommandEncoder, outputs: Outputs<'_>) {
        self.clear(encoder);
        let call = &mut Call::begin(context, encoder, "hotrow.forward");
        self.decide(call);
        self.carry(call, outputs, Records::Table);
    }

    /// Encodes the deciding stages alone, for a prefetched batch.
    pub(crate) fn encode_decisions(&self, context: &Context, encoder: &mut wgpu::CommandEncoder) {
        self.clear(encoder);
        self.decide(&mut Call::begin(context, encoder, "hotrow.prefetch"));
    }

    /// Encodes the stages that carry out a decided step.
    pub(crate) fn encode_carry(
        &self,
        context: &Context,
        encoder: &mut wgpu::CommandEncoder,
        outputs: Outputs<'_>,
        records: Records,
    ) {
        self.carry(&mut Call::begin(context, encoder, "hotrow.forward"), outputs, records);
    }

    /// Clears what the stages count in.
    fn clear(&self, encoder: &mut wgpu::CommandEncoder) {
        let Space { step, sort, row_digits, .. } = self.space;
        encoder.clear_buffer(step, 0, None);
        let params = self.params();
        for (mask, digits) in [(params.miss_mask, &sort.digits[0]), (params.row_mask, row_digits)] {
            if mask != 0 {
                encoder.clear_buffer(digits, 0, Some(digit_bytes(params.indices)));
            }
        }
    }

    /// The parameters, with those that lists in step scratch need.
    fn params(&self) -> Params {
        let Self { tables, space, params, batch } = *self;
        let (layout, indices) = (&tables.layout, params.indices);
        let trains = params.mode == Mode::Train as u32 && batch.wanted.is_none();
        let (row_bits, by_row) = (layout.row_bits(), trains && !sorts_by_place(layout, indices));
        let row_mask = if by_row { counted_mask(indices, row_bits) } else { 0 };
        let miss_mask = counted_mask(indices, layout.key_bits());
        Params { row_mask, miss_mask, miss_values: space.miss_values(), ..*params }
    }

    /// Decides the step (SPEC 3, steps 1 to 4): stages that read and write metadata only, in order. No row moves.
    fn decide(&self, call: &mut Call<'_>) {
        let Self { tables, space, params, batch } = *self;
        let (layout, indices, miss_digits) = (&tables.layout, params.indices, &space.sort.digits[0]);
        let params = &self.params();
        let uniform = call.context.uniform(params);
        let from: &[&dyn Named] = &[&("params", uniform), batch, tables, space, &("miss_digits", miss_digits)];
        match batch.wanted {
            // One invocation for each index, and one for each offset.
            None => call.run(&LINEARIZE, from, &Groups::of(indices.max(params.bags + 1), 256)),
            Some(list) => call.run(&WANTED, &[&("feedback", list), &from], &Groups::of(indices, 256)),
        }
        if indices == 0 {
            return;
        }
        // An upper bound on the distinct rows; only the device knows their number.
        let distinct = layout.most_distinct(indices);
        let train = params.mode == Mode::Train as u32 && params.sets > 0;
        if train && params.ages() {
            if params.shares > 0 {
                call.run(&DUE, from, &Groups::of(params.shares, 256));
            }
            for freqs in &tables.freqs {
                let words = freqs.rows.div_ceil(8).max(params.slots);
                call.run(&AGE, &[freqs, &from], &Groups::capped(words, 256));
            }
        }
        call.run(&PROBE, from, &Groups::of(indices, 256));
        let missed = SortJob {
            keys: space.misses.as_entire_binding(),
            values: Some(space.missed_indices()),
            capacity: indices,
            count: count::MISSED,
            key_bits: layout.key_bits(),
            counted: (params.miss_mask != 0).then_some(miss_digits),
        };
        // The place of a missed access is the number of its row among the missing rows.
        let to = DedupTo {
            segment: &space.places,
            starts: &space.starts,
            segments: count::SWAPS,
            valid: count::VALID,
            base: Some(params.slots),
        };
        dedup::encode(call, &space.step, &missed, &space.sorted, &space.sort, &to);
        let groups = if train { Groups::of(indices, 256) } else { Groups::capped(distinct, 256) };
        for freqs in &tables.freqs {
            call.run(&TOUCH, &[freqs, &from], &groups);
        }
        if params.admits() {
            // A software driver clears each workgroup's memory by itself: 64 workgroups without a missing row take it longer than a whole forward of hits.
            let is_software = call.context.caps().device_type == wgpu::DeviceType::Cpu;
            call.run(&ADMIT, from, &Groups::capped(distinct, if is_software { 256 } else { 8 }));
        }
        if train && params.policy_facts().own_leave {
            call.run(&LOCATE, from, &Groups::capped(indices, 256));
        }
    }

    /// Carries the decisions out (SPEC 3, steps 5 and 6): moves rows, and pools bags.
    fn carry(&self, call: &mut Call<'_>, outputs: Outputs<'_>, records: Records) {
        let Self { tables, space, batch, .. } = *self;
        let params = &self.params();
        if params.indices > 0 {
            let phases = if params.admits() { exchange::Phases::Both } else { exchange::Phases::Unpack };
            let list = swaps(space, tables.layout.most_distinct(params.indices), records);
            exchange::encode(call, params, tables, &list, phases);
        }
        if let Some((outputs, rows)) = outputs {
            // With pooling none each share of a workgroup takes four rows.
            let per_group = tables.layout.at_once() * if params.pooling == POOL_NONE { 4 } else { 1 };
            let uniform = call.context.uniform(params);
            let from: &[&dyn Named] = &[&("params", uniform), batch, tables, space, &("outputs", outputs)];
            call.run_rows(&GATHER, from, (tables, params), &Groups::of(rows, per_group));
        }
    }
}

/// The swaps of a step, at most `capacity` of them.
pub(crate) fn swaps(space: &Space, capacity: u32, records: Records) -> exchange::List<'_> {
    exchange::List { step: &space.step, swaps: &space.swaps, capacity, scratch: &space.scratch, records }
}
