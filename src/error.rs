//! The one error type. Each message names the wanted value, the found value and the remedy.

use std::{io, sync::Arc};

/// An error of the operating system or of another package. The pointer is thin, which keeps [`Error`] small.
pub(crate) type Cause = Arc<Box<dyn std::error::Error + Send + Sync>>;

/// A copy of the operating system's error.
pub(crate) fn cause(error: &io::Error) -> Cause {
    Arc::new(Box::new(match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(error.kind(), error.to_string()),
    }))
}

/// Two errors are equal if their `Debug` texts are: kind, fields, and the error of the operating system or of another package.
impl PartialEq for Error {
    fn eq(&self, other: &Self) -> bool {
        format!("{self:?}") == format!("{other:?}")
    }
}

impl Eq for Error {}

/// The reason why a call did not do its job. After any of these errors the tables still hold their last good values.
///
/// The error of a store, a source or a checkpoint has the operating system's error as its source:
///
/// ```
/// use std::{error::Error as _, io};
///
/// fn disk_is_full(error: &hotrow::Error) -> bool {
///     let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
///     cause.is_some_and(|cause| cause.kind() == io::ErrorKind::StorageFull)
/// }
///
/// let mut config = hotrow::GroupConfig::new(&[10], 4);
/// config.ways = 0;
/// let error = hotrow::CpuGroup::new(config).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "ways: wanted 1 to 1024, found 0; change the group's configuration"
/// );
/// assert!(!disk_is_full(&error));
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A field of [`GroupConfig`](crate::GroupConfig) has an illegal value.
    #[error("{field}: wanted {wanted}, found {found}; change the group's configuration")]
    Config {
        /// The field.
        field: &'static str,
        /// The accepted values.
        wanted: String,
        /// The value given.
        found: String,
    },
    /// An update rule of the caller's own ([`rules::Rule`](crate::rules::Rule)) is wrong, or has failed. No row has moved.
    #[error("rule {rule}, {place}: wanted {wanted}, found {found}; correct the rule")]
    Rule {
        /// The rule's name.
        rule: String,
        /// The part of the rule; a line of its text.
        place: String,
        /// The accepted values.
        wanted: String,
        /// The value found, or the compiler's message.
        found: String,
    },
    /// An index lies outside its table. The step did not take place.
    #[error(
        "table {table}: wanted an index below {rows}, found {value} at position {position} of the batch; \
             the step was skipped: correct the batch, or configure out_of_range as clamp or skip"
    )]
    IndexOutOfRange {
        /// The table that the index was meant for.
        table: u32,
        /// Rows of that table.
        rows: u32,
        /// The index's position in the batch.
        position: u32,
        /// The index.
        value: u32,
    },
    /// A linear row that the group, or profile, does not have. The call did nothing.
    #[error(
        "{call}: wanted linear rows below {rows}, all tables together, found {row} at position {position}; \
             nothing was done: give rows of a table as its first linear row plus the index"
    )]
    RowOutOfRange {
        /// The call.
        call: &'static str,
        /// Rows of all tables together.
        rows: u32,
        /// The row's position among the rows given.
        position: u32,
        /// The row.
        row: u32,
    },
    /// The offsets of a batch do not ascend from 0 to the number of indices. The step did not take place.
    #[error(
        "offsets: wanted them to ascend from 0 to {indices}, found {value} at position {position}; \
             the step was skipped: correct the batch"
    )]
    BadOffsets {
        /// Indices in the batch.
        indices: u32,
        /// The position of the first offset that is wrong, or is followed by a smaller one.
        position: u32,
        /// The offset at that position.
        value: u32,
    },
    /// A part of a batch has the wrong length.
    #[error("{what}: wanted {wanted} entries, found {found}; pass a slice of {wanted} entries")]
    Length {
        /// The part.
        what: &'static str,
        /// The number of entries wanted.
        wanted: u64,
        /// The number of entries found.
        found: u64,
    },
    /// The number of bags is no multiple of the number of features.
    #[error(
        "bags: wanted a multiple of the {features} features, found {bags}; pass the same number of bags for each feature"
    )]
    Bags {
        /// Features of the group.
        features: u32,
        /// Bags of the batch.
        bags: u32,
    },
    /// A buffer of the caller cannot be bound.
    #[error("{what} buffer: wanted {wanted}, found {found}; create the buffer with that property")]
    Buffer {
        /// The role of the buffer.
        what: &'static str,
        /// The required property.
        wanted: String,
        /// The property it has.
        found: String,
    },
    /// Something is larger than the device can bind, or than 32 bits can count.
    #[error(
        "{what}: wanted {wanted} bytes, found a limit of {limit} (a binding of the device, or what 32 bits count); {remedy}"
    )]
    TooLarge {
        /// The thing that is too large.
        what: &'static str,
        /// The bytes it takes.
        wanted: u64,
        /// The most bytes allowed: the largest binding of the device, or what 32 bits count if no device is involved.
        limit: u64,
        /// The remedy.
        remedy: &'static str,
    },
    /// The device lacks a feature or limit.
    #[error("{what}: wanted {wanted}, the device has {found}; {remedy}")]
    Unsupported {
        /// The purpose.
        what: &'static str,
        /// The feature or limit.
        wanted: String,
        /// The device's feature or limit.
        found: String,
        /// The remedy.
        remedy: &'static str,
    },
    /// The device or the host has less memory left than wanted.
    #[error("{what}: wanted {bytes} bytes, more than device or host has left; make tables, cache or batch smaller")]
    OutOfMemory {
        /// The purpose of the memory.
        what: &'static str,
        /// Bytes asked for.
        bytes: u64,
    },
    /// A snapshot that no group of this configuration can have produced.
    #[error(
        "snapshot, slot {slot}, {what}: wanted {wanted}, found {found}; restore one of a group of the same configuration"
    )]
    Snapshot {
        /// The field that is wrong.
        what: &'static str,
        /// The accepted values.
        wanted: String,
        /// The value found.
        found: u32,
        /// The slot of the cache.
        slot: u32,
    },
    /// The store of a staged table, or a file that fills one, cannot be used as wanted: a full disk, or a file that is truncated, foreign,
    /// locked, of another shape, or changed by another program. The rest of the table is whole, and the call may be made again.
    #[error("{store}, {what}: wanted {wanted}, found {found}; {remedy}")]
    Store {
        /// The store: the path of a file.
        store: String,
        /// The part or operation that is wrong.
        what: &'static str,
        /// The accepted state.
        wanted: String,
        /// The state found.
        found: String,
        /// The remedy.
        remedy: &'static str,
        /// The operating system's error, if there was one.
        source: Option<Arc<Box<dyn std::error::Error + Send + Sync>>>,
    },
    /// The source that fills a table lacks a row, or has a row that is not finite.
    #[error("{name}, row {row}: wanted {wanted}, found {found}; {remedy}")]
    Source {
        /// The source: the path of a file.
        name: String,
        /// The linear row.
        row: u32,
        /// The accepted values.
        wanted: String,
        /// The value found.
        found: String,
        /// The remedy.
        remedy: &'static str,
        /// The operating system's error, if there was one.
        source: Option<Arc<Box<dyn std::error::Error + Send + Sync>>>,
    },
    /// A checkpoint that cannot be written, read, or restored by this group.
    #[error("checkpoint {path}, {what}: wanted {wanted}, found {found}; {remedy}")]
    Checkpoint {
        /// The file.
        path: String,
        /// The part that is wrong: the file itself, a field of its metadata, a tensor.
        what: &'static str,
        /// The accepted values.
        wanted: String,
        /// The value found.
        found: String,
        /// The remedy.
        remedy: &'static str,
        /// The operating system's error, if there was one.
        source: Option<Arc<Box<dyn std::error::Error + Send + Sync>>>,
    },
    /// An illegal loss scale, or a state that no such scaler can have produced.
    #[error("loss scaler, {what}: wanted {wanted}, found {found}; {remedy}")]
    Scaler {
        /// The field.
        what: &'static str,
        /// The accepted values.
        wanted: String,
        /// The value found.
        found: String,
        /// The remedy.
        remedy: &'static str,
    },
    /// Rows that cannot be pinned as asked.
    #[error("pin, {what}: wanted {wanted}, found {found}; {remedy}")]
    Pins {
        /// The argument that is wrong.
        what: &'static str,
        /// The accepted values.
        wanted: String,
        /// The value found.
        found: String,
        /// The remedy.
        remedy: &'static str,
    },
    /// A reader that cannot be made, or no longer fits its group ([`Reader`](crate::Reader)).
    #[error("reader, {what}: wanted {wanted}, found {found}; {remedy}")]
    Reader {
        /// The part that is wrong.
        what: &'static str,
        /// The accepted values.
        wanted: String,
        /// The value found.
        found: String,
        /// The remedy.
        remedy: &'static str,
    },
    /// An illegal hash grid ([`grid`](crate::grid)), or points that it cannot take.
    #[error("grid, {what}: wanted {wanted}, found {found}; {remedy}")]
    Grid {
        /// The field or argument.
        what: &'static str,
        /// The accepted values.
        wanted: String,
        /// The value found.
        found: String,
        /// The remedy.
        remedy: &'static str,
    },
    /// Calls came in an order that would lose an update.
    #[error("{call}: wanted {wanted}, found {found}; call them in that order")]
    Order {
        /// The call.
        call: &'static str,
        /// The call that must come first.
        wanted: &'static str,
        /// The state in which the call came.
        found: &'static str,
    },
    /// The ranks of a job: an error of the package `hotrow-dist`, which tells how to find its own type in it.
    #[error(transparent)]
    Ranks(Arc<Box<dyn std::error::Error + Send + Sync>>),
    /// The device was lost or a read-back failed.
    #[error(
        "device: wanted an answer, found {reason}; create the device and the group anew, and load the last checkpoint, which is whole; \
         the file of a staged table may be newer than it"
    )]
    Device {
        /// "device lost" and the message of wgpu, or that message alone.
        reason: String,
    },
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::{error::Error as _, io::Write};

    use super::*;

    /// `/dev/full` takes the part of a full disk.
    #[test]
    fn a_full_disk_is_found_in_the_source() {
        let mut full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let system = full.write_all(b"row").unwrap_err();
        let (store, wanted) = ("full".into(), "3 bytes written".into());
        let found = system.to_string();
        let error = Error::Store { store, what: "writing", wanted, found, remedy: "", source: Some(cause(&system)) };
        let found = error.source().unwrap().downcast_ref::<io::Error>().unwrap();
        assert_eq!((found.kind(), found.raw_os_error()), (io::ErrorKind::StorageFull, system.raw_os_error()));
        assert_eq!(error.clone(), error);
        let mut other = error.clone();
        if let Error::Store { source, .. } = &mut other {
            *source = Some(cause(&io::Error::new(io::ErrorKind::StorageFull, "another disk")));
        }
        assert_ne!(other, error);
    }
}
