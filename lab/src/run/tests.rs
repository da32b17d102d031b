use super::*;
use crate::checkpoints;
use crate::device::Device;
use crate::end::{End, Measure};
use crate::hyper::Hyper;
use crate::scaling::Scaling;
use crate::tables::NO_ARRAY;
use crate::task::fingerprint;
use crate::tasks::small;
use hotrow::{LossScale, Policy, Precision, Rounding};
use hotrow_dist::{Comm, Threads, WireForm, WireOptions};
use std::{cell::RefCell, collections::BTreeMap, sync::Mutex};

/// INT4 codes, a cache, and random bits.
const MIXED: Setting = Setting {
    precision: Precision::Int4,
    rounding: Rounding::Stochastic,
    policy: Policy::Lfu,
    cache_percent: 5.0,
    ..Setting::FP32
};

/// An array of INT8 codes, eight times smaller than the table.
const ARRAY: Setting = Setting {
    precision: Precision::Int8,
    rounding: Rounding::Stochastic,
    compression: Some(8.0),
    chunk: 4,
    ..Setting::FP32
};

fn with(change: impl Fn(&mut RunOptions)) -> RunOptions {
    let hyper = Hyper { decay: true, ..Hyper::adagrad(8, 32, 0.02) };
    let mut options = RunOptions { hyper, end: End::Epochs(2), limit: None, device: Device::default() };
    change(&mut options);
    options
}

fn options() -> RunOptions {
    with(|_| {})
}

fn kept(setting: Setting, seed: u64, options: &RunOptions, keep: &Keep) -> anyhow::Result<Outcome> {
    run(&small([610, 200], 1), &[setting; 26], seed, options, keep, &|_| {}, None).map(timeless)
}

/// An outcome without the figures of the clock.
fn timeless(found: Outcome) -> Outcome {
    Outcome {
        seconds: 0.0,
        inferred_per_second: 0.0,
        samples_per_second: 0.0,
        step_seconds: 0.0,
        tables_seconds: 0.0,
        ..found
    }
}

fn trained(setting: Setting, seed: u64, options: &RunOptions) -> Outcome {
    kept(setting, seed, options, &Keep::default()).unwrap()
}

/// Trains over ranks, and returns what each of them has found.
fn over(
    ranks: u32,
    (shards, wire): (u32, WireOptions),
    setting: Setting,
    options: &RunOptions,
    keep: &Keep,
) -> Vec<Result<Outcome, String>> {
    let seen = Mutex::new(BTreeMap::new());
    // If a rank ends with an error while others wait, the job has that error, too.
    let _seen = Threads::run(ranks, |comm: &mut Threads| {
        let (task, rank) = (small([610, 200], 1), comm.rank());
        let comm = RefCell::new(comm as &mut dyn Comm);
        let ranks = Ranks::new(&comm, shards, wire);
        let found = run(&task, &[setting; 26], 3, options, keep, &|_| {}, Some(ranks));
        seen.lock().unwrap().insert(rank, found.map(timeless).map_err(|error| format!("{error:#}")));
        Ok(())
    });
    seen.into_inner().unwrap().into_values().collect()
}

#[test]
fn it_learns_but_not_more_than_there_is() {
    let task = small([8000, 4000], 1);
    let crate::task::Bounds { blind, best, .. } = task.about().bounds.unwrap();
    let trained = |end| {
        let options = with(|options| (options.hyper.batch, options.hyper.decay, options.end) = (64, false, end));
        run(&task, &[Setting::FP32; 26], 1, &options, &Keep::default(), &|_| {}, None).unwrap()
    };
    let found = trained(End::Epochs(1));
    assert!(found.loss < blind - 0.2 * (blind - best) && found.loss > best, "{found:?}, {blind}, {best}");
    assert!(found.auc.unwrap() > 0.6 && found.steps == 125, "{found:?}");
    // Without training the loss does not fall so far. By the clock the first step is always taken.
    let [short, by_clock] = [End::Steps(1), End::Seconds(1e-9)].map(trained);
    assert!(short.loss > blind - 0.2 * (blind - best) && timeless(by_clock) == timeless(short));
    let of = |seed| fingerprint(&small([1500, 500], seed)).unwrap();
    assert!(of(1) == of(1) && of(1) != of(2), "other data of the same size");
}

