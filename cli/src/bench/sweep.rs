//! The sweep over hit rates: every precision x rounding x policy x placement, beside two bounds, a table without a cache and unified memory.

use super::common::Common;
use super::runners::Runner;
use super::suite::shapes::{random, shuffle};
use hotrow::internals::layout::Layout;
use hotrow::{Context, GroupConfig, Init, Optimizer, OptimizerKind, Placement, Policy, Precision, Rounding, adapter};
use hotrow_report::clock::{CACHES, Clock, Rounds, last_level_cache, timed};
use hotrow_report::failure::{Failure, ensure_usage};
use hotrow_report::names::{self, COMPARED, PLACES, admitting, list, one_of};
use hotrow_report::options::{Backend, MOST_ROWS, Options, WindowArgs, number, percent, whole};
use hotrow_report::output;
use hotrow_report::plot::{Chart, Style};
use hotrow_report::progress::Progress;
use hotrow_report::records::{Measurement, Select, Setting, Unit, shown};
use hotrow_report::run::{Machine, Run};
use hotrow_report::spec::read;
use hotrow_report::units::Times;
use hotrow_report::uvm::{UvmBus, UvmModel, UvmTable, UvmTraffic};
use rand::seq::SliceRandom as _;
use rand_pcg::Pcg64;
use std::{collections::BTreeSet, time::Duration};

#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub(super) struct Args {
    #[command(flatten)]
    common: Common,
    /// Precisions of the table
    #[arg(long, value_delimiter = ',', default_value = list(Precision::ALL), value_parser = one_of(Precision::ALL))]
    precision: Vec<Precision>,
    /// Rounding of packed precisions
    #[arg(long, value_delimiter = ',', default_value = "stochastic", value_parser = one_of(Rounding::ALL))]
    rounding: Vec<Rounding>,
    /// Replacement policies
    #[arg(long, value_delimiter = ',', default_value = list(COMPARED), value_parser = one_of(admitting()))]
    policy: Vec<Policy>,
    #[command(flatten)]
    window: WindowArgs,
    /// Hit rates to aim at, in percent of the accesses; a software driver beside the CPU takes every third, with one policy and rounding
    #[arg(long, value_name = "P[,P]", value_delimiter = ',', default_value = "0,25,50,75,90,95,100",
          allow_negative_numbers = true, value_parser = percent)]
    hit_rate: Vec<f64>,
    /// Placements of the table [default: device; mapped and staged beside it with INT8 and one policy]
    #[arg(long, value_delimiter = ',', value_parser = one_of(PLACES))]
    placement: Vec<Placement>,
    /// Update rule
    #[arg(long, default_value_t = OptimizerKind::Sgd, value_parser = one_of(OptimizerKind::ALL))]
    optimizer: OptimizerKind,
    /// Rows of the table [default: by backend]
    #[arg(long, value_name = "N", value_parser = whole(64..=MOST_ROWS))]
    rows: Option<u32>,
    /// Floats in a row
    #[arg(long, value_name = "D", value_parser = whole(1u32..=65536))]
    dim: Option<u32>,
    /// Accesses in a batch
    #[arg(long, value_name = "N", value_parser = whole(1u32..=1 << 24))]
    batch: Option<u32>,
    /// Seconds that each backend may take, roughly
    #[arg(long, value_name = "S", default_value_t = 20, value_parser = whole(1u64..=3600))]
    seconds: u64,
    /// UVM model: sizes of a page in KiB, powers of two
    #[arg(long, value_name = "N[,N]", value_delimiter = ',', default_values_t = [64], value_parser = page)]
    page_kib: Vec<u64>,
    /// UVM model: bytes over the bus, one way, in GB/s
    #[arg(long, value_name = "X", default_value_t = UvmModel::default().bus_bytes_per_second * 1e-9, value_parser = |text: &str| number(text, 1e-6..=1e6))]
    bus_gb_s: f64,
    /// UVM model: time of a fault in us, shared by 256 at once
    #[arg(long, value_name = "X", default_value_t = UvmModel::default().fault_seconds * 1e6, value_parser = |text: &str| number(text, 0.0..=1e9))]
    fault_us: f64,
}

fn page(text: &str) -> Result<u64, String> {
    read(text, "a power of two, 1 to 1048576", |kib: &u64| kib.is_power_of_two() && *kib <= 1 << 20)
}

