//! The settings of a group of tables: precision, rounding, policy, optimiser, placement.
//!
//! [`GroupConfig`] is plain data, which [`GroupConfig::check`] checks before anything touches a device.

use std::fmt;
use std::{str::FromStr, sync::Arc};

use crate::{
    error::Error,
    formats::{Format, Head},
    rules::{Element, Facts, Hyper, Known, MOST_HYPER, Numbers, OwnRule, Rule},
    stripe::Stripe,
};

/// Ways of a set. A GPU's sets have 32, and the CPU's too unless the configuration says otherwise.
pub const WAYS: u32 = 32;
/// Ways of a set that are for recent rows, unless the configuration says otherwise ([`Policy::Window`]).
pub const WINDOW_WAYS: u32 = 4;
/// Most ways of a set, because a probe looks at all of them.
pub const MOST_WAYS: u32 = 1024;

/// Lists the variants of an enum, `ALL` (but for one behind a semicolon), and gives each its name in options, files and messages: `name`, `Display` and `FromStr`, which takes
/// `_` for `-`. Serde has the same names with `_`.
macro_rules! named {
    ($type:ident, $field:literal: $($variant:ident = $name:literal),+ $(; $more:ident = $more_name:literal)?) => {
        impl $type {
            /// Every variant, in the order of their declaration.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            /// The name in options, files and messages.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ $(Self::$more => $more_name)? }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }

        impl FromStr for $type {
            type Err = Error;

            /// # Errors
            /// [`Error::Config`] for another name.
            fn from_str(name: &str) -> Result<Self, Error> {
                match name.replace('_', "-").as_str() {
                    $($name => Ok(Self::$variant),)+
                    $($more_name => Ok(Self::$more),)?
                    _ => Err(Error::Config { field: $field, wanted: [$($name),+].join(", "), found: name.to_owned() }),
                }
            }
        }

        #[cfg(feature = "serde")]
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(&self.name().replace('-', "_"))
            }
        }

        #[cfg(feature = "serde")]
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                <String as serde::Deserialize>::deserialize(from)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

pub(crate) use named;

named!(Precision, "precision": Fp32 = "fp32", Fp16 = "fp16", Int8 = "int8", Int4 = "int4", Int2 = "int2"; Int4x32 = "int4x32");
named!(StatePrecision, "state": Fp32 = "fp32", Fp16 = "fp16", Int8 = "int8");
named!(Rounding, "rounding": Nearest = "nearest", Stochastic = "stochastic");
named!(RandomBits, "random_bits": Eight = "8", Sixteen = "16", TwentyFour = "24");
named!(CounterBits, "counter_bits": Eight = "8", Sixteen = "16", ThirtyTwo = "32");
named!(Policy, "policy": Lru = "lru", Lfu = "lfu", Static = "static", Window = "window");
named!(Pooling, "pooling": Sum = "sum", Mean = "mean", None = "none");
named!(OutOfRange, "out_of_range": Error = "error", Clamp = "clamp", Skip = "skip");
named!(Placement, "placement": Device = "device", Mapped = "mapped", Staged = "staged", Auto = "auto");
named!(OptimizerKind, "optimizer": Sgd = "sgd", AdaGrad = "adagrad", RowWiseAdaGrad = "row-wise-adagrad",
    Momentum = "momentum", Adam = "adam", RowWiseAdam = "row-wise-adam", Ftrl = "ftrl", Lion = "lion"; Own = "own");

/// Chainable setters of a configuration's fields.
macro_rules! setters {
    ($type:ident { $($with:ident $field:ident: $value:ty,)* }) => {
        impl $type {
            $(
                #[doc = concat!("With another [`", stringify!($field), "`](Self::", stringify!($field), ").")]
                #[must_use]
                pub fn $with(mut self, $field: $value) -> Self {
                    self.$field = $field;
                    self
                }
            )*
        }
    };
}
pub(crate) use setters;

/// The type in which the table stores a weight (Yang 2020, section 3).
///
/// ```
/// use hotrow::Precision;
///
/// assert_eq!("int4".parse(), Ok(Precision::Int4));
/// assert!(Precision::Int4.bits() == 4 && Precision::Int4.is_integer());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Precision {
    /// IEEE binary32, stored unchanged.
    Fp32,
    /// IEEE binary16, saturating at +-65504.
    Fp16,
    /// 8-bit codes with one FP32 scale and bias a row.
    Int8,
    /// 4-bit codes with one FP32 scale and bias a row.
    Int4,
    /// 2-bit codes with one FP32 scale and bias a row.
    Int2,
    /// 4-bit codes with one FP16 scale and bias for each 32 weights, in groups that only look up ([`GroupConfig::forward_only`]): dim is a multiple of 32, and
    /// values are at most 65504 in magnitude. Rounded to nearest, whatever the settings. It is not in [`ALL`](Self::ALL).
    Int4x32,
}

impl Precision {
    /// The precisions of groups that only look up ([`GroupConfig::forward_only`]); the others are [`ALL`](Self::ALL).
    pub const READ_ONLY: [Self; 1] = [Self::Int4x32];

    /// What a packed row of this precision is made of.
    pub(crate) const fn format(self) -> Format {
        match self {
            Self::Fp32 => Format::row(32, Head::None),
            Self::Fp16 => Format::row(16, Head::None),
            Self::Int8 => Format::row(8, Head::Fp32),
            Self::Int4 => Format::row(4, Head::Fp32),
            Self::Int2 => Format::row(2, Head::Fp32),
            Self::Int4x32 => {
                Format { bits: 4, block: 32, head: Head::Fp16, trains: false, most: 65504.0, shader: "int4x32" }
            }
        }
    }

    /// Bits of a stored weight: 32, 16, 8, 4 or 2.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.format().bits
    }

    /// Whether rows train; if not, a group must be [`forward_only`](GroupConfig::forward_only).
    #[doc(hidden)]
    #[must_use]
    pub const fn trains(self) -> bool {
        self.format().trains
    }

    /// True for the precisions that store one FP32 scale and bias with each row.
    #[doc(hidden)]
    #[must_use]
    pub const fn is_integer(self) -> bool {
        matches!(self.format(), Format { head: Head::Fp32, block: 0, .. })
    }

    /// Checks that a group of this precision trains.
    pub(crate) fn check_trains(self, place: &str) -> Result<(), Error> {
        let names = Self::ALL.map(Self::name).join(", ");
        let wanted = format!("one of {names} {place}");
        if self.trains() { Ok(()) } else { Err(Error::Config { field: "precision", wanted, found: self.to_string() }) }
    }
}

