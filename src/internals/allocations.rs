//! Each allocation of a scenario fails once, on the CPU and on the GPU. The call that needed it says so, and a second call goes on to the bits
//! of an undisturbed run.

use std::{io::Write as _, path::PathBuf};

use crate::{
    checkpoint,
    config::{GroupConfig, Init, Optimizer, Placement, Policy, Precision},
    cpu::{cached::group::CpuGroup, robe::CpuSharedGroup},
    error::Error,
    gpu::{adapter, cached::group::Group, engine::context::Context},
    host::alloc::fault,
    lookup::{Embedding, Lookup},
    robe,
    table::{batch::Bags, params::Mode},
};

/// A run under way: its table, once it is open, and the outputs so far.
struct Run {
    table: Option<Box<dyn Lookup>>,
    outputs: Vec<u32>,
    file: PathBuf,
}

type Open = dyn Fn() -> Result<Box<dyn Lookup>, Error>;
type Call = Box<dyn Fn(&mut Run) -> Result<(), Error>>;

fn rows(run: &mut Run) -> Option<&mut dyn Embedding> {
    run.table.as_mut().unwrap().as_embedding()
}

/// A group that has a cache gets a larger one.
fn resize(group: &mut dyn Embedding) -> Result<(), Error> {
    if group.layout().sets == 0 { Ok(()) } else { group.resize_cache(64).map(drop) }
}

/// Open, fill, train, pin, prefetch, resize, flush, save, load: one call each.
fn calls(open: &'static Open) -> Vec<Call> {
    let offsets = [0, 30, 60, 90];
    let batch = |k: u32| (0..90).map(|i: u32| (i * i * (k + 3) + 7 * i) % 100).collect::<Vec<u32>>();
    let forward = |k: u32| -> Call {
        Box::new(move |run| {
            let found = run.table.as_mut().unwrap().forward(Bags::new(&batch(k), &offsets), Mode::Train)?;
            run.outputs.extend(found.iter().map(|value| value.to_bits()));
            Ok(())
        })
    };
    let backward = |_| -> Call { Box::new(|run| run.table.as_mut().unwrap().backward(&[0.25; 12])) };
    let of_rows = |call: fn(&mut dyn Embedding) -> Result<(), Error>| -> Call {
        Box::new(move |run| rows(run).map_or(Ok(()), call))
    };
    let mut calls: Vec<Call> = vec![Box::new(|run| {
        run.table = Some(open()?);
        Ok(())
    })];
    calls.push(of_rows(|group| group.write_rows(&[1, 50, 99], &[0.5; 12])));
    for k in 0..3 {
        calls.extend([forward(k), backward(k)]);
    }
    calls.push(of_rows(|group| if group.layout().sets == 0 { Ok(()) } else { group.pin(&[3, 7, 11], 4).map(drop) }));
    calls.extend([forward(3), backward(3)]);
    calls.push(of_rows(resize));
    calls.extend([forward(4), of_rows(|group| group.prefetch(Bags::new(&[5, 6, 7, 8], &[0, 2, 3, 4]))), backward(4)]);
    calls.push(Box::new(|run| {
        let Some(group) = rows(run) else { return Ok(()) };
        let found = group.forward_prefetched()?;
        run.outputs.extend(found.iter().map(|value| value.to_bits()));
        Ok(())
    }));
    calls.push(Box::new(
        |run| if rows(run).is_some() { run.table.as_mut().unwrap().backward(&[0.5; 12]) } else { Ok(()) },
    ));
    calls.push(of_rows(|group| group.flush()));
    calls.push(Box::new(|run| checkpoint::save_lookup(&mut **run.table.as_mut().unwrap(), &run.file)));
    calls.push(Box::new(|run| {
        let mut loaded = open()?;
        if let Some(group) = loaded.as_embedding() {
            resize(group)?;
        }
        checkpoint::load_lookup(&mut *loaded, &run.file)?;
        run.table = Some(loaded);
        Ok(())
    }));
    calls.extend([forward(5), backward(5)]);
    calls.push(Box::new(|run| {
        let found = run.table.as_mut().unwrap().read_rows(&Vec::from_iter(0..100))?;
        run.outputs.extend(found.iter().map(|value| value.to_bits()));
        Ok(())
    }));
    calls
}