/// Steps that bring the hot rows in before a point is measured. LFU keeps a row only after several uses.
const WARM: usize = 3;
/// The most steps of a point; the median of their times is its figure.
const MEASURED: usize = 15;

/// A line of the table: the setting of its records, and the configuration of its tables.
#[derive(Clone)]
struct Curve {
    setting: Setting,
    config: GroupConfig,
}

#[derive(Clone, Copy, Debug)]
struct Point {
    hit_rate: f64,
    seconds: [Times; 2],
    /// Bytes read from and written to the table in a step.
    table: [f64; 2],
    /// Bytes that crossed the bus in forward and in backward; for a table in GPU memory, bytes to and from it.
    crossed: [f64; 2],
}

struct Sweep<'a> {
    args: &'a Args,
    shape: Shape,
    /// The shape name of the records: `cpu`, `gpu` or `software`.
    name: &'static str,
    machine: Machine,
    /// `None` on the CPU.
    clock: Option<Clock>,
    placements: Vec<Placement>,
    /// Placements that are measured with one precision and policy only.
    beside: Vec<Placement>,
    seed: u32,
}

pub(super) fn run(options: &Options, args: &Args) -> Result<(), Failure> {
    ensure_usage!(
        options.backend != Backend::Cpu || args.placement.iter().all(|&name| name == Placement::Device),
        "--placement: wanted device with --backend cpu, found another; a CPU has one memory"
    );
    args.common.make_folder(options)?;
    let mut run = args.common.start(options, "bench", "sweep");
    let context = options.backend.open("running")?;
    let judged = context.as_ref().is_some_and(|context| context.caps().is_hardware());
    let mut sweeps = vec![Sweep::new(args, options.group_seed(), context.as_ref())];
    // Beside the CPU, a software driver shows that the kernels work; its speed means nothing, so it takes few points.
    let hit_rate = args.hit_rate.iter().copied().step_by(3).collect();
    let (policy, rounding) = (args.policy[..1].to_vec(), args.rounding[..1].to_vec());
    let few = Args { hit_rate, policy, rounding, seconds: args.seconds.div_ceil(4), ..args.clone() };
    if context.is_none() && options.backend == Backend::Auto {
        match adapter::open_best() {
            Ok(context) => sweeps.push(Sweep::new(&few, options.group_seed(), Some(&context))),
            Err(reason) => output::note(&format!("the WGSL kernels were left out: {reason}")),
        }
    }
    let (measured, seconds) = timed(|| sweeps.iter().try_for_each(|sweep| sweep.measure(&mut run)));
    measured?;
    run.judge(judged, seconds);
    let mut charts = Vec::new();
    for sweep in &sweeps {
        for direction in ["forward", "backward"] {
            let stem = format!("bench-{}-{direction}", sweep.name);
            charts.push(sweep.chart(&run, direction).write(&args.common.out.join(stem))?);
        }
    }
    // The table of a software driver beside the CPU is written to the file and not printed.
    Ok(args.common.finish(options, &run, "bench", 1, &charts)?)
}

impl<'a> Sweep<'a> {
    fn new(args: &'a Args, seed: u32, context: Option<&Context>) -> Self {
        let (name, shape) = match context {
            None => ("cpu", Shape::CPU),
            Some(context) if context.caps().is_hardware() => ("gpu", Shape::GPU),
            Some(_) => ("software", Shape::SOFTWARE),
        };
        // Beside the CPU, which has one memory, a software driver is measured only in placement Device.
        let (placements, beside) = match (context, &args.placement[..]) {
            (Some(context), []) => {
                let mapped = context.caps().mappable.then_some(Placement::Mapped);
                (vec![Placement::Device], mapped.into_iter().chain([Placement::Staged]).collect())
            }
            (Some(_), asked) => (asked.to_vec(), Vec::new()),
            (None, _) => (vec![Placement::Device], Vec::new()),
        };
        let rows = args.rows.unwrap_or(shape.rows);
        let (dim, batch) = (args.dim.unwrap_or(shape.dim), args.batch.unwrap_or(shape.batch));
        let clock = context.map(|context| Clock::new(context, Rounds::ONE));
        let machine = context.map_or_else(Machine::cpu, Machine::of);
        Self { args, shape: Shape { rows, dim, batch, ..shape }, name, machine, clock, placements, beside, seed }
    }

