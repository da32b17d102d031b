//! Placement and the number of pieces change no result, only the bus traffic.

use hotrow::internals::Pieces as _;
use hotrow::{
    Bags, Context, Group, GroupConfig, Init, Mode, Optimizer, Placement, Policy, Precision, prelude::*, state::Snapshot,
};

use hotrow_harness::{
    device::{placements, share, spoiled, with_storage_buffers},
    gpu_test, sample,
};

fn run(context: &Context, config: &GroupConfig) -> (Vec<f32>, Snapshot) {
    let mut group = Group::new(context, config.clone()).unwrap();
    let mut outputs = Vec::new();
    for step in 0..4u32 {
        let indices: Vec<u32> = (0..500).map(|i| (i * i * 31 + step * 977) % 3000).collect();
        outputs =
            group.forward(Bags::new(&indices, &(0..=100).map(|bag| bag * 5).collect::<Vec<_>>()), Mode::Train).unwrap();
        group.backward(&outputs).unwrap();
    }
    group.flush().unwrap();
    (outputs, group.snapshot().unwrap())
}

/// A shader that takes a record from the wrong piece, or from the wrong place of the right one, is noticed.
#[gpu_test]
fn a_wrong_piece_is_noticed(context: &Context) {
    let mut several = config().with_precision(Precision::Fp32).with_optimizer(Optimizer::sgd(0.05));
    several.set_piece_bytes(Some(80 * 1500));
    let right = run(context, &several);
    let faults = [
        ("exchange", "return records1[at];", "return records1[at + 1u];"),
        ("exchange", "(record.piece < 1u)", "(record.piece < 2u)"),
        ("update", "records1[at] = words", "records1[at + 1u] = words"),
        ("update", "at - bound * piece.rows_each", "at - bound * (piece.rows_each - 1u)"),
    ];
    for (stage, from, to) in sample(2, faults) {
        let spoiled = spoiled(context, &[stage], |_| true, (from, to));
        assert!(run(&spoiled, &several) != right, "{stage}: {to}");
    }
}

fn config() -> GroupConfig {
    let config = GroupConfig::new(&[3000], 20).with_precision(Precision::Int4).with_cache_rows(300);
    let config = config.with_policy(Policy::Lfu).with_optimizer(Optimizer::adagrad(0.05));
    config.with_init(Init::Uniform { low: -1.0, high: 1.0 })
}

#[gpu_test]
fn every_placement_gives_the_same_bits(context: &Context) {
    let wanted = run(context, &config());
    for placement in placements(context) {
        assert_eq!(run(context, &config().with_placement(placement)), wanted, "{placement:?}");
    }
}

#[gpu_test]
fn any_number_of_pieces_gives_the_same_bits(context: &Context) {
    let one = run(context, &config());
    // From two pieces to more than 64. A device binds as many at once as it has storage buffers for.
    for piece_bytes in share([10_000, 2_000, 64 << 10]) {
        let mut several = config();
        several.set_piece_bytes(Some(piece_bytes));
        let pieces = hotrow::internals::Layout::new(&several, u64::MAX).unwrap().pieces;
        assert!(pieces > 1);
        for context in [context, &with_storage_buffers(8), &with_storage_buffers(9)] {
            let bound = context.caps().storage_buffers - 7;
            assert_eq!(run(context, &several), one, "{pieces} pieces, at most {bound} at once");
        }
    }
    let mut other = config();
    other.seed += 1;
    assert_ne!(run(context, &other), one, "the comparison can fail");
}

#[gpu_test]
fn a_table_larger_than_a_binding(context: &Context) {
    // 205 MB of FP32 records: two pieces on llvmpipe, which binds 128 MiB.
    let config = GroupConfig::new(&[400_000], 128).with_precision(Precision::Fp32);
    let config = config.with_optimizer(Optimizer::sgd(1.0)).with_init(Init::Constant(0.5));
    let mut config = config.with_cache_rows(64);
    if context.caps().choose_piece_bytes() > 200 << 20 {
        config.set_piece_bytes(Some(128 << 20)); // for devices where one binding would hold all records
    }
    let mut group = Group::new(context, config).unwrap();
    assert_eq!(group.layout().pieces, 2);
    let rows = [0, 262_143, 262_144, 262_145, 399_999];
    assert_eq!(group.forward(Bags::new(&rows, &[0, 5]), Mode::Train).unwrap(), [2.5; 128]);
    group.backward(&[0.25; 128]).unwrap();
    group.reset().unwrap();
    assert_eq!(group.read_rows(&rows).unwrap(), [0.25; 5 * 128]);
    assert_eq!(group.read_rows(&[1, 262_142, 300_000]).unwrap(), [0.5; 3 * 128]);
}

#[gpu_test]
fn more_rows_than_a_dimension_has_groups(context: &Context) {
    // A row takes one workgroup in update and write-back: one row fewer than 65,535, as many, and one more.
    for n in [65_534u32, 65_535, 65_536] {
        let config = GroupConfig::new(&[70_000], 1).with_precision(Precision::Fp32);
        let config = config.with_optimizer(Optimizer::sgd(1.0));
        let mut group = Group::new(context, config).unwrap();
        group.forward(Bags::new(&(0..n).collect::<Vec<_>>(), &[0, n]), Mode::Train).unwrap();
        group.backward(&[1.0]).unwrap();
        assert_eq!(group.read_rows(&[0, n - 1, n]).unwrap(), [-1.0, -1.0, 0.0], "{n} rows");
    }
}

/// Auto takes the device if the table fits, else host memory as `Caps` decides, and states the reason.
#[gpu_test]
fn auto_says_where_and_why(context: &Context) {
    let auto = |config: GroupConfig| config.with_placement(Placement::Auto);
    let group = Group::new(context, auto(config())).unwrap();
    assert_eq!(group.placed(), (Placement::Device, "the device has the memory for it"));
    assert_eq!(group.config().placement, Placement::Device);
    let asked = Group::new(context, config().with_placement(Placement::Staged)).unwrap();
    assert_eq!(asked.placed(), (Placement::Staged, "it was asked for"));
    // 86 GB of zeros fit into no device and no host memory, but into a sparse file. Auto takes Staged as soon as there is a store.
    let folder = tempfile::tempdir().unwrap();
    let huge = GroupConfig::new(&[u32::MAX - 1], 40).with_precision(Precision::Int2);
    let store = hotrow::FileStore::create(folder.path().join("table"), &huge).unwrap();
    let group = Group::with_store(context, auto(huge.clone()), hotrow::SharedStore::new(store)).unwrap();
    assert_eq!(group.placed().0, Placement::Staged);
    // Without a store no placement has room, and the error says so.
    let none = Group::new(context, auto(huge));
    assert!(matches!(&none, Err(hotrow::Error::OutOfMemory { what: "records", .. })), "{:?}", none.err());
}