/// Runs the scenario with the allocation after the first `n` failing. A call that fails is repeated, or left out. Returns the outputs and
/// whether an allocation failed.
fn run(open: &'static Open, n: u64, repeat: bool) -> Result<(Vec<u32>, bool), Error> {
    let folder = tempfile::tempdir().unwrap();
    let mut run = Run { table: None, outputs: Vec::new(), file: folder.path().join("table") };
    fault::after(n);
    for call in calls(open) {
        match call(&mut run) {
            Err(Error::OutOfMemory { .. }) if repeat => call(&mut run)?,
            // A backward is refused where its forward was left out.
            Err(Error::OutOfMemory { .. } | Error::Order { .. }) if !repeat => {}
            done => done?,
        }
    }
    let failed = !fault::withdraw();
    Ok((run.outputs, failed))
}

/// Returns the number of allocations that failed, one in each run.
fn every_allocation(open: &'static Open) -> u64 {
    let (wanted, failed) = run(open, u64::MAX, true).unwrap();
    assert!(!failed && !wanted.is_empty());
    for n in 0.. {
        let (found, failed) = run(open, n, true).unwrap_or_else(|error| panic!("allocation {n}: {error}"));
        assert!(found == wanted, "allocation {n}: other bits");
        if !failed {
            return n;
        }
    }
    unreachable!()
}

fn config() -> GroupConfig {
    let config = GroupConfig::new(&[100], 4).with_cache_rows(32).with_init(Init::Uniform { low: -1.0, high: 1.0 });
    config.with_optimizer(Optimizer::adagrad(0.1))
}

#[test]
fn cached_groups_go_on() {
    let lfu: &'static Open = &|| {
        let config = config().with_precision(Precision::Int8).with_policy(Policy::Lfu);
        Ok(Box::new(CpuGroup::new(config)?))
    };
    let plain: &'static Open = &|| Ok(Box::new(CpuGroup::new(config().with_cache_rows(0))?));
    for open in [lfu, plain] {
        let failed = every_allocation(open);
        println!("{failed} allocations failed, one in each run");
        assert!(failed > 20, "{failed}");
    }
}

/// Groups on the GPU allocate on the host, too: lists, records, staging. The thread that gathers a staged table's rows is not reached.
#[test]
fn groups_on_the_gpu_go_on() {
    let mode = std::env::var("HOTROW_TEST_GPU").unwrap_or_else(|_| "allow".into());
    let opened = match mode.as_str() {
        "off" | "lanes" => Err(format!("HOTROW_TEST_GPU={mode}")),
        _ => match adapter::open_best() {
            Err(error @ Error::Unsupported { what: "gpu", .. }) if mode == "allow" => Err(error.to_string()),
            opened => Ok(opened.unwrap()),
        },
    };
    let context: &'static Context = match opened {
        Ok(context) => Box::leak(Box::new(context)),
        // Past the test runner, which keeps the output of a test that passes.
        Err(why) => return writeln!(std::io::stderr(), "SKIPPED: failed allocations on the GPU: {why}").unwrap(),
    };
    for placement in [Placement::Device, Placement::Mapped, Placement::Staged] {
        let open: &'static Open = Box::leak(Box::new(move || -> Result<Box<dyn Lookup>, Error> {
            let config = config().with_precision(Precision::Int8).with_placement(placement);
            Ok(Box::new(Group::new(context, config)?))
        }));
        let failed = every_allocation(open);
        println!("{placement:?}: {failed} allocations failed, one in each run");
        assert!(failed > 10, "{placement:?}: {failed}");
    }
}

#[test]
fn shared_arrays_go_on() {
    let array: &'static Open = &|| {
        let config = robe::Config::new(&[100], 4, 64, 4).with_optimizer(Optimizer::adagrad(0.1));
        Ok(Box::new(CpuSharedGroup::new(config.with_precision(Precision::Int8))?))
    };
    let failed = every_allocation(array);
    println!("{failed} allocations failed, one in each run");
    assert!(failed > 10, "{failed}");
}

/// A call that is left out after its error changes the bits: the comparison can fail.
#[test]
fn a_call_that_is_not_repeated_is_noticed() {
    let open: &'static Open = &|| Ok(Box::new(CpuGroup::new(config())?));
    let (wanted, _) = run(open, u64::MAX, true).unwrap();
    let others =
        (8..120).filter_map(|n| run(open, n, false).ok()).filter(|(found, failed)| *failed && *found != wanted);
    let others = others.count();
    assert!(others > 5, "{others}");
}
