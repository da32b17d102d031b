//! Every stage on the lane executor (`wgsl-lanes`): whole runs against the CPU, and the tests of `stages/mod.rs`; and mutants of every kernel over the same
//! inputs. Needs no GPU.
//!
//! A run of everything (`scripts/lanes`, which sets `HOTROW_TEST_SHARE=1`) takes all sizes of subgroups and all orders, prints the table, and keeps in
//! `lanes.txt` a hash of each kernel's texts. Any other takes whole runs of one seed on one device, and the mutants of kernels whose texts have changed
//! since, for 15 seconds at most.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use hotrow::internals::shader::{self, Bodies, Sizes};
use hotrow::internals::{self, Pieces as _};
use hotrow::internals::{Layout, hash::Spread};
use hotrow::{Bags, Group, GroupConfig, Init, Mode, Optimizer, Precision, prelude::*, state::Snapshot};
use hotrow_harness::{
    device::{instead, tell},
    lanes::known::{KNOWN, REDUNDANT, UNNOTICED, known, redundant},
    lanes::{self, runs},
    seed::{hash, seed_for, whole},
};
use rand::{RngExt as _, SeedableRng as _};
use rand_distr::Distribution as _;
use rand_pcg::Pcg64;
use wgsl_lanes::{Config, Counts, Finding, Findings, Kind, Mutant, Options, Order, Report, Tally, hunt};

use crate::stages;

/// A device to run on: its subgroups, whether it has their operations, the order, and the number of recorded dispatches of each text.
fn device(subgroup: u32, subgroups: bool, order: Order, record: usize) -> Config {
    let options = Options { subgroup, order, ..Options::default() };
    Config { options, subgroups, record, findings: Findings::Keep, ..lanes::config() }
}

fn devices() -> Vec<Config> {
    let mut devices = vec![device(16, false, Order::Random, 80), device(32, true, Order::Random, 80)];
    devices.push(device(64, true, Order::Random, 80));
    devices.extend([4, 8, 32, 64].map(|width| device(width, false, Order::Random, 0)));
    for order in [Order::Ascending, Order::Descending] {
        devices.extend([device(8, false, order, 0), device(32, true, order, 0)]);
    }
    let twice = |subgroup, subgroups| Config { twice: true, ..device(subgroup, subgroups, Order::Random, 0) };
    devices.extend([twice(16, false), twice(32, true)]);
    devices.push(Config { float_atomics: true, ..device(32, true, Order::Random, 0) });
    devices
}

/// What all devices gave.
#[derive(Default)]
struct Sum {
    report: Report,
    tally: Tally,
}

/// Runs the tests of single stages, and whole runs with some seeds, on a device.
fn run(config: &Config, sum: &Mutex<Sum>) {
    let start = Instant::now();
    let (context, world) = runs::context(config);
    instead(&context, || {
        for seed in 0..12 {
            runs::all(&context, seed);
        }
        for (_, test) in stages::ALL {
            test();
        }
    });
    let (ran, start) = (start.elapsed(), Instant::now());
    let report = world.take_report();
    // Not of the tests' own shaders.
    let kernels = texts();
    let tally = hunt(&world.take_recorded(), &config.options, None, 0, |mutant| kernels.contains_key(&*mutant.kernel));
    let (found, mutants) = tally.count(&Kind::STRICT);
    let mut sum = sum.lock().unwrap();
    let Config { options, subgroups, twice, .. } = config;
    eprintln!(
        "subgroups of {:2}, operations {subgroups}, {:?}, twice {twice}: {} dispatches, {} findings, {ran:.0?}; \
         {found} of {mutants} mutants, {:.0?}",
        options.subgroup,
        options.order,
        report.counts.values().map(|counts| counts.dispatches).sum::<u64>(),
        report.findings.len(),
        start.elapsed(),
    );
    for finding in report.findings {
        sum.report.add(finding);
    }
    for (kernel, counts) in &report.counts {
        sum.report.counts.entry(kernel.clone()).or_default().add(counts);
    }
    sum.tally.merge(tally);
}

/// A hash of each kernel's texts, of all variants.
fn texts() -> BTreeMap<&'static str, u64> {
    let mut all: BTreeMap<&str, String> = BTreeMap::new();
    for source in internals::sources() {
        all.entry(source.name).or_default().push_str(&source.wgsl);
    }
    all.into_iter().map(|(kernel, text)| (kernel, hash(&text))).collect()
}