/// The type in which records and shared arrays store the optimiser's state of an element. (Numbers of a row as a whole are FP32.)
///
/// ```
/// use hotrow::{Optimizer, Precision, StatePrecision, robe::Config};
///
/// // FP16 weights and two INT8 moments: 4 bytes a weight, and a word for each block of 64.
/// let config = Config::direct(&[1 << 15], 2)?
///     .with_precision(Precision::Fp16)
///     .with_state(Some(StatePrecision::Int8))
///     .with_optimizer(Optimizer::adam(0.01));
/// assert_eq!(config.table_bytes(), (4 << 16) + (4 << 10));
/// # Ok::<(), hotrow::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StatePrecision {
    /// IEEE binary32: never rounded.
    Fp32,
    /// 16 bits: AdaGrad's sum as IEEE binary16, moments with the exponent of binary32.
    Fp16,
    /// 8-bit floats relative to the largest state of their row or block: 3 bits of fraction, the rest exponent; one word of scales for it. Rounded
    /// at random, without bias but for second moments below 2^-31 of the largest (SPEC 3, "States in INT8").
    Int8,
}

impl StatePrecision {
    /// The type of the state beside weights of `precision`: as chosen, or the usual one.
    pub(crate) const fn chosen(precision: Precision, kind: OptimizerKind, chosen: Option<Self>) -> Self {
        match (chosen, precision) {
            (Some(chosen), _) => chosen,
            (None, Precision::Fp32) => Self::Fp32,
            (None, _) if kind.facts().full_states => Self::Fp32,
            (None, _) => Self::Fp16,
        }
    }

    /// Checks the type of the state beside weights of `precision`.
    pub(crate) fn check(precision: Precision, kind: OptimizerKind, chosen: Option<Self>) -> Result<(), Error> {
        let state = Self::chosen(precision, kind, chosen);
        let fail = |wanted: String| Err(Error::Config { field: "state", wanted, found: state.to_string() });
        match state {
            Self::Fp32 => Ok(()),
            _ if precision == Precision::Fp32 => fail("fp32 beside FP32 weights".into()),
            _ if kind.facts().full_states => fail(format!("fp32 with {kind}")),
            _ => Ok(()),
        }
    }
}

/// The rounding of a value between two representable neighbours (Yang 2020, section 3; Zhang 2018, section 2.2).
///
/// Example: [`GroupConfig`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rounding {
    /// To the nearer neighbour, ties to even.
    Nearest,
    /// To the upper neighbour with probability equal to the fraction, so that the expected value is the value itself.
    Stochastic,
}

/// The number of random bits that decide the rounding of an element, if rounding is stochastic.
///
/// The bits come from [pcg4d](crate::table::rng): one hash of 128 bits serves 4 elements with 24 bits, 8 with 16, 16 with 8
/// ([`rng::noise`](crate::table::rng::noise) says which of its bits an element takes). An element at the fraction f of the way from its
/// lower to its upper neighbour goes up if `(r + 1/2) * 2^-k < f`, where r is its k random bits as a number. So a representable value
/// stays, and the probability of going up is within `2^-(k+1)` of f. The expected error of a rounding is at most that share of the distance
/// between the neighbours. Updates smaller than that share are lost on average. Zhang 2018, section 3.1, found 8 bits enough for its
/// models. The default is 24, more than a normal binary16 value can tell apart (13).
///
/// Example: [`GroupConfig`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RandomBits {
    /// 8 bits an element, 16 elements a hash.
    Eight,
    /// 16 bits an element, 8 elements a hash.
    Sixteen,
    /// 24 bits an element, 4 elements a hash.
    TwentyFour,
}

impl RandomBits {
    /// Random bits of an element: 8, 16 or 24.
    #[must_use]
    pub const fn bits(self) -> u32 {
        match self {
            Self::Eight => 8,
            Self::Sixteen => 16,
            Self::TwentyFour => 24,
        }
    }

    /// Elements that share a hash: 16, 8 or 4.
    #[doc(hidden)]
    #[must_use]
    pub const fn elements(self) -> u32 {
        match self {
            Self::Eight => 16,
            Self::Sixteen => 8,
            Self::TwentyFour => 4,
        }
    }

    /// The largest difference between the probability of rounding up and the fraction: `2^-(bits + 1)`. It is also the largest expected
    /// error of a rounding, in units of the distance between the neighbours.
    #[doc(hidden)]
    #[must_use]
    pub fn bias(self) -> f64 {
        0.5 / f64::from(1u32 << self.bits())
    }
}

/// The width of the counters of LFU. A row's frequency grows with each use until it reaches [`most`](Self::most), and then stays there. So
/// does its copy in the cache. Rows at the greatest frequency are equal for LFU: none of them evicts another.
///
/// The frequency of a row takes 1, 2 or 4 bytes on every backend. Other policies ignore the setting.
///
/// Example: [`GroupConfig`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CounterBits {
    /// Frequencies up to 255.
    Eight,
    /// Frequencies up to 65,535.
    Sixteen,
    /// Frequencies up to 2^31.
    ThirtyTwo,
}

impl CounterBits {
    /// Bits of a counter: 8, 16 or 32.
    #[must_use]
    pub const fn bits(self) -> u32 {
        match self {
            Self::Eight => 8,
            Self::Sixteen => 16,
            Self::ThirtyTwo => 32,
        }
    }

    /// The greatest frequency: 255, 65,535 or 2^31.
    #[must_use]
    pub const fn most(self) -> u32 {
        match self {
            Self::Eight => 0xff,
            Self::Sixteen => 0xffff,
            Self::ThirtyTwo => 1 << 31,
        }
    }
}

