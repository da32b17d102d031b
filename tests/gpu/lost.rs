//! A device that is lost before the n-th submission or map of a run, for every n: opened, filled, trained, flushed, saved, trained on, loaded.

use std::{
    cell::RefCell,
    ops::Range,
    path::{Path, PathBuf},
};

use hotrow::{
    Bags, Context, Error, FileStore, Group, GroupConfig, Init, Mode, Optimizer, Placement, Precision, SharedGroup,
    SharedStore, Store, checkpoint, internals::context_to_lose, prelude::*, robe, state::Part,
};
use hotrow_harness::{
    device::{own, with_gpu},
    face::{State, state},
    sample,
    seed::whole,
};

const ROWS: u32 = 90;
/// Steps of the run. It saves after two.
const STEPS: u32 = 3;
/// The gradients are the outputs, so rows of zeros would stay as they are.
const INIT: Init = Init::Uniform { low: -1.0, high: 1.0 };

fn config(placement: Placement) -> GroupConfig {
    GroupConfig::new(&[ROWS], 6)
        .with_precision(Precision::Int8)
        .with_cache_rows(32)
        .with_optimizer(Optimizer::adagrad(0.05))
        .with_init(INIT)
        .with_placement(placement)
}

/// A table, and its store if it is staged.
type Made = Result<(Box<dyn Lookup>, Option<SharedStore>), Error>;

/// The files of a run, and how its table is made.
struct Place<'a> {
    folder: &'a Path,
    make: &'a dyn Fn(&Context, &Path) -> Made,
    store: RefCell<Option<SharedStore>>,
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

/// A staged table is in a file. Whatever was there before is overwritten by the checkpoint, or by the first fill.
fn rows(context: &Context, placement: Placement, path: &Path) -> Made {
    let config = config(placement);
    if placement != Placement::Staged {
        return Ok((Box::new(Group::new(context, config)?), None));
    }
    let _ = std::fs::remove_file(path);
    let store = SharedStore::new(FileStore::create(path, &config)?);
    Ok((Box::new(Group::with_store(context, config, store.clone())?), Some(store)))
}

fn array(context: &Context, backward: robe::Backward) -> Made {
    let config = robe::Config::new(&[ROWS], 6, 5000, 3).with_precision(Precision::Int8).with_backward(backward);
    let config = config.with_optimizer(Optimizer::adagrad(0.05)).with_init(INIT);
    Ok((Box::new(SharedGroup::new(context, config)?), None))
}

impl Place<'_> {
    fn table(&self, context: &Context) -> Result<Box<dyn Lookup>, Error> {
        drop(self.store.take());
        let (table, store) = (self.make)(context, &self.folder.join("table"))?;
        *self.store.borrow_mut() = store;
        self.note();
        Ok(table)
    }

    fn saved(&self) -> PathBuf {
        self.folder.join("checkpoint")
    }

    fn train(&self, table: &mut dyn Lookup, steps: Range<u32>) -> Result<(), Error> {
        for step in steps {
            let (indices, offsets) = batch(step);
            let outputs = match table.as_embedding() {
                Some(group) if step % 2 == 1 => {
                    group.prefetch(Bags::new(&indices, &offsets))?;
                    group.forward_prefetched()?
                }
                _ => table.forward(Bags::new(&indices, &offsets), Mode::Train)?,
            };
            table.backward(&outputs)?;
            if step == 1 {
                self.flush(table)?;
                checkpoint::save_lookup(table, self.saved())?;
            }
        }
        self.flush(table)
    }

    /// The whole run. Returns what the table holds at the end.
    fn run(&self, table: &mut dyn Lookup) -> Result<State, Error> {
        self.train(table, 0..STEPS)?;
        self.go_on(table)
    }

    fn go_on(&self, table: &mut dyn Lookup) -> Result<State, Error> {
        checkpoint::load_lookup(table, self.saved())?;
        self.train(table, 2..STEPS)?;
        table.read_rows(&[1, 50])?;
        state(table)
    }

    /// A table file that counts as flushed has the rows of the step that it names. A copy is looked at, since the group still holds the file.
    fn check_file(&self) {
        let (file, copy) = (self.folder.join("table"), self.folder.join("copy"));
        if self.store.borrow().is_some() && std::fs::copy(file, &copy).is_ok() {
            let store = FileStore::open(&copy, &config(Placement::Staged)).unwrap();
            let known = !store.was_flushed() || self.tables.borrow().contains(&table(&store));
            assert!(known, "a file that counts as flushed has other rows than its step");
        }
    }

    fn flush(&self, table: &mut dyn Lookup) -> Result<(), Error> {
        if let Some(group) = table.as_embedding() {
            group.flush()?;
        }
        self.note();
        Ok(())
    }

    fn note(&self) {
        if let Some(store) = self.store.borrow().as_ref().filter(|_| self.notes) {
            self.tables.borrow_mut().push(store.with(table));
        }
    }

    /// A run that the `moment`-th submission or map ends. Returns whether it did.
    fn disturbed(&self, context: &Context, moment: u64, wanted: &State) -> bool {
        let _ = std::fs::remove_file(self.saved());
        let done = self.table(&to_lose(moment)).and_then(|mut table| {
            let done = self.run(&mut *table);
            if done.is_err() {
                self.check_file();
                let kept = std::fs::read(self.saved()).ok();
                every_call(&mut *table, &self.saved(), wanted);
                assert!(kept == std::fs::read(self.saved()).ok(), "a lost device changed the checkpoint");
            }
            done
        });
        if let Ok(found) = done {
            assert!(found == *wanted);
            return false;
        }
        is_lost("the run", done);
        // A new device goes on from the last checkpoint, or begins anew.
        let mut table = self.table(context).unwrap();
        if self.saved().exists() {
            assert!(self.go_on(&mut *table).unwrap() == *wanted, "another end after moment {moment} and a load");
        }
        true
    }
}