    /// The precisions, each packed one with every rounding.
    fn stored(&self) -> Vec<(Precision, Option<Rounding>)> {
        let rounding = |precision| match precision {
            Precision::Fp32 => vec![None],
            _ => self.args.rounding.iter().copied().map(Some).collect(),
        };
        self.args
            .precision
            .iter()
            .flat_map(|&precision| rounding(precision).into_iter().map(move |r| (precision, r)))
            .collect()
    }

    /// A curve of this precision and placement. Without a policy it has no cache; curves of unified memory name their page size. FP32 is not rounded.
    fn curve(
        &self,
        kind: &'static str,
        (precision, rounding): (Precision, Option<Rounding>),
        placement: Placement,
        policy: Option<Policy>,
        page_kib: Option<u64>,
    ) -> Curve {
        let name = precision.to_string().to_uppercase();
        // Where only the usual one is measured, the label leaves it out.
        let stored = match rounding.filter(|_| self.args.rounding != [Rounding::Stochastic]) {
            Some(rounding) => format!("{name} {rounding}"),
            None => name.clone(),
        };
        let cache = policy.map_or_else(|| "uncached".to_owned(), names::title);
        let label = match (kind, page_kib, placement) {
            ("uvm model", Some(kib), _) => format!("UVM model, {kib} KiB, predicted"),
            (_, Some(kib), _) => format!("UVM model, {kib} KiB, moved"),
            (_, None, Placement::Device) => format!("{stored}, {cache}"),
            (_, None, place) => format!("{stored}, {cache}, {place}"),
        };
        let setting = Setting::default().with("curve", label).with("kind", kind).with("precision", name);
        let setting = setting.with("placement", placement.to_string());
        let setting = page_kib.into_iter().fold(setting, |setting, kib| setting.with("page KiB", kib as f64));
        let setting = policy.into_iter().fold(setting, |setting, policy| setting.with("policy", names::title(policy)));
        let setting =
            rounding.into_iter().fold(setting, |setting, rounding| setting.with("rounding", rounding.to_string()));
        let mut config = GroupConfig::new(&[self.shape.rows], self.shape.dim);
        (config.precision, config.placement, config.seed) = (precision, placement, self.seed);
        config.rounding = rounding.unwrap_or(config.rounding);
        (config.policy, config.window_ways) = (policy.unwrap_or(Policy::Lru), self.args.window.window_ways);
        config.cache_rows = policy.map_or(0, |_| self.shape.cache_rows());
        config.optimizer = Optimizer::usual(self.args.optimizer, 1e-3);
        config.init = Init::Uniform { low: -0.1, high: 0.1 };
        Curve { setting, config }
    }

    /// The precision and policy of the comparison of placements: INT8 if asked for, else the first precision; the first rounding and policy.
    fn compared(&self) -> ((Precision, Option<Rounding>), Policy) {
        let stored = self.stored();
        let int8 = stored.iter().find(|(precision, _)| *precision == Precision::Int8);
        let first = stored.first().copied().unwrap_or((Precision::Fp32, None));
        (int8.copied().unwrap_or(first), self.args.policy.first().copied().unwrap_or(Policy::Lru))
    }