/// The rule for the row that leaves a full set (Yang 2020, section 3).
///
/// Example: [`GroupConfig`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// The row that was not used for longest leaves. Rows of the running batch are protected.
    Lru,
    /// The row with the fewest uses since the start leaves, but only for a row with strictly more uses.
    Lfu,
    /// No step admits a row. Only rows that [`Embedding::pin`](crate::Embedding::pin) has pinned are in the cache; every other row is
    /// bypassed (SCARS, section II-B: the hottest rows held fast).
    Static,
    /// Some ways of each set hold recent rows; the others hold rows that are used often by counters of 4 bits, which are halved as accesses pass
    /// (SPEC 3). [`GroupConfig::window_ways`] is the number of the former; with 0 it is LFU that ages, which moves the fewest rows.
    Window,
}

/// What sets the policies apart (SPEC 3). Everything that depends on the policy asks for these, not for its name.
///
/// Example: [`GroupConfig`].
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PolicyFacts {
    /// Steps admit rows.
    pub admits: bool,
    /// Each row of the table has a counter of its uses. Rows that are used more come first, and a row leaves only for one that is used more.
    pub counts: bool,
    /// The counters have 4 bits and are halved as accesses pass.
    pub ages: bool,
    /// Some ways of each set are for recent rows.
    pub recent: bool,
    /// A row that the batch uses may leave.
    pub own_leave: bool,
}

impl PolicyFacts {
    const NONE: Self = Self { admits: false, counts: false, ages: false, recent: false, own_leave: false };

    /// The facts as bits of [`Params::policy`](crate::table::abi::Params): `ADMITS` to `OWN_LEAVE` in `shaders/shared/common.wgsl`.
    #[must_use]
    pub const fn bits(self) -> u32 {
        let Self { admits, counts, ages, recent, own_leave } = self;
        admits as u32 | (counts as u32) << 1 | (ages as u32) << 2 | (recent as u32) << 3 | (own_leave as u32) << 4
    }

    /// The facts of [`bits`](Self::bits).
    #[must_use]
    pub const fn of_bits(bits: u32) -> Self {
        let (admits, counts, ages) = (bits & 1 != 0, bits & 2 != 0, bits & 4 != 0);
        Self { admits, counts, ages, recent: bits & 8 != 0, own_leave: bits & 16 != 0 }
    }
}

impl Policy {
    /// What sets it apart from other policies.
    #[doc(hidden)]
    #[must_use]
    pub const fn facts(self) -> PolicyFacts {
        let none = PolicyFacts::NONE;
        match self {
            Self::Lru => PolicyFacts { admits: true, ..none },
            Self::Lfu => PolicyFacts { admits: true, counts: true, own_leave: true, ..none },
            Self::Static => none,
            Self::Window => PolicyFacts { admits: true, counts: true, ages: true, recent: true, ..none },
        }
    }
}

/// The way in which the rows of a bag become output rows.
///
/// Example: [`GroupConfig`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pooling {
    /// One output row per bag: the (weighted) sum.
    Sum,
    /// One output row per bag: the (weighted) sum divided by the number of valid indices.
    Mean,
    /// One output row per index.
    None,
}

/// The effect of an index outside its table (SPEC 7).
///
/// Example: [`GroupConfig`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OutOfRange {
    /// The whole step and its backward do nothing, and the error names the first bad index.
    Error,
    /// The index is read as the table's last row.
    Clamp,
    /// The index is left out: it has weight 0, is no access, and does not count for mean.
    Skip,
}

/// The memory in which the low-precision table lives (SPEC 4).
///
/// Example: [`GroupConfig`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Placement {
    /// In GPU memory.
    #[default]
    Device,
    /// In host memory that the shaders read and write over the bus. Needs `MAPPABLE_PRIMARY_BUFFERS`.
    Mapped,
    /// In the host's own memory, or in a file: the host gathers missing records, still packed, and writes back those that leave the cache.
    /// Runs on any device. A table may be larger than the device can bind or hold.
    Staged,
    /// In GPU memory if the table fits; else in host memory, mapped or staged as [`Caps::choose_host_placement`](crate::Caps) says.
    /// [`Group::placed`](crate::Group::placed) returns the choice and its reason.
    Auto,
}

/// The rule that turns a merged gradient into an update, with its hyperparameters.
///
/// ```
/// use hotrow::{Optimizer, OptimizerKind};
///
/// let rule = Optimizer::adagrad(0.05).with_weight_decay(1e-4);
/// assert_eq!((rule.kind, rule.lr, rule.eps), (OptimizerKind::AdaGrad, 0.05, 1e-8));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Optimizer {
    /// The update rule. It decides how much state a row has.
    pub kind: OptimizerKind,
    /// Learning rate.
    pub lr: f32,
    /// Added to the root of the state.
    pub eps: f32,
    /// Weight decay. Added to the gradient as `weight_decay * w` before the rule (L2); if [`decoupled`](Self::decoupled), subtracted from
    /// the weight as `lr * weight_decay * w` (`AdamW`).
    pub weight_decay: f32,
    /// Whether weight decay is decoupled: `w -= lr * weight_decay * w` beside the rule, and nothing is added to the gradient (`AdamW`;
    /// [Loshchilov & Hutter 2019](https://arxiv.org/abs/1711.05101), algorithm 2).
    pub decoupled: bool,
    /// The decay of the first moment (Adam), the momentum, or the share of m in Lion's direction: 0 or more, below 1.
    pub beta1: f32,
    /// The decay of Adam's second moment, or of Lion's m: 0 or more, below 1.
    pub beta2: f32,
    /// Weight of FTRL's penalty on magnitudes, which makes small weights 0: 0 or more.
    pub l1: f32,
    /// Weight of FTRL's penalty on squares: 0 or more.
    pub l2: f32,
    /// Added to the root of FTRL's n: 0 or more.
    pub beta: f32,
    /// Whether Adam corrects a row's moments by the number of the row's own updates, which takes 4 bytes more a row, and not by the group's
    /// step number.
    pub own_count: bool,
    /// The largest magnitude of a gradient's element: larger ones are cut to it, before weight decay. `None`: no bound.
    pub clip_value: Option<f32>,
    /// The largest Euclidean norm of a row's gradient: a longer one is scaled to it, after `clip_value` and before weight decay. `None`: no
    /// bound.
    pub clip_norm: Option<f32>,
}

