//! The values of `Params` that a group never changes, as constants of a stage's text: a compiler then drops the other precisions and optimisers.
//!
//! They are constants of the text and not `override`s: the text with its uniform stays valid by itself, so that tests, the lane executor and
//! readers need no second list of values, and naga need not check a module again for each pipeline.

use crate::{
    config::{GroupConfig, Optimizer, Precision},
    table::{
        abi::Params,
        layout::Layout,
        params::{MODE_ROWS, Mode},
        rng::Purpose,
    },
};

/// The stages that have constants: those whose code depends on precision, optimiser or pooling. Other stages are shared by all groups.
const STAGES: [&str; 4] = ["exchange", "gather", "merge", "update"];

/// A field's name, the end of its value in WGSL, and its value where it is a constant. Of floats only 0, which switches a part off, is one.
type Field = (&'static str, &'static str, fn(&Params) -> Option<u32>);

const FIELDS: [Field; 23] = [
    ("dim", "u", |params| Some(params.dim)),
    ("bits", "u", |params| Some(params.bits)),
    ("stochastic", "u", |params| Some(params.stochastic)),
    ("random_bits", "u", |params| Some(params.random_bits)),
    ("state", "u", |params| Some(params.state)),
    ("state_bits", "u", |params| Some(params.state_bits)),
    ("facts", "u", |params| Some(params.facts)),
    ("state_word", "u", |params| Some(params.state_word)),
    ("scalars", "u", |params| Some(params.scalars)),
    ("payload_half", "u", |params| Some(params.payload_half)),
    ("record_words", "u", |params| Some(params.record_words)),
    ("row_quads", "u", |params| Some(params.row_quads)),
    ("lanes", "u", |params| Some(params.lanes)),
    ("optimizer", "u", |params| Some(params.optimizer)),
    ("each", "u", |params| Some(params.each)),
    ("corrects", "u", |params| Some(params.corrects)),
    ("own_count", "u", |params| Some(params.own_count)),
    ("shrink", ".0", |params| (params.shrink == 0.0).then_some(0)),
    ("clip_value", ".0", |params| (params.clip_value == 0.0).then_some(0)),
    ("clip_norm", ".0", |params| (params.clip_norm == 0.0).then_some(0)),
    ("pooling", "u", |params| is_plain(params).then_some(params.pooling)),
    ("weighted", "u", |params| is_plain(params).then_some(0)),
    ("half_grads", "u", |params| is_plain(params).then_some(0)),
];

/// Whether a call has neither weights nor FP16 gradients, and pools as its group does. Calls of a group that are not plain share one text.
const fn is_plain(params: &Params) -> bool {
    params.weighted == 0 && params.half_grads == 0 && params.mode != MODE_ROWS
}

/// Values of fields of `Params` that are written into a stage's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Constants([Option<u32>; FIELDS.len()]);

impl Constants {
    /// No constants: every value comes from the uniform.
    pub const NONE: Self = Self([None; FIELDS.len()]);

    /// The constants of a call's stages.
    #[must_use]
    pub fn of(params: &Params) -> Self {
        Self(FIELDS.map(|(_, _, value)| value(params)))
    }

    /// The constants of a plain call of a group with one table, for checks of texts; none if there is no such group.
    #[must_use]
    pub fn of_group(precision: Precision, optimizer: Optimizer, dim: u32) -> Self {
        let mut config = GroupConfig::new(&[100], dim);
        (config.precision, config.optimizer) = (precision, optimizer);
        let layout = Layout::new(&config, u64::MAX);
        layout.map_or(Self::NONE, |layout| Self::of(&Params::new(&config, &layout, Mode::Train, Purpose::Update)))
    }

    /// The constants of a group's texts: for plain calls, and for all calls.
    #[must_use]
    pub fn texts(params: &Params) -> [Self; 2] {
        [params.weighted, 1].map(|weighted| Self::of(&Params { weighted, ..*params }))
    }

    /// The constants by the names of their fields in `Params`.
    #[cfg(feature = "internals")]
    pub fn named(self) -> impl Iterator<Item = (&'static str, u32)> {
        FIELDS.iter().zip(self.0).filter_map(|(&(name, ..), value)| Some((name, value?)))
    }

    /// The number of the update rule, if it is a constant.
    pub(super) fn rule(self) -> Option<u32> {
        position("optimizer").and_then(|at| self.0[at])
    }

    /// Those that the stage `name` has, whose text is `text`.
    pub(super) fn in_stage(self, name: &str, text: &str) -> Self {
        if !STAGES.contains(&name) {
            return Self::NONE;
        }
        let mut own = Self::NONE;
        each_field(text, |_, field| {
            // A call that is not plain may write rows of the caller's, which have a rounding of their own.
            let plain = position("pooling").is_some_and(|at| self.0[at].is_some());
            let fixed = |field: &&str| plain || name != "exchange" || *field != "stochastic";
            if let Some(at) = field.filter(fixed).and_then(position) {
                own.0[at] = self.0[at];
            }
        });
        own
    }

    /// `text` with the constants in place of the uniform's fields.
    pub(super) fn write(self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        each_field(text, |before, field| {
            out.push_str(before);
            let Some(field) = field else { return };
            match position(field).and_then(|at| Some((self.0[at]?, FIELDS[at].1))) {
                Some((value, end)) => out.push_str(&format!("{value}{end}")),
                None => out.push_str(&format!("params.{field}")),
            }
        });
        out
    }
}

fn position(field: &str) -> Option<usize> {
    FIELDS.iter().position(|(name, ..)| *name == field)
}

/// Calls `found` with each piece of `text` and the field of `params` behind it; last with the rest and no field.
fn each_field(text: &str, mut found: impl FnMut(&str, Option<&str>)) {
    let mut pieces = text.split("params.");
    let mut before = pieces.next().unwrap_or_default();
    for piece in pieces {
        let end = piece.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(piece.len());
        found(before, Some(&piece[..end]));
        before = &piece[end..];
    }
    found(before, None);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_become_their_values() {
        let params = Params { bits: 8, dim: 64, clip_norm: 2.0, ..Params::default() };
        let text =
            "a = params.bits + params.bits_of; if (params.clip_value > 0.0) {} b = params.clip_norm * f32(params.dim);";
        let wanted = "a = 8u + params.bits_of; if (0.0 > 0.0) {} b = params.clip_norm * f32(64u);";
        let all = Constants::of(&params);
        assert_eq!(all.write(text), wanted);
        assert_eq!(Constants::NONE.write(text), text);
        assert_eq!(all.in_stage("update", text).write(text), wanted);
        assert_eq!(all.in_stage("probe", text), Constants::NONE);
        // A stage that reads none of the fields that differ has one text.
        let wide = Constants::of(&Params { dim: 128, ..params });
        assert_ne!(all.in_stage("update", text), wide.in_stage("update", text));
        assert_eq!(all.in_stage("update", "params.bits"), wide.in_stage("update", "params.bits"));
    }

    #[test]
    fn calls_that_are_not_plain_share_a_text() {
        let plain = Params { pooling: 1, ..Params::default() };
        let others = [
            Params { weighted: 1, ..plain },
            Params { half_grads: 1, ..plain },
            Params { mode: MODE_ROWS, pooling: 2, ..plain },
        ];
        assert_eq!(others.map(|params| Constants::of(&params)), [Constants::texts(&plain)[1]; 3]);
        assert_eq!(Constants::of(&plain), Constants::texts(&plain)[0]);
        assert_ne!(Constants::texts(&plain)[0], Constants::texts(&plain)[1]);
    }
}
