//! The one error type. Each message says what was wanted, what was found and what to do.

/// Why a call did not do its job. After any of these the tables still hold their last good values.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A field of [`GroupConfig`](crate::GroupConfig) cannot be.
    #[error("{field}: wanted {wanted}, found {found}; change the group's configuration")]
    Config {
        /// The field.
        field: &'static str,
        /// What would be accepted.
        wanted: String,
        /// What was given.
        found: String,
    },
}