/// The update rules.
///
/// Example: [`Optimizer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OptimizerKind {
    /// `w -= lr * g`.
    Sgd,
    /// `G += g*g; w -= lr * g / (sqrt(G) + eps)`, one G an element.
    AdaGrad,
    /// As AdaGrad with one G a row: `G += mean(g*g)`.
    RowWiseAdaGrad,
    /// SGD with momentum: `m = beta1 * m + g; w -= lr * m`, one m an element.
    Momentum,
    /// `m += (1 - beta1) * (g - m); v += (1 - beta2) * (g*g - v); w -= lr * m' / (sqrt(v') + eps)`, one m and one v an element. `m'` and
    /// `v'` are m and v over `1 - beta^t` (Kingma & Ba 2015, algorithm 1).
    Adam,
    /// As Adam with one v a row: `v += (1 - beta2) * (mean(g*g) - v)`.
    RowWiseAdam,
    /// Follow the regularised leader: `n += g*g; w` is the best weight for all gradients so far, 0 where `l1` outweighs them; one n and one y an
    /// element (SPEC 3; `McMahan` et al. 2013, algorithm 1).
    Ftrl,
    /// `w -= lr * sign(m + (1 - beta1) * (g - m)); m += (1 - beta2) * (g - m)`, one m an element (Chen et al. 2023, algorithm 2).
    Lion,
    /// The rule of [`GroupConfig::with_rule`]. It is not in [`ALL`](Self::ALL).
    Own,
}

/// Evaluates an expression with a name for the [`Known`](crate::rules::Known) of a kind.
macro_rules! with_rule {
    ($kind:expr, $rule:ident => $value:expr) => {
        with_rule!($kind, $rule => $value;
            Sgd AdaGrad RowWiseAdaGrad Momentum Adam RowWiseAdam Ftrl Lion)
    };
    ($kind:expr, $rule:ident => $value:expr; $($name:ident)+) => {
        match $kind {
            $(crate::config::OptimizerKind::$name => {
                type $rule = crate::rules::$name;
                $value
            })+
            // An own rule moves its rows by itself.
            crate::config::OptimizerKind::Own => unreachable!(),
        }
    };
}
pub(crate) use with_rule;

impl OptimizerKind {
    /// The facts of the rule, from its file in `src/rules/`.
    pub(crate) const fn facts(self) -> &'static Facts {
        match self {
            // A configuration has the facts: `GroupConfig::facts`.
            Self::Own => &Facts::PLAIN,
            known => with_rule!(known, R => &<R as Known>::FACTS),
        }
    }
}

impl Optimizer {
    /// SGD with the given learning rate.
    #[must_use]
    pub const fn sgd(lr: f32) -> Self {
        Self {
            kind: OptimizerKind::Sgd,
            lr,
            eps: 1e-8,
            weight_decay: 0.0,
            decoupled: false,
            beta1: 0.9,
            beta2: 0.999,
            l1: 0.0,
            l2: 0.0,
            beta: 1.0,
            own_count: false,
            clip_value: None,
            clip_norm: None,
        }
    }

    /// The rule of this kind with its usual settings, as of its constructor.
    #[must_use]
    pub const fn usual(kind: OptimizerKind, lr: f32) -> Self {
        match kind {
            OptimizerKind::Lion => Self::lion(lr),
            kind => Self { kind, ..Self::sgd(lr) },
        }
    }

    /// Element-wise AdaGrad with eps 1e-8 outside the root, as in FBGEMM's TBE.
    #[must_use]
    pub const fn adagrad(lr: f32) -> Self {
        Self { kind: OptimizerKind::AdaGrad, ..Self::sgd(lr) }
    }

    /// Row-wise AdaGrad with eps 1e-8.
    #[must_use]
    pub const fn row_wise_adagrad(lr: f32) -> Self {
        Self { kind: OptimizerKind::RowWiseAdaGrad, ..Self::sgd(lr) }
    }

    /// SGD with momentum 0.9. Only the rows that a step reads move; the momentum of the others rests.
    #[must_use]
    pub const fn momentum(lr: f32) -> Self {
        Self { kind: OptimizerKind::Momentum, ..Self::sgd(lr) }
    }

    /// Adam with beta1 0.9, beta2 0.999 and eps 1e-8. Rows that a step does not read keep weights and moments, as in torch's `SparseAdam`.
    ///
    /// ```
    /// use hotrow::{Bags, CpuGroup, GroupConfig, Mode, Optimizer, Precision, prelude::*};
    ///
    /// let adam = Optimizer::adam(0.1).with_decoupled(true).with_weight_decay(0.01).with_clip_norm(Some(1.0));
    /// let mut group = CpuGroup::new(GroupConfig::new(&[1], 1).with_precision(Precision::Fp32).with_optimizer(adam))?;
    /// group.forward(Bags::new(&[0], &[0, 1]), Mode::Train)?;
    /// group.backward(&[0.5])?;
    /// // The first step goes by lr, whatever the gradient's size.
    /// assert!((group.read_rows(&[0])?[0] + 0.1).abs() < 1e-6);
    /// # Ok::<(), hotrow::Error>(())
    /// ```
    #[must_use]
    pub const fn adam(lr: f32) -> Self {
        Self { kind: OptimizerKind::Adam, ..Self::sgd(lr) }
    }

    /// Row-wise Adam: as [`adam`](Self::adam) with one second moment a row, as TBE's partial row-wise Adam.
    #[must_use]
    pub const fn row_wise_adam(lr: f32) -> Self {
        Self { kind: OptimizerKind::RowWiseAdam, ..Self::sgd(lr) }
    }

    /// FTRL-Proximal without penalties, with beta 1: AdaGrad that can make weights 0 by [`l1`](Self::l1).
    ///
    /// ```
    /// use hotrow::{Bags, CpuGroup, GroupConfig, Mode, Optimizer, Precision, prelude::*};
    ///
    /// let config = GroupConfig::new(&[2], 1).with_precision(Precision::Fp32);
    /// let mut group = CpuGroup::new(config.with_optimizer(Optimizer::ftrl(0.1).with_l1(6.0)))?;
    /// group.forward(Bags::new(&[0, 1], &[0, 1, 2]), Mode::Train)?;
    /// group.backward(&[1.0, 9.0])?;
    /// let rows = group.read_rows(&[0, 1])?;
    /// assert!(rows[0] == 0.0 && rows[1] < 0.0); // a small gradient does not outweigh l1
    /// # Ok::<(), hotrow::Error>(())
    /// ```
    #[must_use]
    pub const fn ftrl(lr: f32) -> Self {
        Self { kind: OptimizerKind::Ftrl, ..Self::sgd(lr) }
    }