/// The kernels whose texts are not those of the last run of everything.
fn changed() -> BTreeSet<&'static str> {
    let kept: BTreeSet<&str> = include_str!("lanes.txt").lines().collect();
    let known = |kernel: &str, hash: u64| kept.contains(&*format!("{kernel} {hash:016x}"));
    texts().into_iter().filter(|&(kernel, hash)| !known(kernel, hash)).map(|(kernel, _)| kernel).collect()
}

#[test]
fn every_stage_and_its_mutants() {
    if whole() {
        everything();
    } else {
        some(Some(Duration::from_secs(12)), &changed());
    }
}

/// Fails at a finding that is not expected. Returns the others.
fn none_is_new(report: &Report) -> Vec<&Finding> {
    let (expected, new): (Vec<_>, Vec<_>) = report.findings.iter().partition(|finding| known(finding).is_some());
    let text: Vec<String> = new.iter().map(ToString::to_string).collect();
    assert!(text.is_empty(), "the lane executor found:\n{}", text.join("\n"));
    expected
}

/// Whole runs with the run's seed, the tests of stages that name these kernels, and the kernels' mutants, as long as there is time. Returns how many
/// mutants it found and tried, without those that nothing can tell. Half of the time is the mutants'. Which tests and mutants come first depends on
/// the seed.
fn some(time: Option<Duration>, kernels: &BTreeSet<&str>) -> (usize, usize) {
    let seed = seed_for("lanes");
    let (subgroup, subgroups) = [(4, false), (8, false), (16, false), (32, true), (64, true)][seed as usize % 5];
    let config = device(subgroup, subgroups, Order::Random, if kernels.is_empty() { 0 } else { 16 });
    let (context, world) = runs::context(&config);
    let start = Instant::now();
    let in_time = || time.is_none_or(|time| start.elapsed() < time / 2);
    instead(&context, || {
        runs::all(&context, seed);
        let meets = |name: &str| kernels.iter().any(|kernel| name.contains(kernel));
        let (behind, first) = stages::ALL.split_at(seed as usize % stages::ALL.len());
        first.iter().chain(behind).filter(|(name, _)| meets(name) && in_time()).for_each(|(_, test)| test());
    });
    let report = world.take_report();
    none_is_new(&report);
    let strict = |mutant: &Mutant| Kind::STRICT.contains(&mutant.kind) && kernels.contains(&*mutant.kernel);
    let until = time.map(|time| Instant::now() + time / 2);
    let tally = hunt(&world.take_recorded(), &config.options, until, seed, strict);
    let found = tally.count(&Kind::STRICT).0;
    let mut open = tally.survivors(&Kind::STRICT);
    open.retain(|mutant| redundant(mutant).is_none());
    let tried = found + open.len();
    let mut text = format!(
        "lanes, subgroups of {subgroup}: changed since the whole was run: {kernels:?}; {found} of {tried} mutants found"
    );
    for (what, mutants) in [("not found here", &open), ("not tried", &tally.left.iter().collect())] {
        mutants.iter().for_each(|mutant| write!(text, "\n  {what}: {mutant}").unwrap());
    }
    tell(&text);
    // A kernel without barriers has no such mutants. One that did not run is not known to have none.
    let ran = kernels.is_empty() || report.counts.keys().any(|kernel| kernels.contains(&**kernel));
    assert!(ran && (tried > 0 || tally.left.is_empty()), "wanted some mutants tried, none was tried:\n{text}");
    // One device and one run miss some. All devices together may miss none.
    assert!(open.len() <= tried / 2, "wanted at least half of the mutants found:\n{text}");
    (found, tried)
}

#[test]
fn a_line_s_place_is_in_its_file() {
    let kernel = internals::kernels().iter().find(|kernel| kernel.name == "gather").unwrap();
    let text = shader::compose(kernel, Bodies::PLAIN.sizes(Sizes { windows: 2, ..Sizes::ONE }));
    let mut files = BTreeSet::new();
    for (number, line) in (1..).zip(text.lines()) {
        let place = lanes::files().place(&text, number);
        let Some((file, at)) = place.rsplit_once(':') else {
            // The declarations of further windows are in no file.
            assert!(line.contains("cache1"), "{place}: {line}");
            continue;
        };
        let path = format!("{}/shaders/{file}", env!("CARGO_MANIFEST_DIR"));
        let there = std::fs::read_to_string(path).unwrap();
        let there = there.lines().nth(at.parse::<usize>().unwrap() - 1).unwrap().to_owned();
        assert!(there == line || there.trim_start().starts_with("#window "), "{place}: {line}");
        files.insert(file.to_owned());
    }
    assert!(files.len() > 4 && files.contains("cached/gather.wgsl"), "{files:?}");
}