    fn measure(&self, run: &mut Run) -> anyhow::Result<()> {
        let Self { args, shape, .. } = self;
        let (compared, policy) = self.compared();
        let curve = |stored, placement, policy: Option<Policy>| {
            self.curve(if policy.is_some() { "cached" } else { "uncached" }, stored, placement, policy, None)
        };
        let (mut curves, stored) = (Vec::new(), self.stored());
        for (&placement, &stored) in self.placements.iter().flat_map(|place| stored.iter().map(move |p| (place, p))) {
            curves.extend(args.policy.iter().map(|&policy| curve(stored, placement, Some(policy))));
            curves.push(curve(stored, placement, None));
        }
        for &placement in &self.beside {
            curves.extend([Some(policy), None].map(|policy| curve(compared, placement, policy)));
        }
        // The bound of Yang 2020, Figure 9: an FP32 table in host memory, read by the shaders over the bus.
        let bound = curve((Precision::Fp32, None), Placement::Mapped, None);
        let mappable = self.clock.as_ref().is_some_and(|clock| clock.timed.caps().mappable);
        if mappable && !curves.iter().any(|known| known.setting == bound.setting) {
            curves.push(bound);
        }
        run.on(self.machine.clone());
        let (Shape { rows, dim, batch, bag, .. }, cache, rule) = (*shape, shape.cache_rows(), args.optimizer);
        let batches = format!("batches of {batch} accesses in bags of {bag}, cache of {cache} rows; {rule}");
        let staged = "staged: by wall clock, with the host's part in forward";
        run.describe(self.name, format!("{rows} rows x {dim}, {batches}; {staged}"));
        let points = curves.len() * args.hit_rate.len();
        let progress = Progress::new(self.name, points as u64);
        let slice = Duration::from_secs(args.seconds).div_f64(points.max(1) as f64);
        // All hits of a batch read the same rows of the cache.
        let hot = u64::from(batch.min(rows / 2)) * u64::from(dim) * 4;
        let mut tables = BTreeSet::from([(hot, "the rows that hits of a batch read".to_owned())]);
        for config in curves.iter().map(|curve| &curve.config) {
            let name = format!("tables in {}", config.precision.to_string().to_uppercase());
            tables.insert((Layout::new(config, u64::MAX)?.table_bytes(), name));
        }
        let of_host = self.clock.as_ref().is_none_or(|clock| !clock.timed.caps().is_hardware());
        run.note_cached(self.name, last_level_cache(CACHES).filter(|_| of_host), &tables);
        for curve in &curves {
            let mut runner = Runner::new(self.clock.as_ref(), curve.config.clone(), self.shape.offsets())?;
            self.points(run, curve, &mut runner, slice)?;
            progress.advance(args.hit_rate.len() as u64);
        }
        for &kib in &args.page_kib {
            let model = UvmModel {
                page_bytes: kib << 10,
                bus_bytes_per_second: args.bus_gb_s * 1e9,
                fault_seconds: args.fault_us * 1e-6,
            };
            // A cache too small for a page still leaves the other curves.
            if let Err(reason) = self.unified(run, model, slice) {
                run.leave_out(format!("pages of {kib} KiB"), format!("{reason:#}"));
            }
        }
        self.compare(run);
        Ok(())
    }

    /// Measures the points of a curve. Without a cache the hit rate is 0 for any share of hot rows.
    fn points(&self, run: &mut Run, curve: &Curve, runner: &mut Runner<'_>, slice: Duration) -> anyhow::Result<()> {
        let mut stream = Stream::new(self.shape, self.seed);
        let aims = if curve.config.cache_rows == 0 { &[0.0] } else { &self.args.hit_rate[..] };
        for &aim in aims {
            let mut point = point(runner, &mut stream, aim / 100.0, slice)?;
            if let Some(clock) = &self.clock {
                point.seconds = point.seconds.map(|times| clock.marked(times, 1));
            }
            self.push(run, curve, aim, &point);
        }
        Ok(())
    }

    fn push(&self, run: &mut Run, curve: &Curve, aim: f64, point: &Point) {
        let logical = self.shape.logical_bytes() as f64;
        let setting = curve.setting.clone().with("aim", aim).with("hits", 100.0 * point.hit_rate);
        let mut at = run.at(self.name, &setting);
        at.timed("forward", point.seconds[0]);
        at.timed("backward", point.seconds[1]);
        at.push("table bytes read", point.table[0], Unit::Bytes);
        at.push("table bytes written", point.table[1], Unit::Bytes);
        for (what, bytes) in [("logical", [logical, 2.0 * logical]), ("crossed", point.crossed)] {
            for ((phase, bytes), times) in ["forward", "backward"].into_iter().zip(bytes).zip(point.seconds) {
                at.push(&format!("{phase} {what}"), bytes / times.median, Unit::BytesPerSecond);
            }
        }
        if curve.config.cache_rows > 0 {
            let name = curve.setting.get("curve").map(shown).unwrap_or_default();
            let place = Setting::default().with("curve", name).with("aim", aim);
            run.at(self.name, &place).push("off the aim", (point.hit_rate - aim / 100.0).abs(), Unit::Share);
        }
    }