    /// Lion with beta1 0.9 and beta2 0.99: each weight goes by `lr`, whatever its gradient's size. Weight decay is decoupled. A usual rate is a tenth of
    /// Adam's.
    #[must_use]
    pub const fn lion(lr: f32) -> Self {
        Self { kind: OptimizerKind::Lion, beta2: 0.99, decoupled: true, ..Self::sgd(lr) }
    }

    /// Whether rows are counted for the bias correction: it takes an Adam and [`own_count`](Self::own_count).
    pub(crate) const fn counts_rows(&self) -> bool {
        self.own_count && self.kind.facts().corrects
    }

    /// The value of a hyperparameter, by its field's name.
    const fn value(&self, hyper: Hyper) -> (&'static str, f32) {
        match hyper {
            Hyper::Eps => ("eps", self.eps),
            Hyper::Beta1 => ("beta1", self.beta1),
            Hyper::Beta2 => ("beta2", self.beta2),
            Hyper::L1 => ("l1", self.l1),
            Hyper::L2 => ("l2", self.l2),
            Hyper::Beta => ("beta", self.beta),
        }
    }

    /// Sets the states of elements that follow from weights that are given; the states have all the first ones, then all the second ones.
    pub(crate) fn begin(&self, weights: &[f32], states: &mut [f32]) {
        if !self.kind.facts().begins {
            return;
        }
        let numbers = Numbers { lr: self.lr, shrink: 0.0, hyper: self.hyper(), fix: [1.0; 2], own: 0.0, t: 0 };
        let (first, second) = states.split_at_mut(weights.len());
        for ((&w, first), second) in weights.iter().zip(first).zip(second) {
            let element = Element { g: 0.0, w, states: [*first, *second] };
            [*first, *second] = with_rule!(self.kind, R => R::begun(&numbers, element));
        }
    }

    /// The hyperparameters of the rule, in the order of its file; zeros behind them.
    pub(crate) fn hyper(&self) -> [f32; MOST_HYPER] {
        let mut all = [0.0; MOST_HYPER];
        all.iter_mut().zip(self.kind.facts().hyper).for_each(|(value, &hyper)| *value = self.value(hyper).1);
        all
    }

    /// Checks the learning rate.
    pub(crate) fn check_rate(&self) -> Result<(), Error> {
        let fail = |wanted: &str| Err(Error::Config { field: "lr", wanted: wanted.into(), found: self.lr.to_string() });
        match self.kind {
            _ if !self.lr.is_finite() => fail("a finite number"),
            OptimizerKind::Ftrl if self.lr < 0.0 => fail("0 or more with ftrl"),
            _ => Ok(()),
        }
    }

    /// Checks the numbers.
    fn check(&self) -> Result<(), Error> {
        let fail = |field, wanted: &str, found: f32| {
            Err(Error::Config { field, wanted: wanted.into(), found: found.to_string() })
        };
        self.check_rate()?;
        let hyper = [("eps", self.eps), ("weight_decay", self.weight_decay)];
        if let Some((field, value)) = hyper.into_iter().find(|(_, value)| !value.is_finite()) {
            return fail(field, "a finite number", value);
        }
        // With eps 0, a row's first zero gradient would divide 0 by 0, and the row would be skipped in every step.
        if self.kind.facts().hyper.contains(&Hyper::Eps) && self.eps <= 0.0 {
            return fail("eps", "a number above 0", self.eps);
        }
        let betas = [("beta1", self.beta1), ("beta2", self.beta2)];
        if let Some((field, beta)) = betas.into_iter().find(|(_, beta)| !(0.0..1.0).contains(beta)) {
            return fail(field, "0 or more, below 1", beta);
        }
        let penalties = [("l1", self.l1), ("l2", self.l2), ("beta", self.beta)];
        if let Some((field, value)) = penalties.into_iter().find(|(_, value)| !(value.is_finite() && *value >= 0.0)) {
            return fail(field, "a finite number, 0 or more", value);
        }
        // The square of a tiny gradient is 0, and the step would divide by 0.
        if self.kind == OptimizerKind::Ftrl && self.beta + self.l2 <= 0.0 {
            return fail("beta", "a number above 0 where l2 is 0", self.beta);
        }
        if self.decoupled && !self.kind.facts().descends {
            let wanted = format!("false with {}, whose l2 shrinks weights", self.kind);
            return Err(Error::Config { field: "decoupled", wanted, found: "true".into() });
        }
        let clips = [("clip_value", self.clip_value), ("clip_norm", self.clip_norm)];
        let mut clips = clips.into_iter().filter_map(|(field, clip)| Some((field, clip?)));
        match clips.find(|(_, clip)| !(clip.is_finite() && *clip > 0.0)) {
            Some((field, clip)) => fail(field, "a finite number above 0", clip),
            None => Ok(()),
        }
    }
}

/// The initial values of a new table.
///
/// Example: [`GroupConfig`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum Init {
    /// The same value in every element.
    Constant(f32),
    /// Uniform in `[low, high)`, from the group's seed: the same values on every machine.
    Uniform {
        /// Lowest value.
        low: f32,
        /// Upper end, not reached.
        high: f32,
    },
    /// Normally distributed, from the group's seed: the same values on every machine. No value is further than 6.8 `std` from `mean`.
    Normal {
        /// Mean.
        mean: f32,
        /// Standard deviation, 0 or more.
        std: f32,
    },
}

impl Default for Init {
    /// Zeros.
    fn default() -> Self {
        Self::Constant(0.0)
    }
}