/// The hunt after a kernel that has changed finds mutants, and a kernel's hash is its own.
#[test]
fn a_kernel_that_changed_is_hunted() {
    assert!(texts().len() == internals::kernels().len() && texts()["admit"] != texts()["probe"]);
    let (found, tried) = some(None, &BTreeSet::from(["heads"]));
    assert!(found > 0 && tried > 0);
    let late = std::panic::catch_unwind(|| some(Some(Duration::ZERO), &BTreeSet::from(["heads"]))).unwrap_err();
    assert!(late.downcast_ref::<String>().is_some_and(|text| text.contains("none was tried")), "without time");
}

fn everything() {
    let (devices, next, sum) = (devices(), AtomicUsize::new(0), Mutex::new(Sum::default()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(config) = devices.get(next.fetch_add(1, Ordering::Relaxed)) {
                    run(config, &sum);
                }
            });
        }
    });
    let Sum { report, tally } = sum.into_inner().unwrap();

    let expected = none_is_new(&report);
    let met = |fault, kernel: &str, text: &str| {
        expected.iter().any(|found| (found.fault, &*found.kernel) == (fault, kernel) && found.detail.contains(text))
    };
    for known in KNOWN {
        assert!(met(known.fault, known.kernel, known.text), "no longer found, so strike it from KNOWN: {known:?}");
    }

    let ran: BTreeSet<&str> = report.counts.keys().map(String::as_str).collect();
    let idle: Vec<&str> =
        internals::kernels().iter().map(|kernel| kernel.name).filter(|name| !ran.contains(name)).collect();
    assert!(idle.is_empty(), "kernels that no run meets: {idle:?}");

    let (found, mutants) = tally.count(&Kind::STRICT);
    let survivors = tally.survivors(&Kind::STRICT);
    let (proven, open): (Vec<_>, Vec<_>) = survivors.into_iter().partition(|mutant| redundant(mutant).is_some());
    eprintln!("{found} of {mutants} mutants found; {} barriers are redundant; open: {}", proven.len(), open.len());
    for mutant in &proven {
        eprintln!("  {mutant}: {}", redundant(mutant).unwrap().proof);
    }
    let open: Vec<String> = open.iter().map(ToString::to_string).collect();
    open.iter().for_each(|mutant| eprintln!("  open: {mutant}"));
    for line in table(&tally) {
        eprintln!("{line}");
    }
    eprintln!("atomic operations made plain and storageBarriers made workgroupBarriers that no run notices:");
    let listed = tally.survivors(&Kind::LISTED);
    let of = |mutant: &Mutant| UNNOTICED.iter().find(|known| known.is(mutant, lanes::files()));
    listed.iter().for_each(|mutant| eprintln!("  {mutant}: {}", of(mutant).map_or("NO REASON", |known| known.proof)));
    let without: Vec<String> = listed.iter().filter(|mutant| of(mutant).is_none()).map(ToString::to_string).collect();
    assert!(without.is_empty(), "mutants that no run notices, without a reason:\n{}", without.join("\n"));
    let unused: Vec<_> = REDUNDANT
        .iter()
        .filter(|entry| !proven.iter().any(|mutant| std::ptr::eq(redundant(mutant).unwrap(), *entry)))
        .collect();
    assert!(unused.is_empty(), "barriers that are needed, or gone, so strike them from REDUNDANT: {unused:?}");
    assert!(open.is_empty(), "mutants that no run notices:\n{}", open.join("\n"));
    if std::env::var_os("HOTROW_TEST_LANES_KEEP").is_some() {
        let lines: String = texts().iter().map(|(kernel, hash)| format!("{kernel} {hash:016x}\n")).collect();
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/gpu/lanes.txt"), lines).unwrap();
    }
}