#[cfg(feature = "gpu")]
#[test]
fn a_run_on_the_device_learns_what_the_processor_does() {
    hotrow_harness::device::with_gpu(|_| {
        let device = Device::open(hotrow_report::options::Backend::Gpu).unwrap();
        let on = |device: &Device, setting, lr| {
            trained(setting, 1, &with(|options| (options.device, options.hyper.lr) = (device.clone(), lr)))
        };
        for setting in [Setting::FP32, MIXED, ARRAY, Setting { mapped: true, ..MIXED }] {
            if setting.mapped && !device.context.as_ref().unwrap().caps().mappable {
                hotrow_harness::device::skipped("mapped rows: the device maps no host memory");
                continue;
            }
            let (found, wanted) = (on(&device, setting, 0.02), on(&Device::default(), setting, 0.02));
            let apart = |other: &Outcome| (found.loss - other.loss).abs();
            // Sums are added in another order; a code of INT4 may round to its neighbour.
            let bound = if setting == Setting::FP32 { 1e-5 } else { 1e-3 };
            assert!(apart(&wanted) < bound, "{setting:?}: {found:?}, {wanted:?}");
            assert_eq!((found.steps, found.hit_rate.is_some()), (wanted.steps, wanted.hit_rate.is_some()));
            let other = on(&Device::default(), setting, 0.2);
            assert!(apart(&other) > bound, "another rate: {setting:?}: {found:?}, {other:?}");
        }
        // Whole pages move, and nothing else differs from rows on the device.
        let paged = on(&device, Setting { pages_percent: 50.0, ..Setting::FP32 }, 0.02);
        let plain = on(&device, Setting::FP32, 0.02);
        assert_eq!(paged.loss, plain.loss);
        let whole = |run: &Outcome| run.bus_bytes > 0 && run.bus_bytes.is_multiple_of(64 << 10);
        assert!(whole(&paged) && !whole(&plain), "{paged:?}, {plain:?}");
    });
}

#[test]
fn a_seed_is_a_run() {
    let (plain, mixed) = (trained(Setting::FP32, 1, &options()), trained(MIXED, 1, &options()));
    assert_eq!((plain.steps, mixed.steps), (40, 40));
    assert_eq!(mixed, trained(MIXED, 1, &options()), "the same bits");
    assert_ne!(mixed.loss, trained(MIXED, 2, &options()).loss);
    assert_ne!(mixed.loss, plain.loss);
    assert!(mixed.hit_rate.unwrap() > 0.0 && plain.hit_rate.is_none());
}

#[test]
fn ranks_change_no_bit() {
    let exact = WireOptions::default();
    let lossy = WireOptions { rows: WireForm::Fp16, gradients: WireForm::Int8, summed: true };
    // Scales that rise until a step overflows.
    let rising = LossScale::Backoff { min: 1.0, max: 2f32.powi(24), factor: 2.0, window: 3 };
    let mut seen = Vec::new();
    for (setting, shards, wire, scale) in [
        (Setting::FP32, 4, exact, None),
        (MIXED, 8, exact, None),
        (MIXED, 8, lossy, None),
        (MIXED, 4, exact, Some(LossScale::LOG_NORMAL)),
        (MIXED, 4, exact, Some(rising)),
    ] {
        let options = with(|options| {
            (options.hyper.batch, options.end) = (33, End::Epochs(2));
            options.hyper.loss_scale = Scaling(scale);
        });
        let over = |ranks, shards| over(ranks, (shards, wire), setting, &options, &Keep::default());
        let alone = over(1, shards).remove(0).unwrap();
        for ranks in [2, 4] {
            assert!(over(ranks, shards).iter().all(|found| found.as_ref() == Ok(&alone)), "{ranks} ranks, {setting:?}");
        }
        // It learns as without ranks, but for roundings; another number of shards rounds otherwise.
        let plain = trained(setting, 3, &options);
        assert!((plain.loss - alone.loss).abs() < 0.02, "{} without ranks, {} with them", plain.loss, alone.loss);
        assert_eq!(plain.steps, alone.steps);
        assert!(over(1, 2).remove(0).unwrap().train_loss != alone.train_loss);
        seen.push((alone.overflows, alone.train_loss));
    }
    assert!(seen[1].1 != seen[2].1, "a lossy wire has other bits");
    assert!(seen[3].0 == Some(0) && seen[4].0 > Some(3), "{seen:?}");
    let refused = over(2, (4, exact), ARRAY, &options(), &Keep::default());
    assert_eq!(refused, [Err(NO_ARRAY.to_owned()), Err(NO_ARRAY.to_owned())]);
}

#[test]
fn a_resumed_run_comes_to_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let keep = |resume| Keep { folder: folder.path().join("run"), every: Some(7), resume };
    let newest = || checkpoints::newest(&folder.path().join("run"), None).unwrap().unwrap().0;
    let whole = trained(MIXED, 3, &options());
    assert_eq!(kept(MIXED, 3, &options(), &keep(false)).unwrap(), whole, "writing checkpoints changes nothing");
    assert_eq!((newest(), std::fs::read_dir(folder.path().join("run")).unwrap().count()), (35, 1));
    // The last five steps are repeated with falling rates; no other checkpoint is due.
    assert_eq!(kept(MIXED, 3, &options(), &keep(true)).unwrap(), whole);
    // Continues from the middle of an epoch, where a smaller number of epochs had stopped the run.
    let steady = |epochs| with(|options| (options.hyper.decay, options.end) = (false, End::Epochs(epochs)));
    kept(MIXED, 3, &steady(1), &keep(false)).unwrap();
    assert_eq!(newest(), 14, "of 20 steps, and the later one of the run before is removed");
    assert_eq!(kept(MIXED, 3, &steady(2), &keep(true)).unwrap(), trained(MIXED, 3, &steady(2)));
    // With a scaled loss the gradients that FP16 lost before the checkpoint count too.
    let scaled = |epochs| {
        let mut options = steady(epochs);
        options.hyper.loss_scale = Scaling(Some(LossScale::Static { scale: 2f32.powi(-10) }));
        options
    };
    kept(MIXED, 3, &scaled(1), &keep(false)).unwrap();
    let whole = trained(MIXED, 3, &scaled(2));
    assert!(whole.lost > Some(0.0), "{whole:?}");
    assert_eq!(kept(MIXED, 3, &scaled(2), &keep(true)).unwrap(), whole);
    // Damaged checkpoints are refused.
    for file in ["dense.safetensors", "group-0.safetensors"] {
        kept(MIXED, 3, &steady(2), &keep(false)).unwrap();
        std::fs::write(folder.path().join("run/step-35").join(file), b"{}").unwrap();
        let error = format!("{:#}", kept(MIXED, 3, &steady(2), &keep(true)).unwrap_err());
        assert!(error.contains("step-35"), "{file}: {error}");
    }
}

