//! What a run of a plan would refuse, and what fits.

use super::super::amount::{BINDING, largest};
use super::run::Cache;
use super::step::Model;
use super::wire::Wire;
use hotrow::{Pooling, Precision, WAYS};
use hotrow_report::units::bytes;

/// The largest number of ranks.
const MOST_RANKS: u32 = 1024;

/// Where a group runs: its rows, its cache, and machines with their memory and ranks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) rows: u32,
    pub(super) cache: Cache,
    pub(super) memory: f64,
    pub(super) per_host: u32,
}

/// For each limit: what it is about, its expected bytes, and the most.
fn needs(model: &Model, wire: Wire, place: &Place) -> [(&'static str, f64, f64); 3] {
    let (step, vector) = (model.step(wire), 4.0 * f64::from(wire.dim));
    let ranks = f64::from(wire.ranks);
    let bags = f64::from(model.batch) / ranks;
    let outputs = vector * bags * if wire.pooling == Pooling::None { model.per_bag() } else { 1.0 };
    let answer = if wire.ranks > 1 && wire.packs() { step.largest(|asked| wire.bytes(asked)[3]) } else { 0.0 };
    let gradients = (ranks - 1.0) * step.largest(|asked| vector * asked.bags);
    let records = f64::from(place.rows.div_ceil(wire.shards)) * 4.0 * f64::from(wire.packed_words());
    let cache = Cache { shards: wire.shards, ..place.cache };
    let shard = records + f64::from(cache.sets_of_shard()) * f64::from(WAYS) * vector;
    // The rows that come, as messages, and as a table; the outputs and their gradients; what goes to the others.
    let of_step = 3.0 * vector * step.rows() + 2.0 * outputs + gradients;
    let on_machine = f64::from(place.per_host.min(wire.ranks)) * (shard * f64::from(wire.each()) + of_step);
    [
        ("the rows from one rank to another", answer, 4.0 * f64::from(u32::MAX)),
        ("the outputs of a rank on a GPU, or the gradients that come to it", outputs.max(gradients), BINDING as f64),
        ("a machine with its tables, rows and outputs", on_machine, place.memory),
    ]
}

/// A note for each limit that is exceeded, with the batch, ranks and precision that would exceed none.
pub(super) fn notes(model: &Model, wire: Wire, place: &Place) -> Vec<String> {
    let over = |&(_, (_, found, most)): &(usize, (&str, f64, f64))| found > most;
    let note = |(_, (what, found, most)): (usize, (&str, f64, f64))| {
        let fits = |model: &Model, wire: Wire| !needs(model, wire, place).into_iter().enumerate().any(|x| over(&x));
        let batch_of = |wire: Wire| largest(model.batch, |batch| fits(&Model { batch, ..model.clone() }, wire));
        let on = |ranks| Wire { ranks, shards: wire.shards.max(ranks), ..wire };
        let more = || (1..).map(|doubled| wire.ranks << doubled).take_while(|&ranks| ranks <= MOST_RANKS);
        let (batch, ranks) = (batch_of(wire), more().find(|&ranks| fits(model, on(ranks))));
        let less = Precision::ALL.into_iter().filter(|precision| precision.bits() < wire.precision.bits());
        let precision = less.into_iter().find(|&precision| fits(model, Wire { precision, ..wire }));
        let remedies = [
            batch.map(|batch| format!("--batch {batch}")),
            ranks.map(|ranks| format!("--ranks {ranks}")),
            precision.map(|precision| format!("--precision {precision}")),
        ];
        let mut remedies: Vec<String> = remedies.into_iter().flatten().collect();
        if remedies.is_empty() {
            remedies.extend(more().find_map(|r| Some(format!("--ranks {r} --batch {}", batch_of(on(r))?))));
        }
        let fit = remedies.join(" or ") + " would fit";
        let remedy = if remedies.is_empty() { "take fewer or shorter rows" } else { &fit };
        let texts = [most, found].map(|x| if bytes(most) == bytes(found) { format!("{x:.0} B") } else { bytes(x) });
        let (ranks, [most, found]) = (wire.ranks, texts);
        format!("ranks: {ranks}: wanted at most {most} for {what}, found about {found}, which a run refuses: {remedy}")
    };
    needs(model, wire, place).into_iter().enumerate().filter(over).map(note).collect()
}
