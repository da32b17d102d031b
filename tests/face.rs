//! Traits that the public types implement.

use hotrow::{robe, scars, simulate};

fn shared_between_threads<T: Send + Sync>() {}

/// A trainer may move a group to another thread, and threads may share a group behind a lock. The test passes if it compiles.
#[test]
fn public_types_are_send_and_sync() {
    shared_between_threads::<hotrow::Context>();
    shared_between_threads::<hotrow::ContextOptions>();
    shared_between_threads::<hotrow::Group>();
    shared_between_threads::<hotrow::RobeGroup>();
    shared_between_threads::<hotrow::Scaler>();
    shared_between_threads::<hotrow::Sorter>();
    shared_between_threads::<hotrow::Timeline>();
    shared_between_threads::<hotrow::CpuGroup>();
    shared_between_threads::<hotrow::CpuRobeGroup>();
    shared_between_threads::<hotrow::CpuScaler>();
    shared_between_threads::<hotrow::GroupConfig>();
    shared_between_threads::<hotrow::Layout>();
    shared_between_threads::<hotrow::Error>();
    shared_between_threads::<hotrow::IoError>();
    shared_between_threads::<hotrow::Snapshot>();
    shared_between_threads::<hotrow::Counters>();
    shared_between_threads::<hotrow::Caps>();
    shared_between_threads::<hotrow::MemoryReport>();
    shared_between_threads::<hotrow::SharedStore>();
    shared_between_threads::<hotrow::RamStore>();
    shared_between_threads::<hotrow::GradientBuffer>();
    shared_between_threads::<robe::Config>();
    shared_between_threads::<robe::RobeSnapshot>();
    shared_between_threads::<robe::Gradient>();
    shared_between_threads::<scars::Planner>();
    shared_between_threads::<simulate::Simulator>();
    #[cfg(feature = "file")]
    shared_between_threads::<hotrow::FileStore>();
    #[cfg(any(unix, windows))]
    shared_between_threads::<hotrow::F32File>();
}
