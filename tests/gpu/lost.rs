//! A device that is lost before the n-th submission or map of a run, for every n: opened, filled, trained, flushed, saved, trained on, loaded.

use std::{cell::RefCell, ops::Range, path::Path};

use hotrow::{
    Context, Error, FileStore, Group, GroupConfig, Layout, Optimizer, Part, Placement, Precision, SharedStore,
    Snapshot, Store, checkpoint, internals::context_to_lose, prelude::*,
};
use hotrow_harness::{
    device::{own, with_gpu},
    sample,
    seed::whole,
};

const ROWS: u32 = 90;
/// Steps of the run. It saves after two.
const STEPS: u32 = 3;

fn config(placement: Placement) -> GroupConfig {
    GroupConfig::new(&[ROWS], 6)
        .with_precision(Precision::Int8)
        .with_cache_rows(32)
        .with_optimizer(Optimizer::adagrad(0.05))
        .with_placement(placement)
}

/// The files of a run.
struct Place<'a> {
    folder: &'a Path,
    placement: Placement,
    /// The table in the file after each flush of the undisturbed run.
    tables: RefCell<Vec<Table>>,
    notes: bool,
}

/// The records of a table file, and the step that it names.
type Table = (u32, Vec<u8>);

fn table(store: &dyn Store) -> Table {
    let mut all = vec![0; ROWS as usize * store.stride() as usize];
    store.read_range(0, &mut all).unwrap();
    (store.step(), all)
}

fn batch(step: u32) -> (Vec<u32>, Vec<u32>) {
    ((0..40).map(|i| (i * i * 31 + step * 97) % ROWS).collect(), (0..=10).map(|bag| bag * 4).collect())
}

impl Place<'_> {
    /// Whatever was there before is overwritten by the checkpoint, or by the first fill.
    fn group(&self, context: &Context) -> Result<Group, Error> {
        let config = config(self.placement);
        if self.placement != Placement::Staged {
            return Group::new(context, config);
        }
        let path = self.folder.join("table");
        let _ = std::fs::remove_file(&path);
        Group::with_store(context, config.clone(), SharedStore::new(FileStore::create(path, &config)?))
    }

    fn saved(&self) -> std::path::PathBuf {
        self.folder.join("checkpoint")
    }

    fn train(&self, group: &mut Group, steps: Range<u32>) -> Result<(), Error> {
        for step in steps {
            let (indices, offsets) = batch(step);
            let outputs = if step % 2 == 1 {
                group.prefetch(&indices, &offsets, None)?;
                group.forward_prefetched()?
            } else {
                group.forward(&indices, &offsets, None)?
            };
            group.backward(&outputs)?;
            if step == 1 {
                self.flush(group)?;
                checkpoint::save(group, self.saved())?;
            }
        }
        self.flush(group)
    }

    /// The whole run. Returns what the group holds at the end.
    fn run(&self, group: &mut Group) -> Result<Snapshot, Error> {
        self.train(group, 0..STEPS)?;
        checkpoint::load(group, self.saved())?;
        self.train(group, 2..STEPS)?;
        group.snapshot()
    }

    /// The table in the file, if the file counts as flushed.
    fn file(&self) -> Option<Table> {
        let store = FileStore::open(self.folder.join("table"), &config(self.placement)).ok()?;
        store.was_flushed().then(|| table(&store))
    }

    fn flush(&self, group: &mut Group) -> Result<(), Error> {
        group.flush()?;
        if let Some(store) = group.store().filter(|_| self.notes) {
            self.tables.borrow_mut().push(store.with(table));
        }
        Ok(())
    }
}

fn is_lost<T: std::fmt::Debug>(call: &str, found: Result<T, Error>) {
    let Err(error) = found else { panic!("{call}: wanted an error, found {found:?}") };
    let text = error.to_string();
    assert!(matches!(error, Error::Device { .. }) && text.contains("device lost"), "{call}: {text}");
    assert!(text.contains("load the last checkpoint"), "{call}: {text}");
}

