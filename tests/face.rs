//! Traits that the public types implement.

use hotrow::{robe, scars, simulate};

use crate::public_docs::public_types;

fn shared_between_threads<T: Send + Sync>() {}

/// A trainer may move a group to another thread, and threads may share a group behind a lock. The list passes if it compiles.
#[test]
fn public_types_are_send_and_sync() {
    shared_between_threads::<hotrow::Precision>();
    shared_between_threads::<hotrow::Rounding>();
    shared_between_threads::<hotrow::RandomBits>();
    shared_between_threads::<hotrow::StatePrecision>();
    shared_between_threads::<hotrow::CounterBits>();
    shared_between_threads::<hotrow::Policy>();
    shared_between_threads::<hotrow::Pooling>();
    shared_between_threads::<hotrow::OutOfRange>();
    shared_between_threads::<hotrow::Placement>();
    shared_between_threads::<hotrow::Optimizer>();
    shared_between_threads::<hotrow::OptimizerKind>();
    shared_between_threads::<hotrow::Init>();
    shared_between_threads::<hotrow::GroupConfig>();
    shared_between_threads::<hotrow::IoError>();
    shared_between_threads::<hotrow::Error>();
    shared_between_threads::<hotrow::Calls>();
    shared_between_threads::<hotrow::TableMemory>();
    shared_between_threads::<hotrow::MemoryReport>();
    shared_between_threads::<hotrow::LossScale>();
    shared_between_threads::<hotrow::GradSlice>();
    shared_between_threads::<simulate::SimulatedCounters>();
    shared_between_threads::<simulate::Simulator>();
    shared_between_threads::<hotrow::RankBody>();
    shared_between_threads::<hotrow::AddBody>();
    shared_between_threads::<hotrow::LookupBody>();
    shared_between_threads::<scars::Budget>();
    shared_between_threads::<scars::HotRows>();
    shared_between_threads::<scars::HotBatch<u32>>();
    shared_between_threads::<scars::Samples>();
    shared_between_threads::<scars::HotBatches<std::vec::IntoIter<u32>, fn(&u32) -> bool>>();
    shared_between_threads::<scars::Formula>();
    shared_between_threads::<scars::Planner>();
    shared_between_threads::<scars::Plan>();
    shared_between_threads::<scars::Split>();
    shared_between_threads::<scars::MoreRows>();
    shared_between_threads::<scars::Traffic>();
    shared_between_threads::<scars::PlannedGroup>();
    shared_between_threads::<scars::Pinned>();
    shared_between_threads::<scars::Forecast>();
    shared_between_threads::<scars::Expected>();
    shared_between_threads::<scars::Judgement>();
    shared_between_threads::<scars::Counting>();
    shared_between_threads::<scars::Profile>();
    shared_between_threads::<scars::Ranked>();
    shared_between_threads::<scars::Bin>();
    shared_between_threads::<scars::Skew>();
    shared_between_threads::<robe::Addressing>();
    shared_between_threads::<robe::Backward>();
    shared_between_threads::<robe::Config>();
    shared_between_threads::<robe::Gradient>();
    shared_between_threads::<robe::RobeSnapshot>();
    shared_between_threads::<robe::RobeCounters>();
    shared_between_threads::<robe::fidelity::Bound>();
    shared_between_threads::<robe::fidelity::Fit>();
    shared_between_threads::<robe::fidelity::Row>();
    shared_between_threads::<robe::fidelity::Pair>();
    shared_between_threads::<robe::fidelity::PairErrors>();
    shared_between_threads::<robe::fidelity::Fidelity>();
    shared_between_threads::<robe::fidelity::WantedEps>();
    shared_between_threads::<robe::fidelity::Tried>();
    shared_between_threads::<robe::fidelity::Size>();
    #[cfg(any(unix, windows))]
    shared_between_threads::<hotrow::F32File>();
    shared_between_threads::<simulate::Geometry>();
    shared_between_threads::<simulate::GeometryError>();
    #[cfg(feature = "file")]
    shared_between_threads::<hotrow::FileStore>();
    shared_between_threads::<hotrow::SharedStore>();
    shared_between_threads::<hotrow::RamStore>();
    shared_between_threads::<hotrow::CpuGrid>();
    shared_between_threads::<hotrow::Grid>();
    shared_between_threads::<hotrow::GridBags>();
    shared_between_threads::<hotrow::grid::Bags>();
    shared_between_threads::<hotrow::grid::Config>();
    shared_between_threads::<hotrow::grid::Outside>();
    shared_between_threads::<hotrow::CpuScaler>();
    shared_between_threads::<hotrow::CpuRobeGroup>();
    shared_between_threads::<hotrow::CpuGroup>();
    shared_between_threads::<hotrow::CpuPath>();
    shared_between_threads::<hotrow::adapter::Wanted>();
    shared_between_threads::<hotrow::Scaler>();
    shared_between_threads::<hotrow::Sorter>();
    shared_between_threads::<hotrow::Count>();
    shared_between_threads::<hotrow::SortedPairs>();
    shared_between_threads::<hotrow::Distinct>();
    shared_between_threads::<hotrow::GradientBuffer>();
    shared_between_threads::<hotrow::RobeGroup>();
    shared_between_threads::<hotrow::Batch>();
    shared_between_threads::<hotrow::GradBuffer>();
    shared_between_threads::<hotrow::OutputBuffer>();
    shared_between_threads::<hotrow::Caps>();
    shared_between_threads::<hotrow::Context>();
    shared_between_threads::<hotrow::Shaders>();
    shared_between_threads::<hotrow::ContextOptions>();
    shared_between_threads::<hotrow::Resolution>();
    shared_between_threads::<hotrow::Span>();
    shared_between_threads::<hotrow::TimelineRecord>();
    shared_between_threads::<hotrow::Timeline>();
    shared_between_threads::<hotrow::Group>();
    shared_between_threads::<hotrow::Traffic>();
    shared_between_threads::<hotrow::Reader>();
    shared_between_threads::<hotrow::Feedback>();
    shared_between_threads::<hotrow::FeedbackCounts>();
    shared_between_threads::<hotrow::RowReader>();
    #[cfg(feature = "checkpoint")]
    shared_between_threads::<hotrow::checkpoint::Contents>();
    shared_between_threads::<hotrow::Stripe>();
    shared_between_threads::<hotrow::dist::Phase>();
    shared_between_threads::<hotrow::dist::RankTraffic>();
    shared_between_threads::<hotrow::dist::WireForm>();
    shared_between_threads::<hotrow::dist::WireOptions>();
    #[cfg(feature = "checkpoint")]
    shared_between_threads::<hotrow::dist::Resharded>();
    shared_between_threads::<hotrow::dist::Parcels>();
    shared_between_threads::<hotrow::dist::Ticket>();
    shared_between_threads::<hotrow::dist::Solo>();
    shared_between_threads::<hotrow::dist::Threads>();
    shared_between_threads::<hotrow::dist::Replicated<hotrow::dist::Solo, hotrow::CpuRobeGroup>>();
    shared_between_threads::<hotrow::Counters>();
    shared_between_threads::<hotrow::Layout>();
    shared_between_threads::<hotrow::Part>();
    shared_between_threads::<hotrow::rng::Purpose>();
    shared_between_threads::<hotrow::RowLayout>();
    shared_between_threads::<hotrow::Snapshot>();
    shared_between_threads::<hotrow::ScalerState>();
}

#[test]
fn every_public_type_is_in_the_list() {
    let list = include_str!("face.rs");
    let listed = |name: &str| list.contains(&format!("::{name}>()")) || list.contains(&format!("::{name}<"));
    // `LookupKind` borrows a table of any type, which may be a caller's own and bound to its thread.
    let others = ["LookupKind"];
    let missing = public_types().into_iter().filter(|name| !others.contains(&name.as_str()) && !listed(name));
    let missing: Vec<String> = missing.collect();
    assert_eq!(missing, [""; 0]);
    assert!(!listed("Bare"), "a type that is not in the list is found");
}
