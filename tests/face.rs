//! Traits that the public types implement.

fn shared_between_threads<T: Send + Sync>() {}

/// A trainer may move a group to another thread, and threads may share a group behind a lock. The list, of the types that hold a device's handles, memory
/// of their own or a caller's functions, passes if it compiles. It is kept by hand, since the source alone does not tell what a type holds.
#[test]
fn public_types_are_send_and_sync() {
    shared_between_threads::<hotrow::Context>();
    shared_between_threads::<hotrow::Group>();
    shared_between_threads::<hotrow::SharedGroup>();
    shared_between_threads::<hotrow::CpuGroup>();
    shared_between_threads::<hotrow::CpuSharedGroup>();
    shared_between_threads::<hotrow::Batch>();
    shared_between_threads::<hotrow::OutputBuffer>();
    shared_between_threads::<hotrow::Reader>();
    shared_between_threads::<hotrow::RowReader>();
    shared_between_threads::<hotrow::Feedback>();
    shared_between_threads::<hotrow::Scaler>();
    shared_between_threads::<hotrow::CpuScaler>();
    shared_between_threads::<hotrow::Sorter>();
    shared_between_threads::<hotrow::Grid>();
    shared_between_threads::<hotrow::CpuGrid>();
    shared_between_threads::<hotrow_plan::simulate::Simulator>();
    shared_between_threads::<hotrow::Timeline>();
    shared_between_threads::<hotrow::RamStore>();
    shared_between_threads::<hotrow::SharedStore>();
    #[cfg(any(unix, windows))]
    shared_between_threads::<hotrow::F32File>();
    #[cfg(feature = "file")]
    shared_between_threads::<hotrow::FileStore>();
    shared_between_threads::<hotrow_dist::Threads>();
    shared_between_threads::<hotrow::Error>();
}