/// Every call to a group whose device is lost.
fn every_call(group: &mut Group, place: &Place<'_>) {
    let (indices, offsets) = batch(9);
    let outputs = vec![0.5; 60];
    type Call<'c> = (&'static str, Box<dyn FnOnce(&mut Group) -> Result<(), Error> + 'c>);
    let config = group.config().clone();
    let words = |part: Part| vec![0; part.words(&config, &Layout::new(&config, u64::MAX).unwrap()) as usize];
    let calls: Vec<Call<'_>> = vec![
        ("backward", Box::new(|group| group.backward(&outputs))),
        ("forward", Box::new(|group| group.forward(&indices, &offsets, None).map(drop))),
        ("forward_frozen", Box::new(|group| group.forward_frozen(&indices, &offsets, None).map(drop))),
        ("prefetch", Box::new(|group| group.prefetch(&indices, &offsets, None))),
        ("forward_prefetched", Box::new(|group| group.forward_prefetched().map(drop))),
        ("flush", Box::new(Group::flush)),
        ("reset", Box::new(Group::reset)),
        ("read_rows", Box::new(|group| group.read_rows(&[1, 50]).map(drop))),
        ("write_rows", Box::new(|group| group.write_rows(&[1], &[0.0; 6]))),
        ("pin", Box::new(|group| group.pin(&[1], 1).map(drop))),
        ("resize_cache", Box::new(|group| group.resize_cache(64).map(drop))),
        ("counters", Box::new(|group| group.counters().map(drop))),
        ("snapshot", Box::new(|group| group.snapshot().map(drop))),
        ("read_part", Box::new(|group| group.read_part(Part::Counters, 0, &mut words(Part::Counters)))),
        ("write_part", Box::new(|group| group.write_part(Part::Counters, 0, &words(Part::Counters)))),
        ("save", Box::new(|group| checkpoint::save(group, place.saved()))),
        ("load", Box::new(|group| checkpoint::load(group, place.saved()))),
        ("save again", Box::new(|group| checkpoint::save(group, place.saved()))),
    ];
    for (name, call) in calls {
        is_lost(name, call(group));
    }
}

/// A context on a device of its own, which is lost before the `moment`-th submission or map. It lacks the pipelines that the run does not use.
fn to_lose(moment: u64) -> Context {
    let (device, queue) = own(wgpu::Features::all(), None);
    context_to_lose(&device, &queue, moment).unwrap()
}

/// A kind of table: how one is made, the run, every call once the device is lost, and a run that goes on from the checkpoint.
struct Kind<'k, G, S> {
    saved: &'k Path,
    make: &'k dyn Fn(&Context) -> Result<G, Error>,
    run: &'k dyn Fn(&mut G) -> Result<S, Error>,
    every_call: &'k dyn Fn(&mut G),
    go_on: &'k dyn Fn(&mut G) -> Result<S, Error>,
}

impl<G, S: PartialEq + std::fmt::Debug> Kind<'_, G, S> {
    /// A run that the `moment`-th submission or map ends. Returns whether it did.
    fn disturbed(&self, context: &Context, moment: u64, wanted: &S) -> bool {
        let _ = std::fs::remove_file(self.saved);
        let done = (self.make)(&to_lose(moment)).and_then(|mut group| {
            let done = (self.run)(&mut group);
            if done.is_err() {
                let kept = std::fs::read(self.saved).ok();
                (self.every_call)(&mut group);
                assert!(kept == std::fs::read(self.saved).ok(), "a lost device changed the checkpoint");
            }
            done
        });
        if let Ok(found) = done {
            assert!(found == *wanted);
            return false;
        }
        is_lost("the run", done);
        // A new device goes on from the last checkpoint, or begins anew.
        let mut group = (self.make)(context).unwrap();
        if self.saved.exists() {
            assert!((self.go_on)(&mut group).unwrap() == *wanted, "another end after moment {moment} and a load");
        }
        true
    }
}

fn every_moment(placement: Placement) {
    with_gpu(|context| {
        let folder = tempfile::tempdir().unwrap();
        let mut place = Place { folder: folder.path(), placement, tables: RefCell::default(), notes: true };
        let mut group = place.group(context).unwrap();
        place.tables.borrow_mut().extend(group.store().map(|store| store.with(table)));
        let wanted = place.run(&mut group).unwrap();
        place.notes = false;
        drop(group);
        let saved = place.saved();
        let kind = Kind {
            saved: &saved,
            make: &|context| {
                let known = |table| place.tables.borrow().contains(&table);
                assert!(place.file().is_none_or(known), "a file that counts as flushed has other rows than its step");
                place.group(context)
            },
            run: &|group| place.run(group),
            every_call: &|group| every_call(group, &place),
            go_on: &|group| {
                checkpoint::load(group, place.saved())?;
                place.train(group, 2..STEPS)?;
                group.snapshot()
            },
        };
        until_undisturbed(|moment| kind.disturbed(context, moment, &wanted));
    });
}