fn is_lost<T: std::fmt::Debug>(call: &str, found: Result<T, Error>) {
    let Err(error) = found else { panic!("{call}: wanted an error, found {found:?}") };
    let text = error.to_string();
    assert!(matches!(error, Error::Device { .. }) && text.contains("device lost"), "{call}: {text}");
    assert!(text.contains("load the last checkpoint"), "{call}: {text}");
}

/// Every call to a table whose device is lost.
fn every_call(table: &mut dyn Lookup, saved: &Path, whole: &State) {
    let (indices, offsets) = batch(9);
    let grads = vec![0.5; 60];
    is_lost("backward", table.backward(&grads));
    is_lost("forward", table.forward(Bags::new(&indices, &offsets), Mode::Train));
    is_lost("frozen forward", table.forward(Bags::new(&indices, &offsets), Mode::Frozen));
    is_lost("read_rows", table.read_rows(&[1, 50]));
    is_lost("counters", table.counters());
    is_lost("snapshot", state(table));
    // The file of an array is read first.
    let mut loads = saved.exists();
    match (table.as_embedding(), whole) {
        (None, State::Array(whole)) => {
            is_lost("weight_gradient", table.weight_gradient(Bags::new(&indices, &offsets), &grads));
            is_lost("restore", table.as_shared_array().unwrap().restore(whole));
        }
        (Some(group), _) => {
            let mut counters = vec![0; Part::Counters.words(group.config(), group.layout()) as usize];
            is_lost("prefetch", group.prefetch(Bags::new(&indices, &offsets)));
            is_lost("forward_prefetched", group.forward_prefetched());
            is_lost("flush", group.flush());
            is_lost("reset", group.reset());
            is_lost("write_rows", group.write_rows(&[1], &[0.0; 6]));
            is_lost("pin", group.pin(&[1], 1));
            is_lost("resize_cache", group.resize_cache(64));
            is_lost("read_part", group.read_part(Part::Counters, 0, &mut counters));
            is_lost("write_part", group.write_part(Part::Counters, 0, &counters));
            loads = true;
        }
        _ => unreachable!("another kind of table"),
    }
    is_lost("save", checkpoint::save_lookup(table, saved));
    if loads {
        is_lost("load", checkpoint::load_lookup(table, saved));
    }
    is_lost("save again", checkpoint::save_lookup(table, saved));
}

/// A context on a device of its own, which is lost before the `moment`-th submission or map. It lacks the pipelines that the run does not use.
fn to_lose(moment: u64) -> Context {
    let (device, queue) = own(wgpu::Features::all(), None);
    context_to_lose(&device, &queue, moment).unwrap()
}

/// Loses the device at a sample of the moments, one after another, until the run no longer reaches it.
fn every_moment(make: &dyn Fn(&Context, &Path) -> Made) {
    with_gpu(|context| {
        let folder = tempfile::tempdir().unwrap();
        let (store, tables) = (RefCell::default(), RefCell::default());
        let mut place = Place { folder: folder.path(), make, store, tables, notes: true };
        let wanted = place.table(context).and_then(|mut table| place.run(&mut *table)).unwrap();
        place.notes = false;
        let faults = sample(16, 1..).take_while(|&moment| place.disturbed(context, moment, &wanted)).count();
        eprintln!("{faults} losses");
        // A run of an array has 20 moments, of which a sample may have the first alone.
        assert!(faults > if whole() { 6 } else { 0 }, "{faults}");
    });
}

#[test]
fn every_loss_is_named_and_a_load_goes_on_device() {
    every_moment(&|context, path| rows(context, Placement::Device, path));
}

#[test]
fn every_loss_is_named_and_a_load_goes_on_staged() {
    every_moment(&|context, path| rows(context, Placement::Staged, path));
}

#[test]
fn every_loss_is_named_and_a_load_goes_on_mapped() {
    every_moment(&|context, path| rows(context, Placement::Mapped, path));
}

/// Parameter-shared tables have no cache, so that nothing is flushed.
#[test]
fn every_loss_is_named_and_a_load_goes_on_dense() {
    every_moment(&|context, _| array(context, robe::Backward::Dense));
}

#[test]
fn every_loss_is_named_and_a_load_goes_on_sparse() {
    every_moment(&|context, _| array(context, robe::Backward::Sparse));
}
