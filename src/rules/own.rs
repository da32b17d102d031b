//! A rule of the caller's own.

use std::{fmt, sync::Arc};

use super::{Element, Facts, MOST_HYPER, Numbers};
use crate::error::Error;

/// A state of an element, by the facts that decide its form in a record (SPEC 3).
///
/// Example: [`Rule`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum State {
    /// A sum that is never negative, as AdaGrad's.
    Sum = 0,
    /// A sum of either sign.
    SignedSum = 1,
    /// A moment that is never negative, as Adam's second.
    Moment = 2,
    /// A moment of either sign, as Adam's first.
    SignedMoment = 3,
}

/// An update rule of the caller's own, for [`GroupConfig::with_rule`](crate::GroupConfig::with_rule): its step in WGSL for the GPU, and in Rust for the CPU
/// backend, with the same operations in the same order.
///
/// ```
/// use std::sync::Arc;
/// use hotrow::{Bags, CpuGroup, GroupConfig, Mode, Optimizer, Precision, prelude::*, rules::{Element, Numbers, Rule}};
///
/// /// The sign of the gradient, times the rate.
/// struct Signs;
///
/// impl Rule for Signs {
///     fn name(&self) -> &str {
///         "signs"
///     }
///     fn wgsl(&self) -> &str {
///         "fn rule(e: Element, n: Numbers) -> Element {
///              return Element(e.g, descend(e.w, n.lr * sign(e.g)), e.first, e.second);
///          }"
///     }
///     fn step(&self, e: Element, n: &Numbers) -> Element {
///         let sign = if e.g == 0.0 { 0.0 } else { e.g.signum() };
///         Element { w: n.descend(e.w, n.lr * sign), ..e }
///     }
/// }
///
/// let config = GroupConfig::new(&[10], 2).with_precision(Precision::Fp32).with_optimizer(Optimizer::sgd(0.25));
/// let mut group = CpuGroup::new(config.with_rule(Arc::new(Signs)))?;
/// group.forward(Bags::new(&[3], &[0, 1]), Mode::Train)?;
/// group.backward(&[7.0, -1e-9])?;
/// assert_eq!(group.read_rows(&[3])?, [-0.25, 0.25]);
/// # Ok::<(), hotrow::Error>(())
/// ```
pub trait Rule: Send + Sync {
    /// The name in messages and files: 1 to 64 letters, digits, `-` and `_`.
    fn name(&self) -> &str;

    /// The states of an element, at most two.
    fn states(&self) -> Vec<State> {
        Vec::new()
    }

    /// The names and values of the hyperparameters, at most four, in the order of [`Numbers::hyper`].
    fn hyperparameters(&self) -> Vec<(&str, f32)> {
        Vec::new()
    }

    /// Sets the states of the elements of a row in a new table, which are 0: its weights are initial values, or come from a source. States that the rule
    /// does not have are empty. A row that is written later keeps its states.
    ///
    /// # Errors
    /// The reason why there are none. Then there is no table.
    fn first(&self, weights: &[f32], states: [&mut [f32]; 2]) -> Result<(), String> {
        let _ = (weights, states);
        Ok(())
    }

    /// WGSL with a function `rule(e: Element, n: Numbers) -> Element`, and whatever it calls. It may use no binding, no barrier, no atomic operation and no
    /// derivative. `Quad` is `vec4<f32>` or `f32`, so the text is written for both; `Bits` is the same of `u32`.
    ///
    /// ```wgsl
    /// struct Element { g: Quad, w: Quad, first: Quad, second: Quad }
    /// struct Numbers { lr: f32, hyper: vec4<f32>, fix: vec2<f32>, own: f32, t: u32 }
    /// fn descend(w: Quad, by: Quad) -> Quad       // w - by, less decoupled weight decay
    /// fn settled(v: Quad) -> Quad                 // v, rounded by itself: no fused multiply-add
    /// fn correction(beta: f32, t: u32) -> f32     // 1 - beta^t
    /// fn bits_of(v: Quad) -> Bits                 // the bits, which no compiler takes for those of a finite float
    /// ```
    ///
    /// It calls no other function of the library's, and its names are not those of the library's text. Every loop ends.
    fn wgsl(&self) -> &str;

    /// The same step of one element on the CPU.
    fn step(&self, element: Element, numbers: &Numbers) -> Element;

    /// The step of all rows at once, `dim` elements each, row by row: the CPU backend calls it once a step, on the calling thread.
    ///
    /// # Errors
    /// The reason why the step fails. Then no row moves.
    fn steps(&self, elements: &mut [Element], dim: usize, numbers: &Numbers) -> Result<(), String> {
        let _ = dim;
        elements.iter_mut().for_each(|element| *element = self.step(*element, numbers));
        Ok(())
    }
}

/// What files keep of a rule.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
struct Identity {
    name: String,
    /// The hash of the text, in hexadecimal digits.
    hash: String,
    hyperparameters: Vec<String>,
    /// The facts of each state.
    states: Vec<u32>,
}

/// The rule of a configuration.
#[derive(Clone)]
pub(crate) struct OwnRule {
    identity: Identity,
    /// `None` in a configuration that comes from a file.
    given: Option<Arc<dyn Rule>>,
}