/// A group: tables of one dim and precision that share a cache. Rows are numbered across tables: `linear row = table base + index`.
///
/// ```
/// use hotrow::{
///     CounterBits, GroupConfig, Init, Optimizer, OutOfRange, Placement, Policy, Pooling, Precision, RandomBits, Rounding,
/// };
///
/// let mut config = GroupConfig::new(&[1_000_000, 500], 64)
///     .with_precision(Precision::Int4)
///     .with_rounding(Rounding::Stochastic)
///     .with_random_bits(RandomBits::Sixteen)
///     .with_policy(Policy::Lfu)
///     .with_counter_bits(CounterBits::Sixteen)
///     .with_pooling(Pooling::Mean)
///     .with_out_of_range(OutOfRange::Skip)
///     .with_placement(Placement::Auto)
///     .with_init(Init::Uniform { low: -0.1, high: 0.1 })
///     .with_optimizer(Optimizer::row_wise_adagrad(0.1));
/// config.cache_rows = 20_000;
/// assert_eq!(config.total_rows(), 1_000_500);
/// assert!(config.check().is_ok());
/// ```
///
/// With the feature `serde` it is read and written in any of serde's formats, under the names of its fields, which must all be there; enums have their names with `_` for `-`.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct GroupConfig {
    /// Rows of each table.
    pub tables: Vec<u32>,
    /// The table that each feature reads. Bags come feature by feature, the same number for each. Empty: feature i reads table i.
    pub features: Vec<u32>,
    /// Weights of a row, 1 to 2^24.
    pub dim: u32,
    /// The type in which the table stores a weight.
    pub precision: Precision,
    /// The type in which a record stores the optimiser's state of an element: FP32 beside FP32 weights; FP32, FP16 or INT8 beside others.
    /// `None`: FP32 beside FP32 and with FTRL, else FP16. A slot of the cache has it in FP32.
    pub state: Option<StatePrecision>,
    /// The rounding of a cached or updated row, and of drawn initial values, to the table's precision.
    pub rounding: Rounding,
    /// The rounding of weights that the caller gives: by a [`Source`](crate::Source), and by
    /// [`write_rows`](crate::Embedding::write_rows) for rows that are not in the cache.
    pub write_rounding: Rounding,
    /// Random bits of an element, if rounding is stochastic.
    pub random_bits: RandomBits,
    /// Number of rows that the FP32 cache holds, rounded up to whole sets; 0 means no cache. More than the group's rows are taken as its rows: then
    /// every row has a slot of its own, and misses once.
    pub cache_rows: u32,
    /// Ways of a set, 1 (direct-mapped) to 1024. A GPU needs 32; the CPU backend takes any number. If there are more ways than rows, the
    /// cache is one set.
    pub ways: u32,
    /// The rule for the row that leaves a full set.
    pub policy: Policy,
    /// The width of the counters, if the policy is LFU.
    pub counter_bits: CounterBits,
    /// Ways of a set that hold recent rows, if the policy is [`Policy::Window`]; fewer than `ways`.
    pub window_ways: u32,
    /// The share of the cache's sets that each table has, from the first table on, in whole sets: rounded down, but at least one. A table with 0, or
    /// behind the end of the list, has none: its rows are always bypassed. Empty: all tables share all sets.
    pub cache_shares: Vec<f32>,
    /// The pooling of a bag's rows.
    pub pooling: Pooling,
    /// The update rule.
    pub optimizer: Optimizer,
    /// The effect of an index outside its table.
    pub out_of_range: OutOfRange,
    /// The padding id: one entry for all tables or one for each, `None` for a table without one; empty: no table has one. It may lie in its table
    /// or outside. An access with it is ignored: it adds zeros, mean pooling does not count it, and its row is never admitted, pinned or trained
    /// ([`write_rows`](crate::Embedding::write_rows) writes it). Only [`Counters::padding`](crate::Counters::padding) counts it.
    pub padding: Vec<Option<u32>>,
    /// No forward has a backward: a group that looks up, admits and counts, and never trains.
    pub forward_only: bool,
    /// The memory in which the table lives.
    pub placement: Placement,
    /// The initial values of a new table.
    pub init: Init,
    /// The rule, if [`Optimizer::kind`] is [`OptimizerKind::Own`].
    pub(crate) rule: Option<OwnRule>,
    /// The seed of all random bits: rounding and initial values.
    pub seed: u32,
    /// Which rows of a group over ranks this shard stores. All settings but `tables` and `cache_rows` are the whole group's.
    pub(crate) stripe: Stripe,
    /// Most bytes of one piece of the table; `None` takes the largest binding of the device. Tests and plans set it, through `internals`.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub(crate) piece_bytes: Option<u64>,
    /// Most bytes of one window of the cache; `None` takes the largest binding of the device. Tests and plans set it, through `internals`.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub(crate) window_bytes: Option<u64>,
}

setters!(Optimizer {
    with_kind kind: OptimizerKind,
    with_lr lr: f32,
    with_eps eps: f32,
    with_weight_decay weight_decay: f32,
    with_decoupled decoupled: bool,
    with_beta1 beta1: f32,
    with_beta2 beta2: f32,
    with_l1 l1: f32,
    with_l2 l2: f32,
    with_beta beta: f32,
    with_own_count own_count: bool,
    with_clip_value clip_value: Option<f32>,
    with_clip_norm clip_norm: Option<f32>,
});

setters!(GroupConfig {
    with_tables tables: Vec<u32>,
    with_features features: Vec<u32>,
    with_dim dim: u32,
    with_precision precision: Precision,
    with_state state: Option<StatePrecision>,
    with_rounding rounding: Rounding,
    with_write_rounding write_rounding: Rounding,
    with_random_bits random_bits: RandomBits,
    with_cache_rows cache_rows: u32,
    with_ways ways: u32,
    with_policy policy: Policy,
    with_counter_bits counter_bits: CounterBits,
    with_window_ways window_ways: u32,
    with_cache_shares cache_shares: Vec<f32>,
    with_pooling pooling: Pooling,
    with_optimizer optimizer: Optimizer,
    with_out_of_range out_of_range: OutOfRange,
    with_padding padding: Vec<Option<u32>>,
    with_forward_only forward_only: bool,
    with_placement placement: Placement,
    with_init init: Init,
    with_seed seed: u32,
});