    /// Both curves of a page size: the time of a step whose rows are all on the device, measured in this run, plus that of the pages, predicted
    /// by the model, and moved on a device.
    fn unified(&self, run: &mut Run, model: UvmModel, slice: Duration) -> anyhow::Result<()> {
        let row = u64::from(self.shape.dim) * 4;
        let mut table = UvmTable::new(model.page_bytes, row, u64::from(self.shape.cache_rows()) * row)?;
        let of_resident = format!("kind=cached; precision=FP32; placement={}", self.placements[0]);
        let fastest = |what: &str| {
            let select = Select { what, shape: self.name, setting: &of_resident };
            let hits = |record: &&Measurement| record.setting.number("hits").unwrap_or(0.0);
            run.select(select).max_by(|a, b| hits(a).total_cmp(&hits(b))).map(|record| record.value)
        };
        let Some((forward, backward)) = fastest("forward").zip(fastest("backward")) else { return Ok(()) };
        let kib = model.page_bytes >> 10;
        let bus = self.clock.as_ref().map(|clock| UvmBus::new(clock, &table, self.shape.rows)).transpose();
        // A device that moves no pages still has their prediction.
        let bus = bus.unwrap_or_else(|reason| {
            run.leave_out(format!("moved pages of {kib} KiB"), format!("{reason:#}"));
            None
        });
        let curve = |kind| self.curve(kind, (Precision::Fp32, None), self.placements[0], None, Some(kib));
        let [predicted, carried] = ["uvm model", "uvm pages"].map(curve);
        let mut stream = Stream::new(self.shape, self.seed);
        for &aim in &self.args.hit_rate {
            // A step's pages in forward and in backward, and the seconds that they took.
            let mut step = |hit_rate| -> anyhow::Result<[(UvmTraffic, f64); 2]> {
                let rows = stream.batch(hit_rate);
                let mut pass = |write| {
                    let moves = table.pass(&rows, write);
                    let seconds = bus.as_ref().map_or(Ok(0.0), |bus| bus.carry(&moves))?;
                    anyhow::Ok((UvmTraffic::of(&moves), seconds))
                };
                Ok([pass(false)?, pass(true)?])
            };
            for _ in 0..WARM {
                step(1.0)?;
            }
            step(aim / 100.0)?;
            // Each round moves the pages of a batch of its own.
            let mut seen = Vec::new();
            let rounds = Rounds { whole: if bus.is_some() { MEASURED } else { 1 }, detailed: 0, slice };
            let times = rounds.repeat(|| {
                let both = step(aim / 100.0)?;
                seen.push(both.map(|one| one.0));
                Ok(both.map(|one| one.1))
            })?;
            let mut push = |curve: &Curve, seen: &[[UvmTraffic; 2]], of_pages: [Times; 2]| {
                let with = |resident: f64, pages: Times| Times::of(vec![resident]).plus(pages);
                let bytes = |pass: usize, of: fn(&UvmTraffic) -> u64| {
                    let pages: u64 = seen.iter().map(|both| of(&both[pass])).sum();
                    (pages * model.page_bytes) as f64 / seen.len() as f64
                };
                let [read, written] = [|moved: &UvmTraffic| moved.pages_in, |moved: &UvmTraffic| moved.pages_out]
                    .map(|of| [0, 1].map(|pass| bytes(pass, of)));
                let point = Point {
                    hit_rate: aim / 100.0,
                    seconds: [with(forward, of_pages[0]), with(backward, of_pages[1])],
                    table: [read, written].map(|both| both.iter().sum()),
                    crossed: [0, 1].map(|pass| read[pass] + written[pass]),
                };
                self.push(run, curve, aim, &point);
            };
            push(&predicted, &seen[..1], seen[0].map(|moved| Times::of(vec![model.seconds(moved)])));
            if bus.is_some() {
                push(&carried, &seen, times);
            }
        }
        Ok(())
    }

    /// Records the comparisons of the goals: INT8 bytes against FP32 bytes, mapped INT8 against unified memory.
    fn compare(&self, run: &mut Run) {
        let scaled = |is: bool| if is { Setting::default().with("scaled", "yes") } else { Setting::default() };
        let (Shape { rows, dim, batch, .. }, goal) = (self.shape, Shape::GPU);
        let ratio = |run: &Run, what: &str, settings: [&str; 2]| {
            let [a, b] = settings.map(|setting| run.value(what, self.name, setting));
            a.zip(b).map(|(a, b)| a / b)
        };
        let bytes = ["INT8", "FP32"].map(|precision| format!("kind=uncached; precision={precision}; placement=device"));
        let share = ratio(run, "table bytes read", bytes.each_ref().map(String::as_str));
        run.at(self.name, &scaled(dim != goal.dim)).push("bytes against FP32", share, Unit::Share);
        let place = scaled((rows, dim, batch) != (goal.rows, goal.dim, goal.batch));
        for &aim in &self.args.hit_rate {
            let kinds = ["kind=uvm pages; placement=device", "kind=cached; precision=INT8; placement=mapped"];
            let kinds = kinds.map(|kind| format!("{kind}; aim={}", shown(&aim.into())));
            let times = ratio(run, "forward", kinds.each_ref().map(String::as_str));
            run.at(self.name, &place.clone().with("aim", aim)).push("against pages", times, Unit::Times);
        }
    }