/// Counts of exchange and update in training steps of a table in so many pieces, on a device with so many storage buffers a stage.
fn counts_of(pieces: u32, storage_buffers: u32) -> ([Counts; 2], Snapshot) {
    let mut config = Config { storage_buffers, card: true, ..device(32, true, Order::Ascending, 0) };
    config.options.counting = true;
    let (context, world) = runs::context(&config);
    let rows = 9000u32;
    let mut table = GroupConfig::new(&[rows], 128)
        .with_precision(Precision::Int8)
        .with_cache_rows(rows / 20)
        .with_optimizer(Optimizer::row_wise_adagrad(0.1));
    let stride = Layout::new(&table, u64::MAX).unwrap().stride();
    table.set_piece_bytes(Some(stride * u64::from(rows.div_ceil(pieces))));
    assert_eq!(Layout::new(&table, u64::MAX).unwrap().pieces, pieces);
    let mut group = Group::new(&context, table).unwrap();
    world.take_report();
    for step in 0..2u32 {
        let indices: Vec<u32> = (0..4000u32).map(|i| (i * 7919 + step * 4001) % rows).collect();
        let offsets: Vec<u32> = (0..=200).map(|bag| bag * 20).collect();
        let outputs = group.forward(Bags::new(&indices, &offsets), Mode::Train).unwrap();
        group.backward(&outputs).unwrap();
    }
    group.flush().unwrap();
    let report = world.take_report();
    let snapshot = group.snapshot().unwrap();
    assert_eq!(report.findings, []);
    (["exchange", "update"].map(|kernel| report.counts[kernel].clone()), snapshot)
}

/// 18 pieces bound at once cost what 2 cost: dispatches, workgroups with work, turns (by their barriers and accesses). A device with WebGPU's 8 storage
/// buffers dispatches once for each piece; its counts show that the comparison can fail.
#[test]
fn eighteen_pieces_cost_as_much_as_two() {
    let cost = |counts: &Counts| [counts.dispatches, counts.working, counts.barriers, counts.accesses];
    let within = |many: &Counts, few: &Counts| {
        many.dispatches == few.dispatches && cost(many).iter().zip(cost(few)).all(|(&a, b)| a * 100 <= b * 115)
    };
    for (buffers, wanted) in [(25, true), (8, false)] {
        let (two, rows) = counts_of(2, buffers);
        let (eighteen, same_rows) = counts_of(18, buffers);
        assert!(same_rows == rows, "{buffers} storage buffers: other rows");
        for (kernel, (many, few)) in ["exchange", "update"].into_iter().zip(eighteen.iter().zip(&two)) {
            println!(
                "{kernel}, {buffers} storage buffers: dispatches, workgroups with work, barriers, accesses of 18 pieces {:?}, of 2 {:?}",
                cost(many),
                cost(few)
            );
            assert_eq!(within(many, few), wanted, "{kernel}, {buffers} storage buffers");
        }
    }
}

/// For each kernel the mutants found and all.
fn table(tally: &Tally) -> Vec<String> {
    let kernels: BTreeSet<&str> = tally.told.keys().map(|mutant| &*mutant.kernel).collect();
    let row = |kernel: &str| {
        let of = |kinds: &[Kind]| {
            let mine = tally.told.iter().filter(|(mutant, _)| mutant.kernel == kernel && kinds.contains(&mutant.kind));
            format!("{:3} of {:3}", mine.clone().filter(|&(_, &told)| told).count(), mine.count())
        };
        format!("{kernel:16} {}   {}", of(&Kind::STRICT), of(&Kind::LISTED))
    };
    let head = format!("{:16} barriers     atomics", "kernel");
    std::iter::once(head).chain(kernels.into_iter().map(row)).collect()
}