impl GroupConfig {
    /// Tables of `tables[i]` x `dim`: INT8 with stochastic rounding (24 random bits; to nearest what the caller gives), no cache, 32 ways, LRU (LFU would count in 32 bits), sum
    /// pooling, SGD with rate 0.01.
    #[must_use]
    pub fn new(tables: &[u32], dim: u32) -> Self {
        Self {
            tables: tables.to_vec(),
            features: Vec::new(),
            dim,
            precision: Precision::Int8,
            state: None,
            rounding: Rounding::Stochastic,
            write_rounding: Rounding::Nearest,
            random_bits: RandomBits::TwentyFour,
            cache_rows: 0,
            ways: WAYS,
            policy: Policy::Lru,
            counter_bits: CounterBits::ThirtyTwo,
            window_ways: WINDOW_WAYS,
            cache_shares: Vec::new(),
            pooling: Pooling::Sum,
            optimizer: Optimizer::sgd(0.01),
            out_of_range: OutOfRange::Error,
            padding: Vec::new(),
            forward_only: false,
            placement: Placement::default(),
            init: Init::default(),
            rule: None,
            seed: 0,
            stripe: Stripe::ALL,
            piece_bytes: None,
            window_bytes: None,
        }
    }

    /// With an update rule of the caller's own, at the learning rate, decay and bounds of [`optimizer`](Self::optimizer). Checkpoints and table files name it by
    /// its name, a hash of its text and the names of its hyperparameters, and go on with no other.
    #[must_use]
    pub fn with_rule(mut self, rule: Arc<dyn Rule>) -> Self {
        (self.optimizer.kind, self.rule) = (OptimizerKind::Own, Some(OwnRule::new(rule)));
        self
    }

    /// The own rule, if the update rule is one.
    pub(crate) fn own(&self) -> Option<&OwnRule> {
        self.rule.as_ref().filter(|_| self.optimizer.kind == OptimizerKind::Own)
    }

    /// The facts of the update rule.
    pub(crate) fn facts(&self) -> Facts {
        self.own().map_or(*self.optimizer.kind.facts(), OwnRule::facts)
    }

    /// Sets the states of a row that follow from its initial weights.
    pub(crate) fn begin(&self, weights: &[f32], states: &mut [f32]) -> Result<(), Error> {
        let Some(own) = self.own() else {
            self.optimizer.begin(weights, states);
            return Ok(());
        };
        let Some(rule) = own.given() else { return Ok(()) };
        states.fill(0.0);
        let each = own.facts().states.len();
        let (first, rest) = states.split_at_mut(if each > 0 { weights.len() } else { 0 });
        let second = &mut rest[..if each > 1 { weights.len() } else { 0 }];
        rule.first(weights, [first, second]).map_err(|found| own.fault("first", "the states of new weights", found))
    }

    /// Bits of the counter of each row: 0 under a policy without one.
    pub(crate) const fn bits_of_uses(&self) -> u32 {
        match self.policy.facts() {
            PolicyFacts { counts: false, .. } => 0,
            PolicyFacts { ages: true, .. } => 4,
            _ => self.counter_bits.bits(),
        }
    }

    /// The greatest number that the counter of a row reaches.
    #[doc(hidden)]
    #[must_use]
    pub const fn most_uses(&self) -> u32 {
        if self.policy.facts().ages { 15 } else { self.counter_bits.most() }
    }

    /// Sets the learning rate.
    ///
    /// # Errors
    /// [`Error::Config`] for a rate that is not finite; the old one stays.
    pub fn set_learning_rate(&mut self, lr: f32) -> Result<(), Error> {
        Optimizer { lr, ..self.optimizer }.check_rate()?;
        self.optimizer.lr = lr;
        Ok(())
    }

    /// The table that each feature reads.
    #[doc(hidden)]
    #[must_use]
    pub fn feature_tables(&self) -> Vec<u32> {
        if self.features.is_empty() { (0..self.tables.len() as u32).collect() } else { self.features.clone() }
    }

    /// Number of features. Bags come feature by feature, the same number for each.
    #[must_use]
    pub fn feature_count(&self) -> u32 {
        if self.features.is_empty() { self.tables.len() as u32 } else { self.features.len() as u32 }
    }

    /// The linear row, in the whole group, of linear row `row` of this one: another one only in a virtual shard of a group over several ranks.
    #[doc(hidden)]
    #[must_use]
    pub const fn whole_row(&self, row: u32) -> u32 {
        self.stripe.whole(row)
    }

    /// The padding id of a table.
    #[doc(hidden)]
    #[must_use]
    pub fn padding_of(&self, table: u32) -> Option<u32> {
        let one = if self.padding.len() == 1 { 0 } else { table as usize };
        self.padding.get(one).copied().flatten()
    }

    /// Rows of all tables together.
    #[must_use]
    pub fn total_rows(&self) -> u64 {
        self.tables.iter().map(|&rows| u64::from(rows)).sum()
    }