/// Every pair of facts, so that the facts of own rules are static as others are.
static PAIRS: [[u32; 2]; 16] = {
    let mut pairs = [[0; 2]; 16];
    let mut at = 0;
    while at < 16 {
        pairs[at] = [at as u32 / 4, at as u32 % 4];
        at += 1;
    }
    pairs
};

/// FNV-1a, never 0.
fn hash(text: &str) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    text.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, step).max(1)
}

impl OwnRule {
    pub(crate) fn new(rule: Arc<dyn Rule>) -> Self {
        let identity = Identity {
            name: rule.name().to_owned(),
            hash: format!("{:016x}", hash(rule.wgsl())),
            hyperparameters: rule.hyperparameters().into_iter().map(|(name, _)| name.to_owned()).collect(),
            states: rule.states().into_iter().map(|state| state as u32).collect(),
        };
        Self { identity, given: Some(rule) }
    }

    pub(crate) fn given(&self) -> Option<&Arc<dyn Rule>> {
        self.given.as_ref()
    }

    /// The hash of the identity.
    pub(crate) fn hash(&self) -> u64 {
        let Identity { name, hash: text, hyperparameters, states } = &self.identity;
        hash(&format!("{name} {text} {hyperparameters:?} {states:?}"))
    }

    pub(crate) fn facts(&self) -> Facts {
        let states: &[u32] = match self.identity.states[..] {
            [] => &[],
            [only] => &PAIRS[4 * (only as usize & 3)][..1],
            [first, second, ..] => &PAIRS[4 * (first as usize & 3) + (second as usize & 3)],
        };
        Facts { states, rests: false, ..Facts::PLAIN }
    }

    pub(crate) fn hyper(&self) -> [f32; MOST_HYPER] {
        let mut all = [0.0; MOST_HYPER];
        let values = self.given.as_ref().map_or(Vec::new(), |rule| rule.hyperparameters());
        all.iter_mut().zip(values).for_each(|(all, (_, value))| *all = value);
        all
    }

    /// The error at a part of the rule.
    pub(crate) fn fault(&self, place: &str, wanted: &str, found: String) -> Error {
        Error::Rule { rule: self.identity.name.clone(), place: place.into(), wanted: wanted.into(), found }
    }

    /// Checks all but the text.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let fail = |place, wanted, found| Err(self.fault(place, wanted, found));
        let is_word = |name: &str| {
            (1..=64).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
        };
        let Identity { name, hash: _, hyperparameters, states } = &self.identity;
        if !is_word(name) {
            return fail("name", "1 to 64 letters, digits, - and _", format!("{name:?}"));
        }
        if states.len() > 2 || states.iter().any(|&state| state > 3) {
            return fail("states", "at most 2", states.len().to_string());
        }
        if hyperparameters.len() > MOST_HYPER {
            return fail("hyperparameters", "at most 4", hyperparameters.len().to_string());
        }
        if let Some(name) = hyperparameters.iter().find(|name| !is_word(name)) {
            return fail("hyperparameters", "names of letters, digits, - and _", format!("{name:?}"));
        }
        match hyperparameters.iter().zip(self.hyper()).find(|(_, value)| !value.is_finite()) {
            Some((name, value)) => fail("hyperparameters", "finite numbers", format!("{name} = {value}")),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for OwnRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.identity.fmt(f)
    }
}

impl PartialEq for OwnRule {
    fn eq(&self, other: &Self) -> bool {
        self.identity == other.identity && self.hyper().map(f32::to_bits) == other.hyper().map(f32::to_bits)
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for OwnRule {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.identity.serialize(to)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for OwnRule {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Identity::deserialize(from).map(|identity| Self { identity, given: None })
    }
}

/// A number that a rule gives otherwise on the GPU than on the CPU.
///
/// Example: [`check`].
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The weight, or its first or second state: 0, 1 or 2.
    pub number: usize,
    /// The element before the step, with its gradient.
    pub before: Element,
    /// The result on the GPU.
    pub gpu: f32,
    /// The result on the CPU.
    pub cpu: f32,
    /// Floats between the two.
    pub ulp: u32,
}

/// A device on which a rule can be tried: [`Context`](crate::Context).
pub trait Device {
    /// As [`check`].
    ///
    /// # Errors
    /// As [`check`].
    fn try_rule(&self, rule: &Arc<dyn Rule>) -> Result<Vec<Difference>, Error>;
}

/// Plays the steps of random rows through both backends, and returns where they differ, the largest difference first. A few ULP are usual: GPUs fuse
/// products with sums, and round divisions and roots in their own ways ([`wgsl`](Rule::wgsl) has `settled` against the former).
///
/// ```no_run
/// # use std::sync::Arc;
/// # fn of(rule: Arc<dyn hotrow::rules::Rule>) -> Result<(), hotrow::Error> {
/// let context = hotrow::adapter::open_best()?;
/// for difference in hotrow::rules::check(&context, &rule)?.iter().take(3) {
///     println!("{difference:?}");
/// }
/// # Ok(()) }
/// ```
///
/// # Errors
/// Those of making a group with the rule.
pub fn check(device: &impl Device, rule: &Arc<dyn Rule>) -> Result<Vec<Difference>, Error> {
    device.try_rule(rule)
}