    /// The chart of the precisions and policies in the first placement, with the bounds.
    fn chart(&self, run: &Run, direction: &str) -> Chart {
        let first = self.placements[0];
        // The chart shows the first page size; the table shows all.
        let pages = self.args.page_kib.first().map_or_else(String::new, |&kib| shown(&kib.into()));
        let lines = [
            (format!("kind=uvm model; page KiB={pages}"), 6),
            (format!("kind=uvm pages; page KiB={pages}"), 4),
            ("kind=uncached; precision=FP32; placement=mapped".to_owned(), 5),
            ("kind=uncached; precision=FP32".to_owned(), 7),
        ];
        let precisions = ["FP32", "FP16", "INT8", "INT4", "INT2"].into_iter().zip(0..);
        let precisions = precisions.map(|(name, i)| (format!("kind=cached; precision={name}; placement={first}"), i));
        let lines: Vec<(String, usize)> = lines.into_iter().chain(precisions).collect();
        let what = format!("{direction} logical");
        let mut chart = Chart::new("Hit rate (% of accesses)", "Logical bandwidth");
        chart.title = format!("Logical bandwidth, {direction}: {}", self.machine.title());
        chart.x_range = Some((0.0, 100.0));
        let colour = |record: &Measurement| {
            let is = |setting: &str| Select { what: "", shape: "", setting }.has(record);
            lines.iter().find(|(setting, _)| is(setting)).map(|line| line.1)
        };
        let both = self.args.rounding.len() > 1;
        let style = |record: &Measurement| Style {
            colour: colour(record).unwrap_or(0),
            dashed: record.is("policy", "LFU") || !record.is("kind", "cached"),
            // Lines without points are nearest, where both roundings are drawn.
            markers: (record.is("kind", "cached") && !(both && record.is("rounding", "nearest")))
                || record.is("kind", "uvm pages"),
        };
        let shown = run.select(Select { what: &what, shape: self.name, setting: "" });
        let shown = shown.filter(|record| colour(record).is_some());
        chart.lines(shown, |record| record.words(&["curve"]), |record| record.setting.number("hits"), style);
        for series in chart.series.iter_mut().filter(|series| series.label.contains("uncached")) {
            let bound = series.points[0].1;
            series.points = [0.0, 100.0].map(|x| (x, bound, [0.0; 2])).to_vec();
        }
        let highest = chart.series.iter().flat_map(|series| &series.points).map(|point| point.1).fold(0.0, f64::max);
        chart.y_range = Some((0.0, highest * 1.05));
        chart
    }
}

fn point(runner: &mut Runner<'_>, stream: &mut Stream, hit_rate: f64, slice: Duration) -> anyhow::Result<Point> {
    for _ in 0..WARM {
        runner.step(&stream.batch(1.0))?;
    }
    runner.step(&stream.batch(hit_rate))?;
    let before = runner.seen()?;
    let mut steps = 0.0;
    let seconds = Rounds { whole: MEASURED, detailed: 0, slice }.repeat(|| {
        loop {
            steps += 1.0;
            if let Some(parts) = runner.step(&stream.batch(hit_rate))? {
                return Ok(parts);
            }
        }
    })?;
    let after = runner.seen()?;
    let seen = after.counters - before.counters;
    Ok(Point {
        hit_rate: seen.hit_rate(),
        seconds,
        table: [seen.bytes_read as f64 / steps, seen.bytes_written as f64 / steps],
        crossed: [0, 1].map(|k| (after.bus[k] - before.bus[k]) as f64 / steps),
    })
}