/// Calls `disturbed` for a sample of the moments, one after another, until the run no longer reaches it.
fn until_undisturbed(mut disturbed: impl FnMut(u64) -> bool) {
    let faults = sample(16, 1..).take_while(|&moment| disturbed(moment)).count();
    eprintln!("{faults} losses");
    // A run of an array has 19 moments, of which a sample may have the first alone.
    assert!(faults > if whole() { 6 } else { 0 }, "{faults}");
}

#[test]
fn every_loss_is_named_and_a_load_goes_on_device() {
    every_moment(Placement::Device);
}

#[test]
fn every_loss_is_named_and_a_load_goes_on_staged() {
    every_moment(Placement::Staged);
}

#[test]
fn every_loss_is_named_and_a_load_goes_on_mapped() {
    every_moment(Placement::Mapped);
}

/// Parameter-shared tables. They have no cache, so that nothing is flushed.
mod shared {
    use hotrow::{SharedGroup, prelude::*, robe};

    use super::*;

    fn train(group: &mut SharedGroup, steps: Range<u32>, saved: &Path) -> Result<(), Error> {
        for step in steps {
            let (indices, offsets) = batch(step);
            let outputs = group.forward(&indices, &offsets, None)?;
            group.backward(&outputs)?;
            if step == 1 {
                checkpoint::save_lookup(group, saved)?;
            }
        }
        Ok(())
    }

    fn run(group: &mut SharedGroup, saved: &Path) -> Result<robe::RobeSnapshot, Error> {
        train(group, 0..STEPS, saved)?;
        checkpoint::load_lookup(group, saved)?;
        train(group, 2..STEPS, saved)?;
        group.read_rows(&[1, 50])?;
        group.snapshot()
    }

    /// Every call to a group whose device is lost.
    fn every_call(group: &mut SharedGroup, saved: &Path, whole: &robe::RobeSnapshot) {
        let (indices, offsets) = batch(9);
        let grads = vec![0.5; 60];
        is_lost("backward", group.backward(&grads));
        is_lost("forward", group.forward(&indices, &offsets, None));
        is_lost("forward_frozen", group.forward_frozen(&indices, &offsets, None));
        is_lost("weight_gradient", group.weight_gradient(&indices, &offsets, &grads));
        is_lost("read_rows", group.read_rows(&[1, 50]));
        is_lost("counters", group.counters());
        is_lost("snapshot", group.snapshot());
        is_lost("restore", group.restore(whole));
        is_lost("save", checkpoint::save_lookup(group, saved));
        // The file is read first.
        if saved.exists() {
            is_lost("load", checkpoint::load_lookup(group, saved));
        }
        is_lost("save again", checkpoint::save_lookup(group, saved));
    }

    fn every_moment(backward: robe::Backward) {
        with_gpu(|context| {
            let folder = tempfile::tempdir().unwrap();
            let saved = folder.path().join("checkpoint");
            let config = robe::Config::new(&[ROWS], 6, 5000, 3)
                .with_precision(Precision::Int8)
                .with_optimizer(Optimizer::adagrad(0.05))
                .with_backward(backward);
            let mut group = SharedGroup::new(context, config.clone()).unwrap();
            let wanted = run(&mut group, &saved).unwrap();
            drop(group);
            let kind = Kind {
                saved: &saved,
                make: &|context| SharedGroup::new(context, config.clone()),
                run: &|group| run(group, &saved),
                every_call: &|group| every_call(group, &saved, &wanted),
                go_on: &|group| {
                    checkpoint::load_lookup(group, &saved)?;
                    train(group, 2..STEPS, &saved)?;
                    group.snapshot()
                },
            };
            until_undisturbed(|moment| kind.disturbed(context, moment, &wanted));
        });
    }

    #[test]
    fn every_loss_is_named_and_a_load_goes_on_dense() {
        every_moment(robe::Backward::Dense);
    }

    #[test]
    fn every_loss_is_named_and_a_load_goes_on_sparse() {
        every_moment(robe::Backward::Sparse);
    }
}
