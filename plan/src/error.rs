/// Why a plan could not be made.
///
/// ```
/// use hotrow_plan::{Error, scars::Skew};
///
/// let refused = Skew::from_bins([]).unwrap_err();
/// assert!(matches!(refused, Error::Argument { what: "counts", .. }), "{refused}");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An argument that has no answer: no such distribution, no plan under this budget, no such quantile.
    #[error("{what}: wanted {wanted}, found {found}; {remedy}")]
    Argument {
        /// The argument.
        what: &'static str,
        /// The accepted values.
        wanted: String,
        /// The value given.
        found: String,
        /// The remedy.
        remedy: &'static str,
    },
    /// A configuration, a source of rows or an allocation that hotrow refuses.
    #[error(transparent)]
    Hotrow(#[from] hotrow::Error),
}

/// The error that refuses an argument.
pub(crate) fn refused(
    what: &'static str,
    wanted: impl Into<String>,
    found: &dyn std::fmt::Display,
    remedy: &'static str,
) -> Error {
    Error::Argument { what, wanted: wanted.into(), found: found.to_string(), remedy }
}