    /// Checks everything that can be checked without a device.
    ///
    /// # Errors
    /// [`Error::Config`] names the field, the wanted value and the found one.
    pub fn check(&self) -> Result<(), Error> {
        let fail = |field, wanted: String, found: String| Err(Error::Config { field, wanted, found });
        if self.dim == 0 || self.dim > 1 << 24 {
            return fail("dim", "1 to 16777216".into(), self.dim.to_string());
        }
        if self.tables.is_empty() || self.tables.len() > 1 << 16 {
            return fail("tables", "1 to 65536 tables".into(), self.tables.len().to_string());
        }
        // A stripe of a whole group may have no row of some of its tables.
        let fewest = if self.stripe == Stripe::ALL { 1 } else { u32::from(self.total_rows() == 0) };
        if let Some(at) = self.tables.iter().position(|&rows| rows < fewest) {
            return fail("tables", "at least one row a table".into(), format!("table {at} with 0 rows"));
        }
        StatePrecision::check(self.precision, self.optimizer.kind, self.state)?;
        let Format { block, trains, .. } = self.precision.format();
        if block > 0 && !self.dim.is_multiple_of(block) {
            let wanted = format!("a multiple of {block} with {}, whose blocks have so many weights", self.precision);
            return fail("dim", wanted, self.dim.to_string());
        }
        if !trains && !self.forward_only {
            let wanted = format!("true with {}, whose rows do not train", self.precision);
            return fail("forward_only", wanted, "false".into());
        }
        if !trains && self.optimizer.kind != OptimizerKind::Sgd {
            let wanted = format!("sgd, which has no state, with {}, whose rows do not train", self.precision);
            return fail("optimizer", wanted, self.optimizer.kind.to_string());
        }
        let rows = self.total_rows();
        if rows > u64::from(u32::MAX) - 1 {
            return fail("tables", "at most 2^32 - 2 rows in a group".into(), rows.to_string());
        }
        // `slots + place in the batch` must stay below the word that means no slot.
        if self.cache_rows > 1 << 31 {
            return fail("cache_rows", "at most 2^31 rows".into(), self.cache_rows.to_string());
        }
        if self.ways == 0 || self.ways > MOST_WAYS {
            return fail("ways", format!("1 to {MOST_WAYS}"), self.ways.to_string());
        }
        if self.policy.facts().recent && self.window_ways >= self.ways {
            let wanted = format!("fewer than the {} ways of a set", self.ways);
            return fail("window_ways", wanted, self.window_ways.to_string());
        }
        if self.cache_shares.len() > self.tables.len() {
            let wanted = format!("at most one for each of {} tables", self.tables.len());
            return fail("cache_shares", wanted, format!("{} shares", self.cache_shares.len()));
        }
        let shares = || self.cache_shares.iter().map(|&share| f64::from(share));
        if shares().any(|share| !(0.0..=1.0).contains(&share)) || shares().sum::<f64>() > 1.0 + 1e-6 {
            return fail(
                "cache_shares",
                "shares of 0 to 1, whose sum is at most 1".into(),
                format!("{:?}", self.cache_shares),
            );
        }
        if let Some(&table) = self.features.iter().find(|&&table| table as usize >= self.tables.len()) {
            return fail("features", format!("tables 0 to {}", self.tables.len() - 1), table.to_string());
        }
        if self.padding.len() > 1 && self.padding.len() != self.tables.len() {
            let wanted = format!("none, one for all tables, or one for each of {}", self.tables.len());
            return fail("padding", wanted, format!("{} ids", self.padding.len()));
        }
        self.optimizer.check()?;
        if let Some(rule) = self.own() {
            rule.check()?;
            let decays = self.optimizer.decoupled && self.optimizer.weight_decay != 0.0;
            if decays && rule.given().is_some_and(|rule| !rule.wgsl().contains("descend(")) {
                return fail("decoupled", "false with a rule that does not call descend".into(), "true".into());
            }
        } else if self.rule.is_some() {
            return fail("optimizer", "own, with a rule given by with_rule".into(), self.optimizer.kind.to_string());
        } else if self.optimizer.kind == OptimizerKind::Own {
            return fail("optimizer", "a rule given by with_rule".into(), "own, without one".into());
        }
        // The random bits of a record's state are numbered by 24 bits.
        if self.facts().states.len() == 2 && self.dim > 1 << 23 {
            let wanted = format!("1 to 8388608 with {}, which has two states a weight", self.optimizer.kind);
            return fail("dim", wanted, self.dim.to_string());
        }
        let (finite, found) = match self.init {
            Init::Constant(value) => (value.is_finite(), format!("the constant {value}")),
            Init::Uniform { low, high } => {
                ((high - low).is_finite() && low <= high, format!("uniform from {low} to {high}"))
            }
            Init::Normal { mean, std } => {
                // A margin, so that no row's range exceeds f32::MAX.
                let finite = (mean.abs() + 16.0 * std).is_finite() && std >= 0.0;
                (finite, format!("normal with mean {mean} and standard deviation {std}"))
            }
        };
        if !finite {
            return fail("init", "finite values, low <= high, std >= 0".into(), found);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What admission relies on: only counters age or stand beside ways for recent rows, and own rows leave exactly where no stamp keeps them.
    #[test]
    fn facts_of_a_policy_fit_together() {
        let fits = |facts: PolicyFacts| {
            let PolicyFacts { counts, ages, recent, own_leave, .. } = facts;
            (counts || !ages && !recent) && own_leave == (counts && !recent)
        };
        for policy in Policy::ALL {
            let facts = policy.facts();
            assert!(fits(facts) && PolicyFacts::of_bits(facts.bits()) == facts, "{policy}: {facts:?}");
            assert!(!fits(PolicyFacts { own_leave: !facts.own_leave, ..facts }), "{policy}");
        }
    }

    #[test]
    fn files_tell_formats_apart() {
        let all: Vec<Precision> = Precision::ALL.into_iter().chain(Precision::READ_ONLY).collect();
        let words: std::collections::BTreeSet<u32> = all.iter().map(|one| one.format().word()).collect();
        assert_eq!(words.len(), all.len());
        assert_ne!(Format::row(8, Head::None).word(), Precision::Int8.format().word(), "floats of 8 bits are no codes");
    }

    #[test]
    fn a_name_reads_back() {
        for precision in Precision::ALL {
            assert_eq!(precision.to_string().parse::<Precision>().unwrap(), precision);
        }
        for bits in RandomBits::ALL {
            assert_eq!((bits.name(), bits.name().parse::<RandomBits>().unwrap()), (&*bits.bits().to_string(), bits));
        }
        for bits in CounterBits::ALL {
            assert_eq!((bits.name(), bits.name().parse::<CounterBits>().unwrap()), (&*bits.bits().to_string(), bits));
        }
        let kind: OptimizerKind = "row_wise_adagrad".parse().unwrap();
        assert_eq!((kind, format!("{kind:>18}")), (OptimizerKind::RowWiseAdaGrad, "  row-wise-adagrad".to_owned()));
    }

    #[test]
    fn another_name_is_refused_with_those_that_there_are() {
        let Err(Error::Config { field, wanted, found }) = "LRU".parse::<Policy>() else { panic!("accepted") };
        assert_eq!((field, &*wanted, &*found), ("policy", "lru, lfu, static, window", "LRU"));
        assert!("".parse::<Placement>().is_err() && "int3".parse::<Precision>().is_err());
    }
}