const ROWS: u32 = 65_536;
/// The sets into which the misses of one law fall.
const MISSED_SETS: u32 = 64;
const LAWS: [&str; 4] = ["uniform", "zipf", "hot", "misses"];
/// The name, precision, optimiser and slots of a group whose steps are counted.
type Counted = (&'static str, Precision, fn(f32) -> Optimizer, u32);
const COUNTED: [Counted; 2] =
    [("fp32-sgd", Precision::Fp32, Optimizer::sgd, ROWS), ("int8-adagrad", Precision::Int8, Optimizer::adagrad, 8192)];
const SPAN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/gpu/span.csv");

/// The dispatches of a group's fourth step, each with `config,law,kernel,number`, as on a card with subgroups of 32 lanes.
fn fourth_step(at: usize, law: &str) -> Vec<(String, Counts)> {
    let (name, precision, optimizer, slots) = COUNTED[at];
    let mut device = Config { card: true, ..device(32, true, Order::Ascending, 0) };
    device.options.counting = true;
    let (context, world) = runs::context(&device);
    let mut config = GroupConfig::new(&[ROWS], 64).with_precision(precision).with_cache_rows(slots);
    (config.optimizer, config.init) = (optimizer(0.1), Init::Uniform { low: -0.1, high: 0.1 });
    let spread = Spread::new(ROWS, slots / config.ways, config.ways);
    let (far, near): (Vec<u32>, Vec<u32>) = (0..ROWS).partition(|&row| spread.set_of(row) < MISSED_SETS);
    let near = &near[..slots as usize / 2]; // they fit into their sets
    let mut group = Group::new(&context, config).unwrap();
    let (mut source, zipf) = (Pcg64::seed_from_u64(1), rand_distr::Zipf::new(f64::from(ROWS), 1.05).unwrap());
    let offsets: Vec<u32> = (0..=820).map(|bag| bag * 80).collect();
    for step in 0..4 {
        world.take_report();
        let index = |i: usize| match law {
            "zipf" => zipf.sample(&mut source) as u32 - 1,
            "hot" if source.random_bool(0.1) => 7,
            "misses" if step == 3 && i.is_multiple_of(20) => far[source.random_range(0..far.len())],
            "misses" => near[i * 7919 % near.len()],
            _ => source.random_range(0..ROWS),
        };
        let indices: Vec<u32> = (0..820 * 80).map(index).collect();
        let outputs = group.forward(Bags::new(&indices, &offsets), Mode::Train).unwrap();
        group.backward(&outputs).unwrap();
    }
    let report = world.take_report();
    none_is_new(&report);
    let mut numbers: BTreeMap<String, u32> = BTreeMap::new();
    let named = |(kernel, counts): (String, Counts)| {
        let number = numbers.entry(kernel.clone()).or_default();
        *number += 1;
        (format!("{name},{law},{kernel},{number}"), counts)
    };
    report.dispatches.into_iter().map(named).collect()
}

/// The counts that may not grow.
fn bounded(of: &Counts) -> [(&'static str, u64); 5] {
    [("issues", of.issues), ("longest", of.longest), ("waits", of.waits), ("turn", of.turn), ("barriers", of.passed)]
}

/// What a dispatch misses of what each should reach, as far as one dispatch tells.
fn missed(key: &str, counts: &Counts) -> Option<String> {
    let &Counts { issues, longest, working, waits, turn, .. } = counts;
    let [_, law, kernel, _] = key.split(',').collect::<Vec<_>>()[..] else { panic!("{key}") };
    let waits = if ["update", "exchange"].contains(&kernel) { turn } else { waits };
    let blocks = ["histogram", "scatter", "segments", "heads", "scan"].contains(&kernel);
    let even = longest * 48 <= issues || blocks && 2 * longest * working <= 3 * issues;
    let few = kernel == "admit" && law == "misses" && working * 8 < u64::from(MISSED_SETS);
    let share = longest as f64 * 100.0 / issues as f64;
    let text = || format!("{share:.1} % in one of {working} workgroups with work, {waits} waits");
    (few || issues > 100_000 && (!even || waits > 36)).then(text)
}

/// What dispatches have more of than the rows of `csv`, or miss without a reason there.
fn beyond(found: &[(String, Counts)], csv: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for (key, counts) in found {
        let row = csv.lines().find_map(|row| row.strip_prefix(&**key)?.strip_prefix(','));
        let columns: Vec<&str> = row.unwrap_or("0,0,0,0,0,,,,,").splitn(10, ',').collect();
        for ((what, found), most) in bounded(counts).into_iter().zip(&columns) {
            if found > most.parse().unwrap() {
                faults.push(format!("{key}: wanted at most {most} {what}, found {found}"));
            }
        }
        if let Some(missed) = missed(key, counts).filter(|_| columns[9].is_empty()) {
            faults.push(format!("{key}: {missed}: mend it, or write a reason into its row"));
        }
    }
    faults
}

/// The rows whose kernel's text is another now.
fn older(csv: &str) -> Vec<&str> {
    let texts = texts();
    let hash = |row: &str| texts.get(row.split(',').nth(2)?).map(|hash| format!("{hash:016x}"));
    csv.lines().skip(1).filter(|row| row.split(',').nth(12) != hash(row).as_deref()).collect()
}

/// `HOTROW_TEST_SPAN=all` counts all steps and writes `span.csv` if no count has grown and each miss has its reason, or in any case with
/// `HOTROW_TEST_SPAN_KEEP=1`. Words such as `int8 hot update` count and print the rows that have all of them. Without it, only the rows' texts are compared.
#[test]
fn work_and_span() {
    let old = std::fs::read_to_string(SPAN).unwrap_or_default();
    let Ok(wanted) = std::env::var("HOTROW_TEST_SPAN") else {
        let stale = older(&old);
        assert!(stale.is_empty(), "{SPAN}: of older texts, so run scripts/nightly span:\n{}", stale.join("\n"));
        let hash = old.lines().nth(1).unwrap().split(',').nth(12).unwrap();
        assert_eq!(older(&old.replacen(hash, "0", 1)).len(), 1);
        return;
    };
    let (texts, mut found) = (texts(), Vec::new());
    let taken = |name: &str, word: &str| word == "all" || name.contains(word);
    for (at, law) in (0..COUNTED.len()).flat_map(|at| LAWS.map(|law| (at, law))) {
        let name = format!("{},{law}", COUNTED[at].0);
        if wanted.split(' ').all(|word| texts.contains_key(word) || taken(&name, word)) {
            let start = Instant::now();
            found.extend(fourth_step(at, law));
            tell(&format!("{name}: {:.0?}", start.elapsed()));
        }
    }
    found.retain(|(key, _)| wanted.split(' ').all(|word| taken(key, word)));
    let faults = beyond(&found, &old);
    let row = |(key, counts): &(String, Counts)| {
        let row = old.lines().find(|row| row.starts_with(&format!("{key},")));
        let reason = row.and_then(|row| row.splitn(14, ',').nth(13)).filter(|_| missed(key, counts).is_some());
        let (hash, share) = (texts[key.split(',').nth(2).unwrap()], counts.longest as f64 / counts.issues as f64);
        let figures = bounded(counts).map(|(_, figure)| format!("{figure},")).concat();
        let Counts { workgroups, working, .. } = counts;
        format!("{key},{figures}{workgroups},{working},{share:.4},{hash:016x},{}\n", reason.unwrap_or(""))
    };
    let head = "config,law,kernel,number,issues,longest,waits,turn,barriers,workgroups,working,share,text,reason\n";
    let csv = head.to_owned() + &found.iter().map(row).collect::<String>();
    if wanted != "all" {
        tell(&csv);
    } else if faults.is_empty() || std::env::var_os("HOTROW_TEST_SPAN_KEEP").is_some() {
        std::fs::write(SPAN, csv).unwrap();
    }
    assert!(!found.is_empty() && faults.is_empty(), "{wanted}: {} dispatches\n{}", found.len(), faults.join("\n"));
}

#[test]
fn more_work_and_span_than_its_row_is_refused() {
    let faults = |kernel: &str, [longest, waits, working]: [u64; 3], row: &str| {
        let counts = Counts { issues: 480_000, longest, waits, working, turn: 9, ..Counts::default() };
        let key = format!("c,misses,{kernel},1");
        beyond(&[(key.clone(), counts)], &format!("{key},{row}")).len()
    };
    for row in ["480000,10000,36,9", "479999,10000,36,9", "480000,9999,36,9", "480000,10000,35,9", "480000,10000,36,8"]
    {
        let wanted = usize::from(row != "480000,10000,36,9");
        assert_eq!(faults("merge", [10_000, 36, 60], &format!("{row},0,1,1,0,0,")), wanted, "{row}");
    }
    // 1.5 times the mean of 60 workgroups with work is 12,000; of 80 it is less than 10,001.
    let (share, waits, few) = ([10_001, 36, 60], [10_000, 37, 60], [10_000, 36, 7]);
    let missing = [("merge", share), ("scatter", [10_001, 36, 80]), ("merge", waits), ("admit", few)];
    let reaching = [("merge", [10_000, 36, 60]), ("scatter", share), ("update", waits), ("admit", [10_000, 36, 8])];
    for (at, (kernel, counts)) in missing.into_iter().chain(reaching).enumerate() {
        let row = "500000,12000,99,99,2,1,1,0,0,";
        let found = ["", "reach missed"].map(|reason| faults(kernel, counts, &format!("{row}{reason}")));
        assert_eq!(found, [usize::from(at < 4), 0], "{kernel} {counts:?}");
    }
    assert_eq!(beyond(&[("c,hot,merge,1".into(), Counts { issues: 1, ..Counts::default() })], "").len(), 1, "no row");
}