/// Sizes of a sweep. A tenth of the rows fits the cache.
#[derive(Clone, Copy, Debug)]
struct Shape {
    rows: u32,
    dim: u32,
    /// Accesses in a batch, all to distinct rows.
    batch: u32,
    /// Accesses in a bag, summed.
    bag: u32,
}

impl Shape {
    /// Rows as in TBE's benchmark (dim 128, bags of 20). The table is far larger than any cache on the chip.
    const GPU: Self = Self { rows: 4_000_000, dim: 128, batch: 160_000, bag: 20 };
    /// The same shape, small enough for a sweep of 20 seconds on two cores, and larger than their caches.
    const CPU: Self = Self { rows: 200_000, dim: 128, batch: 4_000, bag: 20 };
    /// Small enough for a software driver, whose step shall take milliseconds too.
    const SOFTWARE: Self = Self { rows: 50_000, dim: 128, batch: 400, bag: 20 };

    const fn cache_rows(&self) -> u32 {
        self.rows / 10
    }

    const fn bags(&self) -> u32 {
        self.batch.div_ceil(self.bag)
    }

    /// Starts of the bags; the last may be shorter.
    fn offsets(&self) -> Vec<u32> {
        (0..=self.bags()).map(|bag| (bag * self.bag).min(self.batch)).collect()
    }

    /// TBE's measure of forward: output bytes + 4 * dim * accesses. Backward counts twice that.
    const fn logical_bytes(&self) -> u64 {
        4 * self.dim as u64 * (self.bags() as u64 + self.batch as u64)
    }
}

/// An endless stream of batches with a chosen hit rate.
///
/// The hot rows are in every batch, so LRU and LFU keep them. Cold rows come in a random order; none returns before all have come.
#[derive(Debug)]
struct Stream {
    shape: Shape,
    hot: Vec<u32>,
    cold: Vec<u32>,
    next: usize,
    random: Pcg64,
}

impl Stream {
    fn new(shape: Shape, seed: u32) -> Self {
        let mut random = random(0, u64::from(seed));
        let mut rows: Vec<u32> = (0..shape.rows).collect();
        rows.shuffle(&mut random);
        let hot = rows.split_off(rows.len() - (shape.batch.min(shape.rows / 2)) as usize);
        Self { shape, hot, cold: rows, next: 0, random }
    }

    /// A batch in which the share `hot_share` of the accesses goes to hot rows.
    fn batch(&mut self, hot_share: f64) -> Vec<u32> {
        let batch = self.shape.batch as usize;
        let hot = (batch as f64 * hot_share).round() as usize;
        let cold = self.cold.iter().cycle().skip(self.next % self.cold.len());
        let mut rows: Vec<u32> = self.hot.iter().cycle().take(hot).chain(cold.take(batch - hot)).copied().collect();
        self.next += batch - hot;
        // In random order, so that a bag mixes hot and cold rows.
        shuffle(&mut rows, &mut self.random);
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    /// What is named is what runs: label and setting are those of the configuration, and FP32 has no rounding.
    #[test]
    fn each_rounding_has_tables_and_a_label_of_its_own() {
        let curves = |line: &str| -> Vec<(String, Option<String>, Rounding)> {
            let line =
                Line::parse_from(["bench", "--precision", "fp32,int4"].into_iter().chain(line.split_whitespace()));
            let sweep = Sweep::new(&line.args, 1, None);
            let curve = |stored| sweep.curve("cached", stored, Placement::Device, Some(Policy::Lru), None);
            let curves = sweep.stored().into_iter().map(curve);
            let text = |curve: &Curve, name| curve.setting.get(name).map(shown);
            curves
                .map(|one| (text(&one, "curve").unwrap_or_default(), text(&one, "rounding"), one.config.rounding))
                .collect()
        };
        let (plain, [nearest, stochastic]) = (("FP32, LRU".to_owned(), None, Rounding::Stochastic), Rounding::ALL);
        let of = |label: &str, rounding: Rounding| (label.to_owned(), Some(rounding.to_string()), rounding);
        assert_eq!(curves(""), [plain.clone(), of("INT4, LRU", stochastic)]);
        assert_eq!(curves("--rounding nearest"), [plain.clone(), of("INT4 nearest, LRU", nearest)]);
        let both = [plain, of("INT4 stochastic, LRU", stochastic), of("INT4 nearest, LRU", nearest)];
        assert_eq!(curves("--rounding stochastic,nearest"), both);
    }
}