#[test]
fn a_loss_that_is_not_finite_stops_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let wild = with(|options| (options.hyper.dense_lr, options.hyper.lr) = (3e38, 1e3));
    let keep = Keep { folder: folder.path().into(), every: Some(1), resume: true };
    let message = || format!("{:#}", kept(Setting::FP32, 0, &wild, &keep).unwrap_err());
    let none = message();
    assert!(none.starts_with("step ") && none.contains(": wanted a finite loss, found "), "{none}");
    assert!(none.ends_with("checkpoint: there is none; train anew with a lower lr or dense-lr"), "{none}");
    // Good steps first, and no bad checkpoint after them.
    kept(Setting::FP32, 0, &with(|options| options.end = End::Epochs(1)), &keep).unwrap();
    assert!(message().contains("step-20; "), "{}", message());
}

#[test]
fn batches_by_heat_have_each_sample_once() {
    let pins = Setting { pinned_percent: 50.0, ..Setting::FP32 };
    let of = |setting, hot| trained(setting, 1, &with(|options| options.hyper.hot_batches = hot));
    let [plain, shuffled, by_heat] = [of(Setting::FP32, false), of(pins, false), of(pins, true)];
    assert_eq!(shuffled.loss, plain.loss, "pins change no value of an FP32 table");
    assert!(shuffled.bus_bytes < plain.bus_bytes && shuffled.hit_rate.unwrap() > 0.5);
    assert!(by_heat.hot_samples.is_some_and(|share| share > 0.0 && share < 1.0), "{by_heat:?}");
    assert!(by_heat.loss != plain.loss && by_heat.steps == plain.steps);
    // A resumed run has the same pins and batches.
    let (folder, options) = (tempfile::tempdir().unwrap(), with(|options| options.hyper.hot_batches = true));
    let keep = |resume| Keep { folder: folder.path().into(), every: Some(13), resume };
    assert_eq!([false, true].map(|resume| kept(pins, 1, &options, &keep(resume)).unwrap()), [by_heat.clone(), by_heat]);
    // The second epoch of 610 samples: hot ones first in batches of 32, at most one batch of both kinds.
    let (task, options) = (small([610, 200], 1), with(|options| options.hyper.hot_batches = true));
    let mut model = Model::new(&task, &[pins; 26], 1, &options, None).unwrap();
    model.steps = 20;
    model.order_by_heat().unwrap();
    let (_, order) = model.order.as_mut().unwrap();
    let mut found = order.samples(0..610);
    let kinds: Vec<usize> = found
        .chunks(32)
        .map(|samples| {
            let batch = task.train_batch(samples, 1, 1).unwrap();
            let hot = |&at: &usize| {
                batch.bags.iter().zip(&model.pins).all(|(bags, pins)| pins.as_ref().unwrap()[bags.indices[at] as usize])
            };
            (0..samples.len()).filter(hot).count()
        })
        .collect();
    let mixed = |&(&hot, size): &(&usize, usize)| hot > 0 && hot < size;
    let sizes = (0..20).map(|at| if at < 19 { 32 } else { 2 });
    assert!(
        kinds.iter().zip(sizes).filter(mixed).count() <= 1 && kinds.iter().sum::<usize>() as u64 == model.hot[1],
        "{kinds:?}"
    );
    found.sort_unstable();
    assert_eq!(found, (0..610).collect::<Vec<u64>>());
}

#[test]
fn a_goal_ends_a_run() {
    let (measure, every, tested, least) = (Measure::Loss, 5, 200, 10);
    let to = |best, most| {
        let end = End::Goal { measure, best, every, tested, least, most };
        trained(Setting::FP32, 1, &with(|options| (options.hyper.decay, options.end) = (false, end)))
    };
    let whole = to(f64::NEG_INFINITY, 40);
    assert_eq!((whole.curve.len(), whole.curve[7]), (8, (40, whole.loss)));
    // The step that reached the goal is the last, but for the least.
    assert_eq!(to(whole.curve[2].1, 40).curve, whole.curve[..3]);
    assert_eq!((to(f64::INFINITY, 40).steps, to(f64::NEG_INFINITY, 15).steps), (10, 15));
}
